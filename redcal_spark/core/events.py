"""Events: the sets of rows that patches act on. Their order is the order that breaks ties."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

Direction = Literal[">", "<"]
Pair = tuple[int, int]  # two models, the lower one first


@cache
def pairs_of(models: int) -> tuple[Pair, ...]:
    """All pairs of models, in the order that breaks ties."""
    return tuple(combinations(range(1, models + 1), 2))


@dataclass(frozen=True, order=True)
class Disagreement:
    """Rows on which a pair's models would take a1 and a2, one of them by a margin above alpha."""

    loss: int
    a1: int
    a2: int
    pair: Pair = (1, 2)

    def action(self, model: int) -> int:
        return self.a1 if model == self.pair[0] else self.a2


@dataclass(frozen=True, order=True)
class ActionRegion:
    """Rows whose best response under a loss is this action."""

    loss: int
    action: int


@dataclass(frozen=True)
class ScoreGap:
    """Rows on which a coordinate of a pair's first model is above (>) or below (<) the second's.

    By more than alpha.
    """

    coordinate: int
    direction: Direction
    pair: Pair = (1, 2)


Event = Disagreement | ActionRegion | ScoreGap

"""Events: the sets of rows that patches act on. Their order is the order that breaks ties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal[">", "<"]


@dataclass(frozen=True, order=True)
class Disagreement:
    """Rows on which model 1 would take a1, model 2 a2, and one of them by a margin above alpha."""

    loss: int
    a1: int
    a2: int

    def action(self, model: int) -> int:
        return self.a1 if model == 1 else self.a2


@dataclass(frozen=True, order=True)
class ActionRegion:
    """Rows whose best response under a loss is this action."""

    loss: int
    action: int


@dataclass(frozen=True)
class ScoreGap:
    """Rows on which a coordinate of model 1 is above (>) or below (<) model 2's by over alpha."""

    coordinate: int
    direction: Direction


Event = Disagreement | ActionRegion | ScoreGap

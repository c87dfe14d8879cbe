"""One row on its way through a log: what the models would do with it before and after a patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redcal_spark.core.events import Pair
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.patches import Patch


@dataclass(frozen=True)
class Standing:
    """What the models would do with the row under one loss.

    index, actions: per model. margins: per model, by how much it holds another model's action for
    dearer than its own, at most, in units of the loss rescaled to [0, 1]; one above alpha makes an
    event. expected: per model, what it expects the action of every model to cost, in the user's
    units. events: the pairs of models that the row is in an event of.
    """

    loss: str
    index: tuple[int, ...]
    actions: tuple[str, ...]
    margins: tuple[Fraction, ...]
    expected: tuple[tuple[Fraction, ...], ...]
    events: tuple[Pair, ...]

    @property
    def agree(self) -> bool:
        return len(set(self.index)) == 1

    @property
    def in_event(self) -> bool:
        return bool(self.events)

    def to_json(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "actions": list(self.actions),
            "index": list(self.index),
            "agree": self.agree,
            "in_event": self.in_event,
            "margins": [float(x) for x in self.margins],
            "expected_costs": [[float(x) for x in costs] for costs in self.expected],
        }


@dataclass(frozen=True)
class State:
    """The row at one time.

    scores: per model and class, as they were given until a patch came. grid: the same in units of
    2^-26, which decide. beyond: for Reconcile, the coordinates in which two models differ by more
    than alpha.
    """

    scores: tuple[tuple[float, ...], ...]
    grid: tuple[tuple[int, ...], ...]
    standings: tuple[Standing, ...]
    beyond: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "scores": [list(s) for s in self.scores],
            "losses": [s.to_json() for s in self.standings],
            "beyond_alpha": list(self.beyond),
        }


@dataclass(frozen=True)
class Step:
    """A patch that touched the row.

    correction: what the patch says of the model on the rows it was fitted on, on average and up to
    the rounding of phi, in the user's units. It is <phi, costs>: how much more than the model
    expected a1 cost against a2 (reconcile) or the action cost (calibrate); for `score`, how much
    more often than the model said the class came.
    """

    patch: Patch
    correction: Fraction
    before: State
    after: State


def correction(patch: Patch, losses: LossFamily) -> Fraction:
    """See `Step`."""
    if patch.loss is None:
        return Fraction(patch.phi[0], ONE)
    a, b = compared(patch)
    return product(losses[losses.place(patch.loss)], a, b, patch.phi)


def compared(patch: Patch) -> tuple[int, int | None]:
    """The actions whose costs a patch is about."""
    if patch.action is not None:
        return patch.action, None
    assert patch.a1 is not None
    return patch.a1, patch.a2


def product(loss: Loss, a: int, b: int | None, q: Sequence[int]) -> Fraction:
    """What action a costs (more than b) by grid values of all classes, in the user's units."""
    costs, unit = loss.whole_costs
    total = sum(c * x for c, x in zip(costs[a], q, strict=True))
    if b is not None:
        total -= sum(c * x for c, x in zip(costs[b], q, strict=True))
    return Fraction(total, unit * ONE)

"""Decisions: one action a row. Where the models agree it is theirs, elsewhere a rule says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.fixed_point import HALF, Grid, Mask
from redcal_spark.core.kernel import chunks
from redcal_spark.core.losses import Loss
from redcal_spark.core.responses import Actions
from redcal_spark.errors import UsageError
from redcal_spark.settings import setting

# off: no column. A number: that model's action. None: rows in dispute have no decision.
Tie = Literal["off", "cheaper"] | int | None


def tie_of(given: object, models: int, names: Sequence[str] | None) -> Tie:
    """The rule as users write it: models by their names, or as model_1, model_2."""
    called = names or [f"model_{i + 1}" for i in range(models)]
    if given is None or given == "off" or given == "cheaper":
        return given
    if given not in called:
        known = ", ".join(map(repr, ("off", *called, "cheaper", None)))
        raise UsageError(f"{setting('tie')}: must be one of {known}, got {given!r}")
    return called.index(given) + 1


def decisions(
    loss: Loss, scores: Sequence[Grid], actions: Sequence[Actions], valid: Mask, tie: Tie
) -> pa.Array:
    """The decision of every row, by name; null where there is none.

    scores, actions: after the patches, of every model.
    """
    first, *others = actions
    agreed = np.logical_and.reduce([first == other for other in others])
    chosen = np.array(actions[tie - 1] if isinstance(tie, int) else first, np.int32)
    known = valid & agreed if tie is None else valid
    if tie == "cheaper":
        dispute = np.flatnonzero(~agreed)
        chosen[dispute] = _cheapest(loss, scores, actions, dispute)
    mask = None if known.all() else ~known
    return pa.array(loss.actions, pa.string()).take(pa.array(chosen, mask=mask))


def _cheapest(
    loss: Loss, scores: Sequence[Grid], actions: Sequence[Actions], rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.int32]:
    """Of the models' actions the one that costs least by the mean of their scores.

    The first model's of equals. Exact: the difference of two costs is kept in two parts, for the
    scores of 16 models together do not fit int64.
    """
    chosen = actions[0][rows].astype(np.int32)
    for part in chunks(len(rows), 6 * loss.n_classes):
        here = rows[part]
        both = np.add.reduce([f[here].astype(np.int64) for f in scores])
        best = chosen[part]
        for own in actions[1:]:
            other = own[here].astype(np.int32)
            apart = loss.quantised[best] - loss.quantised[other]
            high, low = apart >> HALF, apart & (1 << HALF) - 1
            rest = (low * both).sum(axis=1)
            carried = (high * both).sum(axis=1) + (rest >> HALF)
            dearer = (carried > 0) | ((carried == 0) & (rest & (1 << HALF) - 1 > 0))
            best = np.where(dearer, other, best)
        chosen[part] = best
    return chosen

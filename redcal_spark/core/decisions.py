"""Decisions: one action a row. Where the models agree it is theirs, elsewhere a rule says."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.fixed_point import Grid, Mask
from redcal_spark.core.kernel import chunks
from redcal_spark.core.losses import Loss
from redcal_spark.core.responses import Actions
from redcal_spark.errors import UsageError
from redcal_spark.settings import setting

# off: no column. None: rows on which the models disagree have no decision.
Tie = Literal["off", "model_1", "model_2", "cheaper"] | None
RULES: tuple[object, ...] = (*get_args(get_args(Tie)[0]), None)


def check_tie(tie: object) -> None:
    if tie not in RULES:
        known = ", ".join(map(repr, RULES))
        raise UsageError(f"{setting('tie')}: must be one of {known}, got {tie!r}")


def decisions(
    loss: Loss, scores: list[Grid], actions: tuple[Actions, Actions], valid: Mask, tie: Tie
) -> pa.Array:
    """The decision of every row, by name; null where there is none.

    scores, actions: after the patches, of both models.
    """
    one, two = actions
    chosen, known = np.array(two if tie == "model_2" else one, np.int32), valid
    dispute = np.flatnonzero(one != two)
    if tie is None:
        known = valid & (one == two)
    elif tie == "cheaper":
        second = dispute[_second_is_cheaper(loss, scores, (one, two), dispute)]
        chosen[second] = two[second]
    mask = None if known.all() else ~known
    return pa.array(loss.actions, pa.string()).take(pa.array(chosen, mask=mask))


def _second_is_cheaper(
    loss: Loss, scores: list[Grid], actions: tuple[Actions, Actions], rows: npt.NDArray[np.intp]
) -> Mask:
    """Whether model 2's action costs less by the mean of both models' scores; not if it is level.

    Each model finds its own action at least as good, so that the two differences have opposite
    signs: their sum is exact in int64, as each of them is.
    """
    less = np.empty(len(rows), np.bool_)
    for part in chunks(len(rows), 4 * loss.n_classes):
        here = rows[part]
        costs = [loss.quantised[own[here].astype(np.intp)] for own in actions]
        both = scores[0][here].astype(np.int64) + scores[1][here]
        less[part] = ((costs[0] - costs[1]) * both).sum(axis=1) > 0
    return less

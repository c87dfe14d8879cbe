"""Algorithm 2, ReDCal: reconcile the largest disagreement, calibrate within it, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from redcal_spark.algorithms.decision_calibration import calibrate, calibrate_all
from redcal_spark.algorithms.engine import Engine
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.core.events import Disagreement, Pair, pairs_of
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.losses import Loss
from redcal_spark.core.parameters import Status
from redcal_spark.core.sums import Sums


def redcal(engine: Engine, run: Trajectory) -> Status:
    """Patch until no disagreement event has mass eta."""
    if not finish_last_round(engine, run):
        return "capped"
    while True:
        event, rows = largest(engine.disagreements(), pairs_of(engine.models))
        if not run.is_large(rows, engine.rows):
            return "converged"
        if run.out_of_rounds:
            return "capped"

        region = engine.freeze(event)
        sums = region.sums()
        model = more_wrong(sums, run.losses[event.loss], event)
        phi = run.rounded(sums.residual(model), rows)
        if not phi.any():
            return "stalled"
        if run.out_of_steps:
            return "capped"

        region.patch(patch := run.patch(event, model, rows, phi))
        bound = calibration_bound(sums, event, model, engine.rows, run)
        finished = calibrate(region, model, bound, run, patch.round)
        region.close()
        run.round_ended(patch)
        if not finished:
            return "capped"


def dc_then_redcal(engine: Engine, run: Trajectory) -> Status:
    """Decision Calibration of every model everywhere, then ReDCal."""
    if run.opened_by is None:
        engine.replay(run.patches)
        status = calibrate_all(engine, run)
        if status is not None:
            return status
    return redcal(engine, run)


def finish_last_round(engine: Engine, run: Trajectory) -> bool:
    """Go on from a log that may end inside a round. False if the steps ran out."""
    first = run.opened_by
    if first is None:
        return True
    region = engine.replay(run.patches)
    event = first.event(run.losses)
    assert region is not None and isinstance(event, Disagreement)
    bound = calibration_bound(region.sums(), event, first.model, engine.rows, run)
    finished = calibrate(region, first.model, bound, run, first.round)
    region.close()
    run.round_ended(first)
    return finished


def largest(counts: Sequence[Ints], pairs: Sequence[Pair]) -> tuple[Disagreement, int]:
    """The event with most rows; ties: lowest loss, then a1, then a2, then the first pair."""
    best, rows = Disagreement(0, 0, 1), 0
    for loss, count in enumerate(counts):
        in_order = np.moveaxis(count, 0, 2)  # a1 x a2 x pair
        a1, a2, pair = map(int, np.unravel_index(in_order.argmax(), in_order.shape))
        if count[pair, a1, a2] > rows:
            rows = int(count[pair, a1, a2])
            best = Disagreement(loss, a1, a2, pairs[pair])
    return best, rows


def more_wrong(sums: Sums, loss: Loss, event: Disagreement) -> int:
    """The model that misjudges the difference between the two actions most; ties: the first."""
    a1, a2 = loss.quantised[event.a1].tolist(), loss.quantised[event.a2].tolist()
    off = [
        abs(sum(r * (x - y) for r, x, y in zip(sums.residual(i).tolist(), a1, a2, strict=True)))
        for i in event.pair
    ]
    return event.pair[0] if off[0] >= off[1] else event.pair[1]


def calibration_bound(
    sums: Sums, event: Disagreement, model: int, all_rows: int, run: Trajectory
) -> int:
    """beta as a bound on squared residual norms; with adaptive_beta as large as safety allows.

    beta_t^2 = max(beta^2, delta_t^2 / (d K^2)): the loss that picked the event still cannot rise,
    for delta_t is what taking its best action on the whole event would gain.
    """
    bound = run.norm_bound(all_rows)
    if not run.parameters.adaptive_beta:
        return bound
    loss = run.losses[event.loss]
    y = sums.labels.tolist()
    costs = [sum(q * v for q, v in zip(row, y, strict=True)) for row in loss.quantised.tolist()]
    delta = Fraction(costs[event.action(model)] - min(costs), 1 << loss.bits)
    # delta_t * n * 2^26; n^2 2^52 cancels against the bound's
    return max(bound, int(delta**2 / (loss.n_classes * loss.n_actions**2) // 1))

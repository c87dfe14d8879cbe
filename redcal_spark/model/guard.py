"""The guard: how much of a log the holdout rows bear out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from redcal_spark.core.fixed_point import BITS
from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.patches import PatchLog
from redcal_spark.errors import UsageError
from redcal_spark.model.pair import ReconciledPair


def mean_loss(point: Point, losses: LossFamily) -> Fraction:
    """The mean over losses and both models of the decision loss, each rescaled to [0, 1]."""
    metrics = Metrics(point.totals, losses)
    total = Fraction(0)
    for place, loss in enumerate(losses.losses):
        scale = loss.scale
        if scale:
            least = min(cost for row in loss.exact_costs for cost in row)
            labels = sum(point.totals.optimum[losses.cells(place)].sum(axis=0).tolist())
            shift = least * Fraction(labels, point.totals.rows << BITS)
            for model in (1, 2):
                total += (metrics.decision_loss(place, model) - shift) / scale
    return total / (2 * len(losses)) if len(losses) else total


def best_prefix(points: Sequence[Point], losses: LossFamily) -> Point:
    """The point of lowest mean loss, the earliest on ties. Without losses: the last.

    points: of the holdout rows, at the ends of rounds and at steps of a calibration everywhere.
    """
    if not len(losses):
        return points[-1]
    return min(points, key=lambda point: mean_loss(point, losses))  # the first of equals


def cut(pair: ReconciledPair, steps: int) -> ReconciledPair:
    """The pair with the first patches of its log, as `cut`; all of them: the pair as it was."""
    if steps == len(pair.log):
        return pair
    if not 0 <= steps < len(pair.log):
        raise UsageError(f"cannot keep {steps} of {len(pair.log)} patches")
    after = pair.log[steps]
    if after.kind == "calibrate" and after.round is not None:
        raise UsageError(f"{steps} patches end inside round {after.round}, not at a round's end")
    return replace(pair, log=PatchLog(pair.log[:steps]), status="cut")


def warning(points: Sequence[Point], losses: LossFamily) -> str | None:
    """What to say if the last rounds made the holdout loss worse."""
    best, last = best_prefix(points, losses), points[-1]
    if best is last:
        return None
    low, high = (float(mean_loss(point, losses)) for point in (best, last))
    if low == high and mean_loss(best, losses) == mean_loss(last, losses):
        return None  # a tie: nothing was lost
    patches, rounds = last.steps - best.steps, last.rounds - best.rounds
    told = f"the last {patches:,} patches" if patches > 1 else "the last patch"
    if rounds:
        told += f" ({rounds:,} rounds)" if rounds > 1 else " (1 round)"
    return (
        f"{told} raised the mean loss on holdout rows from {low:.6g} to {high:.6g} (rescaled to "
        f"[0, 1]); reconcile.guard: best_prefix would keep the first {best.steps:,}"
    )

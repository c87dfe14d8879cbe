"""The guard: how much of a log the holdout rows bear out, and the certificate of what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from redcal_spark.backends.backend import Scan
from redcal_spark.certificate.certify import DELTA, Certificate, certify
from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.errors import RunError, UsageError
from redcal_spark.model.named_log import NamedLog
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.settings import setting

Guard = Literal["off", "report", "best_prefix"]
Histories = dict[str, list[Point]]


def mean_loss(point: Point, losses: LossFamily) -> Fraction:
    """The mean over losses and models of the decision loss, each rescaled to [0, 1]."""
    labels = point.totals.labels
    total = losses.rescaled_cost(labels)
    return total / (point.totals.rows * len(labels) * len(losses)) if len(losses) else total


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
    return replace(pair, log=NamedLog(pair.log[:steps]), status="cut")


def warning(points: Sequence[Point], losses: LossFamily) -> str | None:
    """What to say if the last rounds made the holdout loss worse."""
    best, last = best_prefix(points, losses), points[-1]
    if best is last:
        return None
    low, high = (float(mean_loss(point, losses)) for point in (best, last))
    if low == high and mean_loss(best, losses) == mean_loss(last, losses):
        return None  # a tie: nothing was lost
    patches, rounds = last.steps - best.steps, last.rounds - best.rounds
    ending = f"the last {patches:,} patches" if patches > 1 else "the last patch"
    if rounds:
        ending += f" ({rounds:,} rounds)" if rounds > 1 else " (1 round)"
    return (
        f"{ending} raised the mean loss on holdout rows from {low:.6g} to {high:.6g} (rescaled to "
        f"[0, 1]); {setting('guard', 'best_prefix')} would keep the first {best.steps:,}"
    )


def verdict(
    pair: ReconciledPair,
    histories: Mapping[str, list[Point]],
    guard: Guard,
    note: Callable[[str], Any],
    delta: Fraction = DELTA,
) -> tuple[ReconciledPair, Histories]:
    """The pair that is kept, with its certificate, and the history of it.

    Without holdout rows the guard has nothing to go by. Where it chooses, by the rows that certify,
    what these say must be true of every prefix that it could have chosen.
    """
    kept = dict(histories)
    candidates = 1
    holdout = kept.get("holdout")
    if holdout and guard == "best_prefix":
        known = {point.steps for point in kept["fit"]}  # both histories must know the sums there
        choice = [point for point in holdout if point.steps in known]
        last = best_prefix(choice, pair.losses).steps
        candidates = len(choice) if len(pair.losses) else 1
        pair = cut(pair, last)
        kept = {
            split: [point for point in points if point.steps <= last]
            for split, points in kept.items()
        }
    elif holdout and guard == "report" and (text := warning(holdout, pair.losses)) is not None:
        note(text)
    certificate = certify(
        pair, kept["fit"], kept.get("holdout", ()), delta=delta, candidates=candidates
    )
    if not certificate.sound:
        raise RunError(
            "\n  ".join(
                ["the run contradicts itself:", *failures(certificate, pair.columns.model_names)]
            )
        )
    return replace(pair, certificate=certificate), kept


def counted(scan: Scan, pair: ReconciledPair, histories: Histories) -> Histories:
    """The histories with what was moved by the patches that were kept: a pass, if some were not."""
    points = histories.get("holdout")
    if not points or not pair.log or points[-1].totals.touched:
        return histories
    last = scan.histories(pair, histories["fit"])["holdout"][-1].totals
    sums = {name: getattr(last, name) for name in ("touched", "moves", "move_labels")}
    end = replace(points[-1], totals=replace(points[-1].totals, **sums))
    return histories | {"holdout": [*points[:-1], end]}


def failures(certificate: Certificate, models: Sequence[str] | None = None) -> list[str]:
    """What is violated; models by their names, if they have any."""
    return [check.line(models) for check in certificate.violated]

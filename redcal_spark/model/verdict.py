"""The verdict on a fitted pair: what the guard keeps of it, and its certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from redcal_spark.certificate.certify import DELTA, Certificate, certify
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.errors import RunError
from redcal_spark.model.audit import audit
from redcal_spark.model.guard import best_prefix, cut, warning
from redcal_spark.model.pair import ReconciledPair

Guard = Literal["off", "report", "best_prefix"]
Histories = dict[str, list[Point]]


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
    found = dict(histories)
    candidates = 1
    holdout = found.get("holdout")
    if holdout and guard == "best_prefix":
        choice = _choice(found)
        kept = best_prefix(choice, pair.losses).steps
        candidates = len(choice) if len(pair.losses) else 1
        pair = cut(pair, kept)
        found = {split: _until(points, kept) for split, points in found.items()}
    elif holdout and guard == "report" and (told := warning(holdout, pair.losses)) is not None:
        note(told)
    certificate = certify(
        pair, found["fit"], found.get("holdout", ()), delta=delta, candidates=candidates
    )
    if not certificate.sound:
        raise RunError("\n  ".join(["the run contradicts itself:", *failures(certificate)]))
    return replace(pair, certificate=certificate), found


def _choice(histories: Histories) -> list[Point]:
    """The points to choose from: of both histories, so that both know the sums there."""
    known = {point.steps for point in histories["fit"]}
    return [point for point in histories["holdout"] if point.steps in known]


def _until(points: Sequence[Point], steps: int) -> list[Point]:
    return [point for point in points if point.steps <= steps]


def failures(certificate: Certificate) -> list[str]:
    return [check.line() for check in certificate.violated]


def audits(pair: ReconciledPair, histories: Histories) -> dict[str, Any]:
    """The audit of the first and of the last point, per split.

    Without its `pairs`: `rows` and `event_rows` say which there are, and what they cost is counted
    by `redcal audit` alone. At 50 actions they would be two thirds of it.
    """
    classes = pair.columns.classes

    def small(metrics: Metrics) -> dict[str, Any]:
        found = audit(metrics, classes)
        for loss in found["losses"]:
            del loss["pairs"], loss["costs_known"]
        return found

    return {
        split: {
            when: small(Metrics(point.totals, pair.losses))
            for when, point in (("before", points[0]), ("after", points[-1]))
        }
        for split, points in histories.items()
    }

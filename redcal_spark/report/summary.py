"""The summary: the few numbers that say what happened; templates/summary.html has the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redcal_spark.certificate import exact_numbers
from redcal_spark.certificate.check import Check
from redcal_spark.report.changes import (
    Change,
    apart,
    briers,
    costs,
    largest_class,
    largest_gap,
    loss_changes,
)
from redcal_spark.report.data import SPLITS, Report
from redcal_spark.report.markup import Html, name
from redcal_spark.report.numbers import typeset, whole
from redcal_spark.report.provenance import RELATIONS
from redcal_spark.runs.compare import PROCEDURES

OVERVIEW = 12  # losses in the table of all of them
FAILURES = 6  # promises that did not hold, before the certificate


def summary(report: Report) -> dict[str, Any]:
    """What the summary shows, by the names that its template has for it."""
    row, split, order = report.row, report.shown_split, report.by_disagreement
    changes = [loss_changes(report, split, loss) for loss in order[:OVERVIEW]]
    left_out = [(row.unlabelled_rows, "without a label"), (row.bad_rows, "unusable")]
    violated = () if report.certificate is None else report.certificate.violated
    return {
        "algorithm": report.parameters.algorithm,
        "algorithm_name": PROCEDURES[report.parameters.algorithm],
        "rows": whole(row.rows or report.rows("fit"), "rows"),
        "patches": whole(len(report.log), "patches"),
        "losses": whole(len(report.losses), "losses"),
        "row_counts": {s: whole(report.rows(s), s, "rows") for s in report.splits},
        "left_out": [(whole(count, why), why) for count, why in left_out if count],
        "worst": changes[0] if changes else None,
        "overview": changes if len(changes) > 1 else [],
        "rest": _rest(report, split),
        "briers": briers(report, split),
        "largest_gap": largest_gap(report, split),
        "largest_class": largest_class(report, split),
        "falls": _falls(report),
        "failures": [_failure(report, check) for check in violated[:FAILURES]],
        "worse": _worse(report) if "holdout" in report.audits else Worse([], [], 0),
    }


@dataclass(frozen=True)
class Rest:
    """The losses that the overview leaves out: their least and most disagreement after."""

    count: int
    least: Html
    most: Html


def _rest(report: Report, split: str) -> Rest | None:
    losses = report.by_disagreement[OVERVIEW:]
    if not losses:
        return None
    order = sorted(losses, key=lambda loss: (report.apart(split, "after", loss), loss))
    least, most = (apart(report, split, loss).after for loss in (order[0], order[-1]))
    return Rest(len(losses), least, most)


def _falls(report: Report) -> list[tuple[Html, str]]:
    """Per model, by how much its mean cost falls at least on new rows, where that is certified."""
    if report.certificate is None or not len(report.losses):
        return []
    worst = report.losses[report.by_disagreement[0]].name
    return [
        (
            name(report.models[(check.model or 1) - 1]),
            exact_numbers.at_least(check.interval.low),
        )
        for check in report.certificate.checks
        if (check.name, check.verdict, check.loss) == ("loss_fell", "holds", worst)
        and check.interval is not None
    ]


def _failure(report: Report, check: Check) -> dict[str, str]:
    """A promise that did not hold."""
    assert check.measured is not None
    of = [] if check.loss is None else [check.loss]
    of += [] if check.model is None else [report.models[check.model - 1]]
    return {
        "claim": check.claim,
        "measured": typeset(exact_numbers.shown(check.measured, check.scale)),
        "relation": RELATIONS[check.relation],
        "bound": typeset(exact_numbers.shown(check.bound, check.scale)),
        "of": ", ".join([*of, f"{SPLITS[check.split]} rows"]),
        "why": report.as_written(check.why),
    }


@dataclass(frozen=True)
class Worse:
    """What rose on the holdout rows: Brier scores by model, mean costs by model and loss."""

    briers: list[tuple[str, Change]]
    costs: list[tuple[str, str, Change]]
    of_costs: int


def _worse(report: Report) -> Worse:
    models = report.models
    scores = zip(models, briers(report, "holdout"), strict=True)
    spent = [
        (model, report.losses[loss].name, change)
        for loss in range(len(report.losses))
        for model, change in zip(models, costs(report, "holdout", loss), strict=True)
    ]
    return Worse(
        [(model, change) for model, change in scores if change.worse],
        [(model, loss, change) for model, loss, change in spent if change.worse],
        len(spent),
    )

"""The summary: the few numbers that say what happened; templates/summary.html has the words."""

from __future__ import annotations

from typing import Any

from redcal_spark.certificate import exact_numbers
from redcal_spark.core.number_text import plain
from redcal_spark.core.problem import FEW, MIXED_UP, below_equal
from redcal_spark.model.summary import counted
from redcal_spark.report.changes import apart, briers, costs, largest_class, largest_gap
from redcal_spark.report.data import Report
from redcal_spark.report.markup import Html, name
from redcal_spark.report.numbers import shown, whole
from redcal_spark.runs.compare import PROCEDURES

OVERVIEW = 12  # losses in the table of all of them
TIE = 1e-12  # means that are closer are the same, but for rounding
FAILURES = 6  # promises that did not hold, before the certificate


def summary(report: Report) -> dict[str, Any]:
    """What the summary shows, by the names that its template has for it."""
    row, split, order = report.row, report.shown_split, report.by_disagreement
    changes = [
        {
            "title": report.losses[loss].name,
            "apart": apart(report, split, loss),
            "costs": costs(report, split, loss),
        }
        for loss in order[:OVERVIEW]
    ]
    rest = (apart(report, split, loss) for loss in sorted(order[OVERVIEW:]))
    left_out = [(row.unlabelled_rows, "without a label"), (row.bad_rows, "unusable")]
    violated = () if report.certificate is None else report.certificate.violated
    given = report.config["input"]
    return {
        "algorithm_name": PROCEDURES[report.parameters.algorithm],
        "rows": whole(row.rows or _counted(report, "fit"), "rows"),
        "patches": whole(len(report.log), "patches"),
        "losses": whole(len(report.losses), "losses"),
        "row_counts": {s: _rows(report, s) for s in report.splits},
        "weighed": _weighed(report),
        "left_out": [(whole(count, why), why) for count, why in left_out if count],
        "worst": changes[0] if changes else None,
        "overview": changes if len(changes) > 1 else [],
        "rest": sorted(rest, key=lambda change: change.values[1]),
        "briers": briers(report, split),
        "largest_gap": largest_gap(report, split),
        "largest_class": largest_class(report, split),
        "weight": None if report.weights is None else given.get("weight"),
        "weight_unit": plain(given.get("weight_unit") or 1),
        "falls": _falls(report),
        "failures": violated[:FAILURES],
        "worse": _worse(report),
        "chose": "holdout" in report.audits
        and report.config["reconcile"].get("guard") == "best_prefix",
        "zero_calibrations": report.zero_calibrations,
        "raised": _raised(report),
        "mixed_up": _mixed_up(report),
        "mixed_up_words": MIXED_UP,
    }


def _counted(report: Report, split: str) -> int:
    return counted(report.audits[split]["before"])


def _rows(report: Report, split: str) -> Html:
    """The rows of a split themselves; with weights, beside what they count as."""
    path = (split, "rows" if report.weights is None else "counted")
    return whole(_counted(report, split), *path)


def _weighed(report: Report) -> dict[str, Html]:
    """Per split the sum of its weights, as the user has them; nothing without weights."""
    splits = [] if report.weights is None else report.splits
    return {split: report.counted(report.rows(split), split, "rows") for split in splits}


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


def _mixed_up(report: Report) -> list[str]:
    """The models that are worse than equal scores, on the rows of which the run warned, too."""
    audit = report.audits.get("fit", report.audits[report.shown_split])["before"]
    if counted(audit) < FEW:
        return []
    sums = [int(total) for total in audit["brier_sums"]]
    return [report.models[i] for i in below_equal(sums, audit["rows"], report.n_classes)]


def _raised(report: Report) -> dict[str, Any] | None:
    """Whether patches at the end made the holdout loss worse: what the guard warns of."""
    losses = report.holdout_losses
    if not losses:
        return None
    least, last = min(losses.values()), max(losses)
    best = min(step for step, loss in losses.items() if loss - least <= TIE)  # as the guard has it
    if losses[last] - least <= TIE:
        return None
    before, after = (
        shown(f"{losses[step]:.6g}", losses[step], "holdout/mean_cost/step", step)
        for step in (best, last)
    )
    return {"patches": last - best, "kept": best, "before": before, "after": after}


def _worse(report: Report) -> dict[str, Any]:
    """What rose on the holdout rows: Brier scores by model, mean costs by model and loss."""
    if "holdout" not in report.audits:
        return {"briers": [], "costs": [], "of_costs": 0}
    models = report.models
    scores = zip(models, briers(report, "holdout"), strict=True)
    spent = [
        (model, report.losses[loss].name, change)
        for loss in range(len(report.losses))
        for model, change in zip(models, costs(report, "holdout", loss), strict=True)
    ]
    return {
        "briers": [(model, change) for model, change in scores if change.worse],
        "costs": [(model, loss, change) for model, loss, change in spent if change.worse],
        "of_costs": len(spent),
    }

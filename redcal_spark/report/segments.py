"""Who pays: the segments whose cost rose most, first."""

from __future__ import annotations

from typing import Any

from redcal_spark.core.number_text import cost_texts, share_text, weight_text
from redcal_spark.report.data import Report
from redcal_spark.report.markup import name

LINES = 25  # segments of a column and loss that are shown


def payers(report: Report) -> list[dict[str, Any]]:
    """Per segment column and loss a table: the segments by what they pay more, by model."""
    split = report.shown_split
    before, after = (report.audits[split][when].get("segments") for when in ("before", "after"))
    if not before or not after:
        return []
    columns = list(dict.fromkeys(line["segment"] for line in before))
    tables = []
    for column in columns:
        both = [
            (old, new) for old, new in zip(before, after, strict=True) if old["segment"] == column
        ]
        for place in report.shown_losses:
            lines = [_line(report, old, new, place) for old, new in both]
            lines.sort(key=lambda line: -line["worst"])
            tables.append(
                {
                    "column": name(column),
                    "loss": name(report.losses[place].name),
                    "lines": lines[:LINES],
                    "left_out": max(0, len(lines) - LINES),
                    "intervals": "change" in after[0]["losses"][place],
                }
            )
    return tables


def _line(report: Report, old: Any, new: Any, place: int) -> dict[str, Any]:
    one, two = old["losses"][place], new["losses"][place]
    costs = zip(one["decision_loss"], two["decision_loss"], strict=True)
    changes = two.get("change") or [
        {"value": after - before, "low": None, "high": None} for before, after in costs
    ]
    shown = {"null": "(null)", "other": "(other)"}.get(new["kind"]) or name(new["value"])
    models = []
    for number, change in enumerate(changes):
        before, after = one["decision_loss"][number], two["decision_loss"][number]
        numbers = [before, after, *(x for x in change.values() if x is not None)]
        first, last, value, *ends = cost_texts(numbers)
        models.append(
            {
                "before": first,
                "after": last,
                "change": value if value.startswith("-") else f"+{value}",
                "ends": " to ".join(ends),
                "rose": change["value"] > 0,
                "changed": share_text(two["changed"][number]),
            }
        )
    return {
        "value": shown,
        "rows": weight_text(new["rows"], report.unit),
        "apart": (share_text(one["disagreement"]), share_text(two["disagreement"])),
        "models": models,
        "worst": max(change["value"] for change in changes),
    }

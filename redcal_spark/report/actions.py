"""By action: where the models disagree, how far they are calibrated, what their choices cost.

Here is what is shown, and in which order; the templates have the tables and the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redcal_spark.core.number_text import decimal_text, digits_for
from redcal_spark.report.changes import apart, costs
from redcal_spark.report.charts import gap_row
from redcal_spark.report.data import SPLITS, STYLES, WHENS, Report
from redcal_spark.report.markup import Html
from redcal_spark.report.numbers import typeset

ACTIONS = 8  # of a loss, in a chart
EVENTS = 8  # to fix, in a list


# --- heat maps ------------------------------------------------------------------------------------


def heat_maps(
    report: Report, loss: int, split: str, whens: Sequence[str] = WHENS
) -> list[dict[str, Any]]:
    """Rows of a split by the actions of both models, before and after in colours of one scale."""
    kept = _kept_pairs(report, loss, split)
    matrices = [_folded(report.audit(split, when, loss)["rows"], kept) for when in whens]
    top = max(
        (
            count
            for matrix in matrices
            for a1, line in enumerate(matrix)
            for a2, count in enumerate(line)
            if a1 != a2
        ),
        default=0,
    )
    return [
        {
            "caption": f"{when.capitalize()}, {SPLITS[split]} rows",
            "disagreement": getattr(apart(report, split, loss), when),
            "of": (split, report.losses[loss].name, when, "pair"),
            "rows": report.rows(split),
            "actions": [report.actions[loss][a] for a in kept],
            "keys": [*kept, "others"],
            "others": len(report.actions[loss]) - len(kept),
            "matrix": matrix,
            "top": top,
        }
        for when, matrix in zip(whens, matrices, strict=True)
    ]


def cell_share(count: int, n: int) -> str:
    """A share for a small cell."""
    percent = 100 * count / n
    if not count:
        return "·"
    if percent < 0.05:
        return "<.1"
    return f"{percent:.1f}"


def _kept_pairs(report: Report, loss: int, split: str) -> list[int]:
    """The actions on which the models disagree most before, in their order."""
    matrix = report.audit(split, "before", loss)["rows"]
    k = len(matrix)
    if k <= ACTIONS + 1:  # one that is left out would take the place of "others"
        return list(range(k))
    differ = [sum(matrix[a]) + sum(line[a] for line in matrix) - 2 * matrix[a][a] for a in range(k)]
    return sorted(sorted(range(k), key=lambda a: (-differ[a], a))[:ACTIONS])


def _folded(matrix: Sequence[Sequence[int]], kept: Sequence[int]) -> list[list[int]]:
    """The matrix of the kept actions, with all others as one more."""
    if len(kept) == len(matrix):
        return [list(line) for line in matrix]
    place = {a: i for i, a in enumerate(kept)}
    size = len(kept) + 1
    folded = [[0] * size for _ in range(size)]
    for a1, line in enumerate(matrix):
        for a2, count in enumerate(line):
            folded[place.get(a1, size - 1)][place.get(a2, size - 1)] += count
    return folded


# --- calibration gaps -----------------------------------------------------------------------------


def gaps(report: Report, loss: int, split: str) -> dict[str, Any]:
    """Per action and model what its gap was and is, largest first; `more`: actions left out.

    An interval is of the gap's expectation given the scores. Scores that were fitted to the very
    labels have none.
    """
    audits = [report.audit(split, when, loss) for when in WHENS]
    pairs = list(zip(*(audit["calibration"] for audit in audits), strict=True))
    worst: dict[int, float] = {}
    for pair in pairs:
        action = pair[0]["action"]
        worst[action] = max(worst.get(action, 0.0), *(cell["gap"] for cell in pair))
    kept = sorted(worst, key=lambda a: (-worst[a], a))[:ACTIONS]
    drawn = [pair for pair in pairs if pair[0]["action"] in kept]
    # after the fit, the fitting rows are no sample any more; nor are those that the guard chose by
    chosen = report.certificate is not None and report.certificate.candidates > 1
    return {
        "pairs": sorted(drawn, key=lambda p: (kept.index(p[0]["action"]), p[0]["model"])),
        "fresh": split == "holdout" and not chosen,
        "top": max((cell["high"] for pair in drawn for cell in pair), default=1.0),
        "limit": report.resolved.beta if report.parameters.calibrates_everywhere else None,
        "more": len(worst) - len(kept),
    }


def gap_chart(
    gaps: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], whose: str
) -> Html:
    """A line of the chart of gaps, and the same in words."""
    now = _gap_text(after) if gaps["fresh"] else typeset(decimal_text(after["gap"], 4))
    words = f"{whose}: gap {_gap_text(before)} before, {now} after"
    limit = None if gaps["limit"] is None else float(gaps["limit"])
    style, top = STYLES[before["model"]], gaps["top"]
    return gap_row(before, after, style, words, top, fresh=gaps["fresh"], limit=limit)


def _gap_text(cell: Mapping[str, Any]) -> str:
    return f"{cell['gap']:.4f} ({cell['low']:.3f} to {cell['high']:.3f})"


# --- cost by action -------------------------------------------------------------------------------


def cost_charts(report: Report, loss: int, split: str) -> dict[str, Any]:
    """Per model, where its mean cost comes from: the dearest actions."""
    audits = [report.audit(split, when, loss) for when in WHENS]
    cells = list(zip(*(audit["by_action"] for audit in audits), strict=True))
    charts = []
    for model, total in enumerate(costs(report, split, loss), 1):
        own = [pair for pair in cells if pair[0]["model"] == model]
        dearest = sorted(own, key=lambda p: (-max(abs(c["cost"]) for c in p), p[0]["action"]))
        kept = dearest[:ACTIONS] if len(own) > ACTIONS + 1 else dearest
        pairs = sorted(kept, key=lambda p: p[0]["action"])
        charts.append({"pairs": pairs, "left_out": len(own) - len(kept), "total": total})
    return {
        "size": max((abs(cell["cost"]) for pair in cells for cell in pair), default=0.0),
        "digits": digits_for(cost for audit in audits for cost in audit["decision_loss"]),
        "charts": charts,
    }

"""By action: where the models disagree, how far they are calibrated, what their choices cost.

Here is what is shown, and in which order; the templates have the tables and the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from redcal_spark.core.events import Pair
from redcal_spark.core.number_text import decimal_text, digits_for
from redcal_spark.core.splits import SPLITS
from redcal_spark.report.changes import apart, costs
from redcal_spark.report.charts import gap_row
from redcal_spark.report.data import STYLES, WHENS, Report
from redcal_spark.report.markup import Html, name
from redcal_spark.report.numbers import share, typeset

ACTIONS = 8  # of a loss, in a chart
EVENTS = 8  # to fix, in a list


# --- heat maps ------------------------------------------------------------------------------------


def heat_maps(
    report: Report, loss: int, split: str, whens: Sequence[str] = WHENS
) -> list[dict[str, Any]]:
    """Rows of a split by the actions of two models, before and after in colours of one scale.

    Of more than two models those that disagree most.
    """
    pair = report.worst_pair(loss)
    kept = _kept_pairs(report, loss, split, pair)
    of_pair = [report.pair_audit(split, when, loss, pair) for when in whens]
    matrices = [_folded(audit["rows"], kept) for audit in of_pair]
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
            "disagreement": _disagreement(report, split, loss, when, pair),
            "models": [(name(report.models[i - 1]), STYLES[i]) for i in pair],
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


def _disagreement(report: Report, split: str, loss: int, when: str, pair: Pair) -> Html:
    """The share of rows on which the two decide differently."""
    if len(report.pairs) == 1:
        shown: Html = getattr(apart(report, split, loss), when)
        return shown
    rows = report.pair_audit(split, when, loss, pair)["disagreement_rows"]
    of = (split, report.losses[loss].name, "disagreement", *pair, when)
    return share(Fraction(rows, report.rows(split)), *of)


def pair_matrix(report: Report, loss: int, split: str) -> dict[str, Any] | None:
    """Of more than two models: on which share of rows every two of them decide differently."""
    if len(report.pairs) == 1:
        return None

    def shown(pair: Pair, when: str) -> Html:
        return _disagreement(report, split, loss, when, pair)

    names = [(name(model), STYLES[i]) for i, model in enumerate(report.models, 1)]
    lines = [
        (
            names[i - 1],
            [
                {when: shown((i, j), when) for when in WHENS} if j > i else None
                for j in report.numbers[1:]
            ],
        )
        for i in report.numbers[:-1]
    ]
    return {"heads": names[1:], "lines": lines}


def cell_share(count: int, n: int) -> str:
    """A share for a small cell."""
    percent = 100 * count / n
    if not count:
        return "·"
    if percent < 0.05:
        return "<.1"
    return f"{percent:.1f}"


def _kept_pairs(report: Report, loss: int, split: str, pair: Pair) -> list[int]:
    """The actions on which two models disagree most before, in their order."""
    matrix = report.pair_audit(split, "before", loss, pair)["rows"]
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

"""Step by step: the scores and losses after every round, and the patches in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from redcal_spark.core.number_text import (
    decimal_text,
    digits_for,
    plural,
    share_text,
    weight_text,
)
from redcal_spark.core.patches import Patch
from redcal_spark.core.splits import SPLITS
from redcal_spark.report.charts import Bar, Line, Point, line_chart, timeline
from redcal_spark.report.data import STYLES, Report
from redcal_spark.report.markup import Html, joined, name
from redcal_spark.report.numbers import decimal, share, typeset, whole

NUMBERS = 16  # points of a chart in the table behind it
ROUNDS = 12  # in the table of rounds

Key = tuple[str, int]  # of a line: its split and its model
Points = Sequence[Point]


def brier(report: Report) -> dict[str, Any]:
    """Brier score per step: both splits, every model."""
    first = report.shown_losses[0] if report.shown_losses else None  # the same whatever the loss
    lines = _lines(report, first, lambda p: p["brier"] / 2 if report.binary else p["brier"])
    title = f"Brier score ({report.brier_words})"
    return _figures(report, Html(title), title, "brier", lines, 4)


def loss_gap(report: Report, loss: int) -> dict[str, Any]:
    """What the decisions cost above those that know the outcome, per step."""
    name = report.losses[loss].name
    lines = _lines(report, loss, itemgetter("loss_gap"))
    digits = digits_for(v for points in lines.values() for _, v in points)
    heading, words = _heading(report, "Decision loss gap", name), f"Decision loss gap of {name}"
    return _figures(report, heading, words, f"{name}/loss_gap", lines, digits)


def disagreement(report: Report, loss: int) -> dict[str, Any]:
    """The share of rows with different decisions, per step, on both splits."""
    name, title = report.losses[loss].name, "Rows with different decisions"
    lines = _lines(report, loss, lambda p: p["disagreement_rows"] / p["rows"], models=(1,))
    heading = _heading(report, title, name)
    return _figures(report, heading, f"{title}, {name}", f"{name}/disagreement", lines)


def apart(report: Report) -> dict[str, Any]:
    """For Reconcile: the largest share of rows beyond alpha in one class, per step."""
    lines = _lines(report, None, itemgetter("largest_event"), models=(1,))
    words = "Rows whose scores are apart, in the worst class"
    return _figures(report, Html("Scores apart, worst class"), words, "apart", lines)


def _heading(report: Report, title: str, loss: str) -> Html:
    return joined(title, " for ", name(loss)) if len(report.losses) > 1 else Html(title)


def _lines(
    report: Report,
    loss: int | None,
    value: Callable[[dict[str, Any]], float],
    models: Sequence[int] | None = None,
) -> dict[Key, Points]:
    return {
        (split, model): [(p["step"], value(p)) for p in report.points.get((split, loss, model), [])]
        for split in report.splits
        for model in models or report.numbers
    }


def _figures(
    report: Report,
    title: Html,
    words: str,
    of: str,
    lines: Mapping[Key, Points],
    digits: int | None = None,
) -> dict[str, Any]:
    """Charts beside each other, and the numbers behind them.

    digits: of the numbers of every model, a chart per split. Without, they are shares of rows,
    whichever model: one chart, a line per split.
    """
    by_model, bounds = digits is not None, _bounds(lines.values(), zero=digits is None)

    def text(value: float) -> str:
        return typeset(share_text(value) if digits is None else decimal_text(value, digits))

    def cell(value: float, split: str, model: int, step: int) -> Html:
        if digits is None:
            return share(value, split, of, "step", step)
        return decimal(value, digits, split, of, model, "step", step)

    def chart(words: str, drawn: list[Line]) -> Html:
        label = _words(words, drawn, text)
        return line_chart(drawn, label, text, bounds=bounds, percent=not by_model)

    if by_model:
        figures = [
            (
                f"{SPLITS[split].capitalize()} rows",
                chart(
                    f"{words} on the {SPLITS[split]} rows",
                    [
                        Line(report.models[m - 1], STYLES[m], lines[split, m])
                        for m in report.numbers
                    ],
                ),
            )
            for split in report.splits
        ]
        headings = [joined(f"{SPLITS[s]}, ", name(report.models[m - 1])) for s, m in lines]
    else:
        drawn = [Line(f"{SPLITS[s]} rows", s, points) for (s, _), points in lines.items()]
        figures = [("", chart(words, drawn))]
        headings = [Html(SPLITS[s]) for s, _ in lines]
    numbers, left_out = _numbers(lines, cell)
    return {
        "title": title,
        "figures": figures,
        "headings": ["patches", *headings],
        "numbers": numbers,
        "left_out": left_out,
        "by_model": by_model,
    }


def _numbers(
    lines: Mapping[Key, Points], cell: Callable[..., Html]
) -> tuple[list[list[Html]], int]:
    """The points of all lines as a table, first and last and evenly between; how many are not.

    cell: a number as it is shown, from its value, the line's key and the step.
    """
    steps = sorted({step for points in lines.values() for step, _ in points})
    values = {key: dict(points) for key, points in lines.items()}
    count = min(NUMBERS, len(steps))
    chosen = sorted({steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)})
    table = [
        [
            whole(step),
            *(
                cell(known[step], *key, step) if step in known else Html("")
                for key, known in values.items()
            ),
        ]
        for step in chosen
    ]
    return table, len(steps) - len(chosen)


def _bounds(lines: Iterable[Points], zero: bool) -> tuple[float, float]:
    values = [value for points in lines for _, value in points] or [0.0]
    low, high = (0.0 if zero else min(values)), max(values)
    if low == high:
        room = abs(high) * 0.05 or 1.0
        return (low, high + room) if zero else (low - room, high + room)
    room = (high - low) * 0.08
    return (0.0 if zero else low - room), high + room


def _words(title: str, lines: Sequence[Line], text: Callable[[float], str]) -> str:
    """A line chart in words."""
    parts = []
    for line in lines:
        if line.points:
            (_, first), (last, value) = line.points[0], line.points[-1]
            patches = plural(last, "patch", "patches")
            parts.append(f"{line.name} from {text(first)} to {text(value)} in {patches}")
    return f"{title}: {'; '.join(parts)}" if parts else f"{title}: no points"


# --- patches --------------------------------------------------------------------------------------


def patch_timeline(report: Report) -> Html | None:
    """Every patch in its order; None without patches."""
    if not report.log:
        return None
    bars = [
        Bar(patch.step, patch.model, patch.kind != "calibrate", patch.rows) for patch in report.log
    ]
    patched = [patch.model for patch in report.log]
    each = [f"{patched.count(i):,} of {model}" for i, model in enumerate(report.models, 1)]
    largest = max(report.log, key=lambda patch: patch.rows)
    label = (
        f"{plural(len(bars), 'patch', 'patches')} in order, {', '.join(each[:-1])} and {each[-1]}; "
        f"the largest, number {largest.step:,}, on {weight_text(largest.rows, report.unit)} rows"
    )
    return timeline(bars, label, report.rows("fit"), models=len(report.models))


def rounds(report: Report) -> tuple[list[list[Patch]], int]:
    """The rounds with the most rows, in their order, and how many are left out.

    A calibration everywhere counts as a round of its model.
    """

    def key(patch: Patch) -> tuple[int | None, int | None]:
        return patch.round, patch.model if patch.round is None else None

    groups = [list(group) for _, group in groupby(report.log, key)]
    order = sorted(range(len(groups)), key=lambda i: (-groups[i][0].rows, i))
    kept = sorted(order[:ROUNDS])
    return [groups[i] for i in kept], len(groups) - len(kept)


def largest_phi(patches: Sequence[Patch]) -> int:
    return max((x for patch in patches for x in patch.phi), key=abs)

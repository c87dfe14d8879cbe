"""Step by step: the scores and losses after every round, and the patches in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redcal_spark.core.number_text import decimal_text, digits_for, plural, share_text
from redcal_spark.core.patches import Patch
from redcal_spark.report.charts import Bar, Line, Point, line_chart, timeline
from redcal_spark.report.data import SPLITS, STYLES, Report
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import decimal, share, shown, typeset, whole

NUMBERS = 16  # points of a chart in the table behind it
ROUNDS = 12  # in the table of rounds

Key = tuple[Any, ...]  # of a line: its split, and its model if it has one
Points = Sequence[Point]


@dataclass(frozen=True)
class Figure:
    title: Html
    chart: Html


@dataclass(frozen=True)
class Figures:
    """Charts beside each other, and the numbers behind them."""

    title: Html
    figures: Sequence[Figure]
    headings: Sequence[Html]
    numbers: Sequence[Sequence[Html]]
    left_out: int
    by_model: bool  # else the lines are the splits


def brier(report: Report) -> Figures:
    """Brier score per step: both splits, both models."""
    lines = {
        (split, model): [
            (p["step"], p["brier"] / 2 if report.binary else p["brier"])
            for p in report.brier_points(split, model)
        ]
        for split in report.splits
        for model in (1, 2)
    }
    title = f"Brier score ({report.brier_words})"
    return _by_model(report, Html(title), title, "brier", lines, 4)


def loss_gap(report: Report, loss: int) -> Figures:
    """What the decisions cost above those that know the outcome, per step."""
    title = report.losses[loss].name
    lines = {
        (split, model): [
            (p["step"], p["loss_gap"]) for p in report.points.get((split, loss, model), [])
        ]
        for split in report.splits
        for model in (1, 2)
    }
    digits = digits_for(v for points in lines.values() for _, v in points)
    several = joined(" for ", name(title)) if len(report.losses) > 1 else Html("")
    heading = joined("Decision loss gap", several)
    return _by_model(
        report, heading, f"Decision loss gap of {title}", f"{title}/loss_gap", lines, digits
    )


def disagreement(report: Report, loss: int) -> Figures:
    """The share of rows with different decisions, per step, on both splits."""
    title = report.losses[loss].name
    lines = {
        (split,): [
            (p["step"], p["disagreement_rows"] / p["rows"])
            for p in report.points.get((split, loss, 1), [])
        ]
        for split in report.splits
    }
    several = joined(" for ", name(title)) if len(report.losses) > 1 else Html("")
    heading = joined("Rows with different decisions", several)
    words = f"Rows with different decisions, {title}"
    return _by_split(heading, words, f"{title}/disagreement", lines)


def apart(report: Report) -> Figures:
    """For Reconcile: the largest share of rows beyond alpha in one class, per step."""
    lines = {
        (split,): [(p["step"], p["largest_event"]) for p in report.brier_points(split, 1)]
        for split in report.splits
    }
    words = "Rows whose scores are apart, in the worst class"
    return _by_split(Html("Scores apart, worst class"), words, "apart", lines)


def _by_split(title: Html, words: str, of: str, lines: Mapping[Key, Points]) -> Figures:
    """One chart, a line per split."""
    drawn = [Line(f"{SPLITS[split]} rows", split, points) for (split,), points in lines.items()]

    def text(value: float) -> str:
        return typeset(share_text(value))

    label, bounds = _words(words, drawn, text), _bounds(lines.values(), zero=True)
    chart = line_chart(drawn, label, text, bounds=bounds, percent=True)
    table, left_out = _numbers(lines, lambda value, *place: share(value, place[0], of, *place[1:]))
    headings = [Html("patches"), *(Html(SPLITS[split]) for (split,) in lines)]
    return Figures(title, [Figure(Html(""), chart)], headings, table, left_out, by_model=False)


def _by_model(
    report: Report,
    title: Html,
    words: str,
    of: str,
    lines: Mapping[Key, Points],
    digits: int,
) -> Figures:
    bounds = _bounds(lines.values())

    def text(value: float) -> str:
        return typeset(decimal_text(value, digits))

    figures = []
    for split in report.splits:
        drawn = [
            Line(report.models[model - 1], STYLES[model], lines[split, model]) for model in (1, 2)
        ]
        label = _words(f"{words} on the {SPLITS[split]} rows", drawn, text)
        heading = Html(f"{SPLITS[split].capitalize()} rows")
        figures.append(Figure(heading, line_chart(drawn, label, text, bounds=bounds)))
    table, left_out = _numbers(
        lines, lambda value, *place: decimal(value, digits, place[0], of, *place[1:])
    )
    headings = [
        Html("patches"),
        *(joined(f"{SPLITS[split]}, ", name(report.models[m - 1])) for split, m in lines),
    ]
    return Figures(title, figures, headings, table, left_out, by_model=True)


def _numbers(
    lines: Mapping[Key, Points], cell: Callable[..., Html]
) -> tuple[list[list[Html]], int]:
    """The points of all lines as a table, first and last and evenly between; how many are not.

    cell: a number as it is shown, from its value, the line's key, "step" and the step.
    """
    steps = sorted({step for points in lines.values() for step, _ in points})
    values = {key: dict(points) for key, points in lines.items()}
    count = min(NUMBERS, len(steps))
    chosen = sorted({steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)})
    table = [
        [
            whole(step),
            *(
                cell(known[step], *key, "step", step) if step in known else Html("")
                for key, known in values.items()
            ),
        ]
        for step in chosen
    ]
    return table, len(steps) - len(chosen)


def _bounds(lines: Iterable[Points], zero: bool = False) -> tuple[float, float]:
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
    per_model = [sum(patch.model == model for patch in report.log) for model in (1, 2)]
    largest = max(report.log, key=lambda patch: patch.rows)
    label = (
        f"{plural(len(bars), 'patch', 'patches')} in order, {per_model[0]:,} of "
        f"{report.models[0]} and {per_model[1]:,} of {report.models[1]}; the largest, number "
        f"{largest.step:,}, on {largest.rows:,} rows"
    )
    return timeline(bars, label, report.rows("fit"))


@dataclass(frozen=True)
class Round:
    """A round, or a calibration everywhere, as a line of a table."""

    number: str
    where: Html
    model: Html
    style: str
    rows: Html
    patches: Html
    largest: Html


def rounds(report: Report) -> tuple[list[Round], int]:
    """The rounds with the most rows, in their order, and how many are left out."""
    groups: list[list[Patch]] = []
    for patch in report.log:
        last = groups[-1][-1] if groups else None
        same = last is not None and (
            last.round == patch.round and (patch.round is not None or last.model == patch.model)
        )
        if same:
            groups[-1].append(patch)
        else:
            groups.append([patch])
    order = sorted(range(len(groups)), key=lambda i: (-groups[i][0].rows, i))
    kept = sorted(order[:ROUNDS])
    return [_round(report, groups[i]) for i in kept], len(groups) - len(kept)


def _round(report: Report, group: Sequence[Patch]) -> Round:
    first = group[0]
    key = ("round", "all" if first.round is None else first.round, first.model)
    rows = whole(first.rows, *key, "rows")
    if first.round is None:
        where: Html = Html("everywhere")
        rows = whole(max(patch.rows for patch in group), *key, "rows")
    elif first.coordinate is not None:
        where = joined(name(report.where(first)[0]), f": 1 {first.direction} 2")
    else:
        one, two = report.where(first)
        several = joined(name(str(first.loss)), ": ") if len(report.losses) > 1 else Html("")
        where = joined(
            *(several, tag("span", name(one), class_="one"), " / "),
            tag("span", name(two), class_="two"),
        )
    largest = max((x for patch in group for x in patch.phi), key=abs)
    moved = Fraction(largest, 1 << 26)
    return Round(
        "–" if first.round is None else f"{first.round:,}",
        where,
        name(report.models[first.model - 1]),
        STYLES[first.model],
        rows,
        whole(len(group), *key, "patches"),
        shown(f"{float(moved):+.4f}", moved, *key, "largest"),
    )

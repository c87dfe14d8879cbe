"""Charts as SVG: as wide as their place, lines and texts of the same size at any width.

What stretches with the page is drawn in a box of 1000 x 1000; texts, dots and grid lines stand at
percentages. Colours come from the page's style, so that they follow light, dark and print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redcal_spark.report.data import STYLES
from redcal_spark.report.markup import Html, joined, tag
from redcal_spark.report.numbers import tick_texts, ticks

BOX = 1000
POINTS = 240  # of a line; more would not be seen
DOTS = 48  # up to so many points are marked one by one
BARS = 360  # of the timeline

Point = tuple[int, float]


@dataclass(frozen=True)
class Line:
    """One series: its name, the class that colours it, and its points by step."""

    name: str
    style: str
    points: Sequence[Point]


def thinned(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """At most so many points: first, last, and of every stretch between the least and largest."""
    if len(points) <= most:
        return list(points)
    kept = {0, len(points) - 1}
    parts = (most - 2) // 2
    for part in range(parts):
        start, stop = (1 + (len(points) - 2) * k // parts for k in (part, part + 1))
        stretch = range(start, stop)
        kept.add(min(stretch, key=lambda i: points[i][1]))
        kept.add(max(stretch, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def line_chart(
    lines: Sequence[Line],
    label: str,
    value: Callable[[float], str],
    *,
    bounds: tuple[float, float],
    percent: bool = False,
    height: int = 190,
) -> Html:
    """Values by step. bounds: of the values, shared by charts that are to be compared."""
    low, high = bounds
    last = max((step for line in lines for step, _ in line.points), default=0)

    def x(step: float) -> float:
        return 100 * step / last if last else 0.0

    def y(v: float) -> float:
        return 100 * (high - v) / (high - low)

    marks = ticks(low, high)
    grid = [
        joined(
            tag("line", x1="0", x2="100%", y1=_percent(y(v)), y2=_percent(y(v)), class_="grid"),
            tag("text", text, x="-8", y=_percent(y(v)), dy=".32em", class_="tick end"),
        )
        for v, text in zip(marks, tick_texts(marks, percent), strict=True)
    ]
    drawn, dots = [], []
    for line in lines:
        points = thinned(line.points)
        path = " ".join(f"{short(x(s) * 10)},{short(y(v) * 10)}" for s, v in points)
        if len(points) > 1:
            drawn.append(tag("path", d=f"M{path}", class_=f"series {line.style}"))
        marked = points if len(points) <= DOTS else [points[0], points[-1]]
        for step, v in marked:
            words = tag("title", f"{line.name}, after {step:,} patches: {value(v)}")
            place = {"cx": _percent(x(step)), "cy": _percent(y(v))}
            if step in (points[0][0], points[-1][0]):
                dots.append(tag("circle", words, **place, r=4, class_=f"dot {line.style}"))
            else:
                dots.append(tag("circle", words, **place, r=2.2, class_=f"point {line.style}"))
    ends = [(line, y(line.points[-1][1])) for line in lines if line.points]
    for (line, _), at in zip(ends, _spread([at for _, at in ends], 1400 / height), strict=True):
        text = value(line.points[-1][1])
        style = f"value {line.style}"
        dots.append(tag("text", text, x="100%", dx=9, y=_percent(at), dy=".32em", class_=style))
    return _chart(label, height, *grid, _step_axis(last), _box(*drawn), *dots)


def choice_chart(
    lines: Sequence[Line],
    label: str,
    value: Callable[[float], str],
    *,
    names: Sequence[str],
    chosen: Point,
    dashed: float | None,
    percent: bool,
    height: int = 190,
) -> Html:
    """Values by named places (the first of a point), the chosen one marked; dashed: a level."""
    values = [v for line in lines for _, v in line.points] + ([] if dashed is None else [dashed])
    room = 0.08 * (max(values) - min(values)) or abs(max(values)) * 0.08 or 1.0
    low, high = min(values) - room, max(values) + room

    def x(place: int) -> float:
        return 100 * (place + 0.5) / len(names)

    def y(v: float) -> float:
        return 100 * (high - v) / (high - low)

    marks = [v for v in ticks(low, high) if v >= 0 or min(values) < 0]
    parts = []

    def across(v: float, style: str) -> Html:
        return tag("line", x1="0", x2="100%", y1=_percent(y(v)), y2=_percent(y(v)), class_=style)

    for v, text in zip(marks, tick_texts(marks, percent), strict=True):
        parts.append(across(v, "grid"))
        parts.append(tag("text", text, x="-8", y=_percent(y(v)), dy=".32em", class_="tick end"))
    for place, text in enumerate(names):
        parts.append(tag("text", text, x=_percent(x(place)), y="100%", dy="1.5em", class_="tick"))
    if dashed is not None:
        parts.append(across(dashed, "limit"))
    for line in lines:
        path = " ".join(f"{short(x(place) * 10)},{short(y(v) * 10)}" for place, v in line.points)
        parts.append(_box(tag("path", d=f"M{path}", class_=f"series {line.style}")))
        for place, v in line.points:
            words = tag("title", f"{names[place]}, {line.name}: {value(v)}")
            taken, at = (place, v) == chosen, {"cx": _percent(x(place)), "cy": _percent(y(v))}
            style = "taken" if taken else f"dot {line.style}"
            parts.append(tag("circle", words, **at, r=6 if taken else 3, class_=style))
    return _chart(label, height, *parts)


@dataclass(frozen=True)
class Bar:
    """A patch on the timeline: which model, whether it opens a round, and how many rows."""

    step: int
    model: int
    opens: bool
    rows: int


def binned(bars: Sequence[Bar], steps: int, most: int = BARS) -> list[tuple[int, Bar]]:
    """Bars at their columns; where there are too many, the largest of a column and model."""
    if steps <= most:
        return [(bar.step, bar) for bar in bars]
    largest: dict[tuple[int, int], Bar] = {}
    for bar in bars:
        key = (bar.step * most // steps, bar.model)
        known = largest.get(key)
        if known is None or (bar.rows, bar.opens) > (known.rows, known.opens):
            largest[key] = bar
    return sorted(((column, bar) for (column, _), bar in largest.items()), key=lambda x: x[0])


def timeline(
    bars: Sequence[Bar], label: str, rows: int, height: int = 230, models: int = 2
) -> Html:
    """Patches in their order: model 1 upwards, model 2 downwards, as high as they have rows.

    Of more than two models all are upwards, each in its colour.
    """
    steps = max((bar.step for bar in bars), default=0) + 1
    columns = min(steps, BARS)
    upwards = range(1, 2 if models == 2 else models + 1)
    tallest = [
        max((bar.rows for bar in bars if (bar.model in upwards) is up), default=0)
        for up in (True, False)
    ]
    # Both on one scale; a model with few rows gets room for its ticks all the same.
    room = [max(top, sum(tallest) / 8, 1) for top in tallest]
    middle, unit = BOX * room[0] / sum(room), BOX / sum(room)
    wide = BOX / columns
    gap = min(wide * 0.25, 4) if columns <= 150 else 0.0
    paths: dict[str, list[str]] = {}
    for column, bar in binned(bars, steps):
        tall = max(unit * bar.rows, 5)
        left = column * wide + gap / 2
        upper = middle - tall if bar.model in upwards else middle
        style = f"{STYLES[bar.model]} {'opens' if bar.opens else 'follows'}"
        paths.setdefault(style, []).append(
            f"M{short(left)} {short(upper)}h{short(wide - gap)}v{short(tall)}h-{short(wide - gap)}z"
        )
    drawn = [tag("path", d="".join(d), class_=f"bar {style}") for style, d in paths.items()]
    marks = ticks(0, sum(room) / rows if rows else 1.0, 5)
    texts = dict(zip(marks, tick_texts(marks, percent=True), strict=True))
    grid = []
    for sign, size in ((-1, room[0]), (1, room[1])):
        for v in marks:
            if v * rows <= size * 1.001 and (v or sign < 0):
                y = _percent((middle + sign * unit * v * rows) / 10)
                grid.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
                grid.append(tag("text", texts[v], x="-8", y=y, dy=".32em", class_="tick end"))
    zero = _percent(middle / 10)
    return _chart(
        label,
        height,
        *grid,
        _box(*drawn),
        tag("line", x1="0", x2="100%", y1=zero, y2=zero, class_="axis"),
        _step_axis(steps - 1, bars=True),
    )


def _chart(label: str, height: int, *parts: Html) -> Html:
    return tag(
        "svg",
        *parts,
        role="img",
        aria_label=label,
        class_="chart",
        width="100%",
        height=height,
    )


def gap_row(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    style: str,
    label: str,
    top: float,
    *,
    fresh: bool,
    limit: float | None,
) -> Html:
    """A gap before and after on one line, from 0 to `top`, with intervals; limit: where a bound is.

    fresh: what is after has an interval, too.
    """

    def x(v: float) -> str:
        return _percent(100 * min(v, top) / top if top else 0.0)

    parts = [tag("line", x1="0", x2="100%", y1="50%", y2="50%", class_="grid")]
    if limit is not None and limit <= top:
        parts.append(tag("line", x1=x(limit), x2=x(limit), y1="0", y2="100%", class_="limit"))
    for cell, y, own, ends in (
        (before, "33%", f"{style} before", True),
        (after, "67%", style, fresh),
    ):
        if ends:
            low, high = x(cell["low"]), x(cell["high"])
            parts.append(tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker {own}"))
        parts.append(tag("circle", cx=x(cell["gap"]), cy=y, r=4, class_=f"dot {own}"))
    return tag("svg", *parts, role="img", aria_label=label, class_="gap", width="100%", height=26)


def _spread(places: Sequence[float], least: float) -> list[float]:
    """Places moved apart until texts have room, the order kept: groups that touch grow together."""
    groups: list[tuple[float, list[int]]] = []  # their middle, and who is in it
    for i in sorted(range(len(places)), key=places.__getitem__):
        middle, own = places[i], [i]
        while groups and middle - groups[-1][0] < least * (len(own) + len(groups[-1][1])) / 2:
            before, others = groups.pop()
            own = others + own
            middle = (before * len(others) + middle * (len(own) - len(others))) / len(own)
        groups.append((middle, own))
    moved = list(places)
    for middle, own in groups:
        for place, i in enumerate(own):
            moved[i] = middle + least * (place - (len(own) - 1) / 2)
    return moved


def _step_axis(last: int, bars: bool = False) -> Html:
    """Steps below a chart: round numbers and the last."""
    marks = [v for v in ticks(0, last, 5) if v == int(v) and v < 0.93 * last] + [float(last)]
    texts = []
    for v in marks:
        at = 100 * (v + 0.5 * bars) / (last + bars) if last or bars else 0.0
        texts.append(
            tag("text", f"{int(v):,}", x=_percent(at), y="100%", dy="1.5em", class_="tick")
        )
    return joined(*texts)


def _box(*drawn: Html) -> Html:
    """What stretches."""
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {BOX} {BOX}",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
        role="img",
        aria_label="drawn lines and bars",
        aria_hidden="true",  # the chart around it has the words
        class_="box",
    )


def _percent(x: float) -> str:
    return f"{short(x)}%"


def short(x: float) -> str:
    """A coordinate, of which two digits are seen."""
    return f"{x:.2f}".rstrip("0").rstrip(".")

"""The chart of a comparison: Brier score and loss gap, patch by patch, as the paper draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from redcal_spark.atomic_write import write_whole
from redcal_spark.core.metrics import Metrics
from redcal_spark.errors import UsageError
from redcal_spark.report.charts import Point, short, thinned
from redcal_spark.report.markup import Html, joined, tag
from redcal_spark.report.numbers import tick_texts, ticks
from redcal_spark.runs.compare import PROCEDURES, Comparison, mean_brier, mean_gap

ENDINGS = (".svg", ".html")
# Told apart by those who see no colours, too: each line has its own dashes.
STYLES = {
    "reconcile": {"stroke": "#4477aa", "stroke_dasharray": "8 4"},
    "decision_calibration": {"stroke": "#228833", "stroke_dasharray": "2 2"},
    "redcal": {"stroke": "#ee7733"},
    "dc_then_redcal": {"stroke": "#cc3311", "stroke_dasharray": "12 2 2 2"},
}
MEAN = {"stroke": "#777", "stroke_dasharray": "1 3"}
WIDE, HIGH = 400, 180  # a panel, in pixels
LEFT, ABOVE, BELOW = 70, 40, 40  # around it
PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em }}
svg {{ max-width: 100%; height: auto }}
</style>
</head>
<body><h1>{title}</h1>
{svg}
</body>
</html>
"""


def check_chart(path: str) -> None:
    """Whether a chart can be drawn there, before anything is computed."""
    if not path.lower().endswith(ENDINGS):
        raise UsageError(f"-o {path}: a chart's name ends in {' or '.join(ENDINGS)}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"-o {path}: there is no folder {folder}")


def write_chart(compared: Comparison, path: str) -> None:
    """Draw it as SVG, or as a page that needs no other file."""
    write_svg(draw(compared), path, "Four procedures on the same rows")


def write_svg(drawn: str, path: str, title: str) -> None:
    """A drawing as a file of its own, or in a page."""
    if path.lower().endswith(".html"):
        drawn = PAGE.format(title=title, svg=drawn)
    try:
        write_whole(path, lambda file: file.write(drawn))
    except OSError as err:
        raise UsageError(f"-o {path}: {err.strerror}") from err


def draw(comparison: Comparison) -> Html:
    """A row of panels for the Brier score and for each loss, a column a split."""
    compared, splits = comparison.procedures, comparison.splits
    losses = compared[0].pair.losses
    numbers: list[tuple[str, Callable[[Metrics], Fraction]]] = [("Brier score", mean_brier)]
    for place, loss in enumerate(losses.losses):
        numbers.append((f"loss gap: {loss.name}", partial(mean_gap, loss=place)))
    panels = []
    for row, (title, number) in enumerate(numbers):
        for column, split in enumerate(splits):
            lines = {
                one.algorithm: [
                    (point.steps, float(number(metrics)))
                    for point, metrics in zip(one.histories[split], one.metrics(split), strict=True)
                ]
                for one in compared
            }
            rows = comparison.rows_words(split)
            corner = f"{LEFT + column * (LEFT + WIDE)} {ABOVE + row * (ABOVE + HIGH + BELOW)}"
            mean = float(number(comparison.mean[split]))
            panel = _panel(f"{title}, {rows}", lines, mean)
            panels.append(tag("g", panel, transform=f"translate({corner})"))
    wide = len(splits) * (LEFT + WIDE) + 30
    high = len(numbers) * (ABOVE + HIGH + BELOW)
    label = f"Brier score and loss gap by patches, for {', '.join(PROCEDURES.values())}"
    return drawing(wide, high, 80, panels, _legend(), label)


def drawing(
    wide: int, high: int, below: int, panels: Sequence[Html], legend: Html, label: str
) -> Html:
    """Panels on white. below: the room for the legend under them."""
    background = tag("rect", width="100%", height="100%", fill="#fff")
    return tag(
        "svg",
        *(background, *panels, tag("g", legend, transform=f"translate({LEFT} {high + 15})")),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {wide} {high + below}",
        width=wide,
        height=high + below,
        font_family="sans-serif",
        font_size=12,
        role="img",
        aria_label=label,
    )


def frame(
    title: str, values: Sequence[float], wide: int, margin: float, *, percent: bool = False
) -> tuple[list[Html], Callable[[float], str]]:
    """A panel's title and lines across, and where in it a value is. margin: beyond the values."""
    low, high = min(values), max(values)
    room = margin * (high - low) or abs(high) * margin or 1.0
    low, high = low - room, high + room

    def y(value: float) -> str:
        return short(HIGH * (high - value) / (high - low))

    marks = ticks(low, high, 6)
    parts = [tag("text", title, x=0, y=-12, font_size=14)]
    for value, text in zip(marks, tick_texts(marks, percent=percent), strict=True):
        parts.append(tag("line", x1=0, x2=wide, y1=y(value), y2=y(value), stroke="#ddd"))
        parts.append(tag("text", text, x=-8, y=y(value), dy=".32em", text_anchor="end"))
    return parts, y


def _panel(title: str, lines: Mapping[str, Sequence[Point]], mean: float) -> Html:
    values = [mean, *(value for points in lines.values() for _, value in points)]
    parts, y = frame(title, values, WIDE, 0.05)
    last = max(step for points in lines.values() for step, _ in points)

    def x(step: float) -> str:
        return short(WIDE * _scaled(step) / max(_scaled(last), 1))

    for step in (0, *(10**k for k in range(1, 1 + math.floor(math.log10(max(last, 10)))))):
        parts.append(tag("line", x1=x(step), x2=x(step), y1=0, y2=HIGH, stroke="#ddd"))
        parts.append(tag("text", f"{step:,}", x=x(step), y=HIGH + 16, text_anchor="middle"))
    parts.append(tag("line", x1=0, x2=WIDE, y1=y(mean), y2=y(mean), stroke_width=1.5, **MEAN))
    parts.append(tag("text", "patches", x=WIDE / 2, y=HIGH + 32, text_anchor="middle"))
    for algorithm, points in lines.items():
        (first, value), *rest = thinned(points)
        path = f"M{x(first)} {y(value)}" + "".join(f"H{x(s)}V{y(v)}" for s, v in rest)
        style = STYLES[algorithm]
        parts.append(tag("path", d=path, fill="none", stroke_width=1.5, **style))
        end, value = points[-1]
        parts.append(tag("circle", cx=x(end), cy=y(value), r=3, fill=style["stroke"]))
    return joined(*parts)


def _scaled(step: float) -> float:
    """Tens of patches for some procedures, tens of thousands for others: logarithms from 10 on."""
    return step / 10 if step <= 10 else 1 + math.log10(step / 10)


def _legend() -> Html:
    parts = []
    styles = [(PROCEDURES[algorithm], style) for algorithm, style in STYLES.items()]
    for place, (title, style) in enumerate([*styles, ("mean of the models", MEAN)]):
        x, y = place % 2 * (LEFT + WIDE) // 2, place // 2 * 20
        line = tag("line", x1=x, x2=x + 30, y1=y, y2=y, stroke_width=1.5, **style)
        parts += [line, tag("text", title, x=x + 38, y=y, dy=".32em")]
    return joined(*parts)

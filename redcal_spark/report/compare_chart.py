"""The chart of a comparison: Brier score and loss gap, patch by patch, as the paper draws them."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from redcal_spark.atomic_write import write_whole
from redcal_spark.core.metrics import Metrics
from redcal_spark.errors import UsageError
from redcal_spark.runs.compare import SPLITS, Compared, mean_brier, mean_gap

ENDINGS = (".svg", ".html")
# Told apart by those who see no colours, too: each line has its own dashes.
STYLES: dict[str, dict[str, Any]] = {
    "reconcile": {"color": "#4477aa", "linestyle": (0, (4, 2))},
    "decision_calibration": {"color": "#228833", "linestyle": (0, (1, 1))},
    "redcal": {"color": "#ee7733", "linestyle": "-"},
    "dc_then_redcal": {"color": "#cc3311", "linestyle": (0, (6, 1, 1, 1))},
}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; margin: 2em }} svg {{ max-width: 100% }}</style>
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
    _figure_class()


def write_chart(found: Sequence[Compared], path: str) -> None:
    """Draw it as SVG, or as a page that needs no other file."""
    import matplotlib

    figure, text = draw(found), io.StringIO()
    # without a date and with fixed ids the same numbers give the same file
    with matplotlib.rc_context({"svg.hashsalt": "redcal", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    if path.lower().endswith(".html"):
        title = html.escape("Four procedures on the same rows")
        drawn = PAGE.format(title=title, svg=drawn[drawn.index("<svg") :])
    try:
        write_whole(path, lambda file: file.write(drawn))
    except OSError as err:
        raise UsageError(f"-o {path}: {err.strerror}") from err


def draw(found: Sequence[Compared]) -> Any:
    """A matplotlib figure: a row for the Brier score and for each loss, a column a split."""
    losses, splits = found[0].pair.losses, list(found[0].histories)
    numbers: list[tuple[str, Callable[[Metrics], Any]]] = [("Brier score", mean_brier)]
    for place, loss in enumerate(losses.losses):
        numbers.append((f"loss gap: {loss.name}", partial(mean_gap, loss=place)))
    size = (5.2 * len(splits), 2.6 * len(numbers) + 0.8)
    figure = _figure_class()(figsize=size, layout="constrained")
    panels = figure.subplots(len(numbers), len(splits), squeeze=False, sharex=True)
    for line, (name, number) in zip(panels, numbers, strict=True):
        for panel, split in zip(line, splits, strict=True):
            for one in found:
                steps = [point.steps for point in one.histories[split]]
                values = [float(number(m)) for m in one.metrics(split)]
                style = STYLES[one.algorithm]
                panel.plot(steps, values, label=one.name, drawstyle="steps-post", **style)
                panel.plot(steps[-1:], values[-1:], "o", color=style["color"], markersize=4)
            panel.set_xscale("symlog", linthresh=10)  # tens for some, tens of thousands for others
            panel.xaxis.set_major_formatter("{x:,.0f}")
            panel.set_xlim(left=0)
            panel.grid(alpha=0.25)
            rows = f"{one.metrics(split)[0].rows:,} rows {SPLITS[split]}"
            panel.set_title(f"{_plain(name)}, {rows}", fontsize="medium")
    for panel in panels[-1]:
        panel.set_xlabel("patches")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _plain(text: str) -> str:
    """Dollars are not mathematics here."""
    return text.replace("$", r"\$")


def _figure_class() -> Any:
    """Without pyplot, which would look for a screen."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as err:
        raise UsageError(
            "-o: a chart needs matplotlib: pip install 'redcal-spark[report]' "
            "(the table and --json need none)"
        ) from err
    return Figure

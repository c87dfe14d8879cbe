"""Charts of a pair by matplotlib, for notebooks and papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from redcal_spark.core.splits import SPLITS
from redcal_spark.errors import UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.summary import APART, COST, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2450c4", "#b1480b", "#1c7c3a", "#8a2be2")  # of the models, as in the report
STYLES = {"fit": ":", "holdout": "-"}


def steps(pair: ReconciledPair, loss: str | None = None, ax: Axes | None = None) -> Axes:
    """The mean cost (without losses the Brier score) of every model after every round."""
    name = _loss(pair, loss)
    measure, title = (
        ("brier", "Brier score") if name is None else ("decision_loss", f"{COST}, {name}")
    )
    drawn = _axes(ax, title, "patches")
    for split, model, points in _points(pair, name, measure):
        label = f"{pair.models[model - 1]}, {SPLITS[split]} rows"
        drawn.plot(*points, STYLES[split], color=COLOURS[(model - 1) % len(COLOURS)], label=label)
    drawn.legend()
    return drawn


def disagreement(pair: ReconciledPair, loss: str | None = None, ax: Axes | None = None) -> Axes:
    """The share of rows with different decisions after every round; for Reconcile of scores."""
    name = _loss(pair, loss)
    measure = "largest_event" if name is None else "disagreement"
    title = "scores apart, worst class" if name is None else f"{APART}, {name}"
    drawn = _axes(ax, f"{title} (% of rows)", "patches")
    for split, model, (x, y) in _points(pair, name, measure):
        if model == 1:  # the same number, whichever model
            shares = [100 * share for share in y]
            drawn.plot(x, shares, STYLES[split], color="0.4", label=f"{SPLITS[split]} rows")
    drawn.set_ylim(bottom=0)
    drawn.legend()
    return drawn


def costs(pair: ReconciledPair, loss: str | None = None, ax: Axes | None = None) -> Axes:
    """The mean cost of every model before and after, on every split."""
    name = _loss(pair, loss)
    if name is None:
        raise UsageError("plot.costs: the pair has no losses; plot.steps shows its Brier scores")
    lines = [line for line in pair.summary().lines if (line.measure, line.loss) == (COST, name)]
    drawn = _axes(ax, f"{COST}, {name}", "")
    _bars(drawn, lines, pair.models)
    drawn.set_xticks(range(len(lines)))
    drawn.set_xticklabels([f"{line.model}\n{SPLITS[line.split]} rows" for line in lines])
    drawn.margins(y=0.2)  # room for the legend above the bars
    drawn.legend(["before", "after"], ncols=2)
    return drawn


def patches(pair: ReconciledPair, ax: Axes | None = None) -> Axes:
    """Every patch as high as it has rows, models upwards and downwards by turns."""
    drawn = _axes(ax, "rows of a patch", "patch")
    for model, name in enumerate(pair.models, 1):
        own = [patch for patch in pair.log if patch.model == model]
        sign = 1 if model % 2 else -1
        colours = [_faded(model, patch.kind == "calibrate") for patch in own]
        heights = [sign * float(patch.rows * pair.columns.unit) for patch in own]
        drawn.bar([patch.step for patch in own], heights, color=colours, label=name)
    drawn.axhline(0, color="0.4", linewidth=0.8)
    drawn.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    if pair.log:
        drawn.legend()
    return drawn


def _bars(drawn: Axes, lines: Sequence[Line], models: Sequence[str]) -> None:
    for shift, when in ((-0.2, "before"), (0.2, "after")):
        places = [place + shift for place in range(len(lines))]
        colours = [_faded(models.index(str(x.model)) + 1, when == "before") for x in lines]
        drawn.bar(places, [float(getattr(x, when)) for x in lines], width=0.38, color=colours)


def _faded(model: int, faded: bool) -> tuple[str, float]:
    return COLOURS[(model - 1) % len(COLOURS)], 0.4 if faded else 1.0


def _loss(pair: ReconciledPair, loss: str | None) -> str | None:
    """The loss that is meant: by default the first; None without any."""
    if loss is not None:
        return pair.losses[pair.losses.place(loss)].name
    return pair.losses[0].name if len(pair.losses) else None


def _points(
    pair: ReconciledPair, loss: str | None, measure: str
) -> Iterator[tuple[str, int, tuple[list[int], list[float]]]]:
    """Per split and model, the steps and the numbers there."""
    lines: dict[tuple[str, int], tuple[list[int], list[float]]] = {}
    for row in pair.measured("a chart").history.numbers.to_pylist():
        if row["loss"] == loss:
            x, y = lines.setdefault((row["split"], row["model"]), ([], []))
            x.append(row["step"])
            y.append(row[measure])
    for (split, model), points in lines.items():
        yield split, model, points


def _axes(ax: Axes | None, y: str, x: str) -> Axes:
    if ax is None:
        try:
            from matplotlib import pyplot
        except ModuleNotFoundError as err:
            raise UsageError(
                "charts need matplotlib, which is not installed: "
                "pip install 'redcal-spark[notebook]'"
            ) from err
        _, ax = pyplot.subplots(layout="constrained")
    ax.set_ylabel(y)
    ax.set_xlabel(x)
    return ax

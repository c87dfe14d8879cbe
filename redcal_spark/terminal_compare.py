"""What people see of a comparison: who changed what, by how many patches, in what time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from rich.table import Table

from redcal_spark.compare import Compared
from redcal_spark.metrics import Metrics
from redcal_spark.terminal import columns_of, cost, share

SPLITS = {"fit": "fitted", "judge": "judged"}

Number = Callable[[Metrics], Fraction]


def comparison_tables(found: Sequence[Compared]) -> list[Table | str]:
    """One table of the work and the Brier score, one a loss; scores are means of both models."""
    losses, splits = found[0].pair.losses, list(found[0].histories)
    rows = ", ".join(f"{found[0].metrics(s)[0].rows:,} rows {SPLITS[s]}" for s in splits)
    heads = [f"Brier\n{SPLITS[split]}" for split in splits]
    table = columns_of(
        [rows + "\n(means of both models)", "status"], ["patches", "seconds", *heads]
    )
    before, *after = _ends(found, splits, mean_brier)
    table.add_row("before", "", "", "", *(f"{x:.4f}" for x in before))
    for one, numbers in zip(found, after, strict=True):
        done = (one.pair.status, f"{len(one.pair.log):,}", f"{one.seconds:.2f}")
        table.add_row(one.name, *done, *(f"{x:.4f}" for x in numbers))
    shown: list[Table | str] = [table]
    for place, loss in enumerate(losses.losses):
        heads = [f"loss gap\n{SPLITS[s]}" for s in splits] + [
            f"disagree\n{SPLITS[s]}" for s in splits
        ]
        table = columns_of([f"\n{loss.name}"], heads)
        gaps = _ends(found, splits, partial(mean_gap, loss=place))
        apart = _ends(found, splits, partial(disagreement, loss=place))
        told = cost([x for line in gaps for x in line])
        for i, name in enumerate(("before", *(one.name for one in found))):
            own = told[i * len(splits) : (i + 1) * len(splits)]
            table.add_row(name, *own, *map(share, apart[i]))
        shown += ["", table]
    return shown


def mean_brier(metrics: Metrics) -> Fraction:
    """Of both models; of one column P(1) the usual (f - y)^2."""
    return (metrics.usual_brier(1) + metrics.usual_brier(2)) / 2


def mean_gap(metrics: Metrics, loss: int) -> Fraction:
    """What both models' decisions cost above those that know the label, on average."""
    return (metrics.loss_gap(loss, 1) + metrics.loss_gap(loss, 2)) / 2


def disagreement(metrics: Metrics, loss: int) -> Fraction:
    return metrics.disagreement(loss)


def _ends(found: Sequence[Compared], splits: Sequence[str], number: Number) -> list[list[float]]:
    """Before (the same for all), then after each procedure; per split."""
    first = [float(number(found[0].metrics(split)[0])) for split in splits]
    last = [[float(number(one.metrics(split)[-1])) for split in splits] for one in found]
    return [first, *last]

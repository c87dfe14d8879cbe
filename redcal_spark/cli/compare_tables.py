"""The tables of `redcal compare`: at the end, and where all have spent as much as one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import islice
from operator import methodcaller

from rich.table import Table

from redcal_spark.cli.tables import Shown, columns_of
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.number_text import cost_texts, share_text
from redcal_spark.core.splits import SPLITS
from redcal_spark.runs.compare import (
    PROCEDURES,
    Comparison,
    Measure,
    mean_brier,
    mean_gap,
)

ABOUT_MEAN = (
    "The mean is a baseline without parameters: one model, with nothing left to disagree about.",
    "It keeps {} of yours and certifies nothing.",
)
Number = Callable[[Metrics], Fraction]


def comparison_tables(compared: Comparison) -> list[Shown]:
    """The work and the Brier score, then a table a loss; scores are means of all models."""
    losses, splits = compared.procedures[0].pair.losses, compared.splits
    both = "both" if compared.procedures[0].pair.columns.n_models == 2 else "all"
    average = f"Mean of {both} models"
    rows = "; ".join(map(compared.rows_words, splits))
    heads = [f"Brier\n{SPLITS[split]}" for split in splits]
    work = ["patches", "fitted\nvalues", "seconds"]
    table = columns_of([rows + f"\n(means of {both} models)", "status"], [*work, *heads])
    before, mean, *after = _ends(compared, mean_brier)
    table.add_row("before", "", "", "", "", *(f"{x:.4f}" for x in before))
    table.add_row(average, "", "", "", "", *(f"{x:.4f}" for x in mean))
    for one, numbers in zip(compared.procedures, after, strict=True):
        spent = (f"{len(one.pair.log):,}", f"{one.values[-1]:,}", f"{one.seconds:.2f}")
        table.add_row(one.name, one.pair.status, *spent, *(f"{x:.4f}" for x in numbers))
    shown: list[Shown] = [table]
    names = ("before", average, *(one.name for one in compared.procedures))
    for place, loss in enumerate(losses.losses):
        heads = [f"{what}\n{SPLITS[s]}" for what in ("loss gap", "disagree") for s in splits]
        table = columns_of([f"\n{loss.name}"], heads)
        gaps = _ends(compared, partial(mean_gap, loss=place))
        apart = _ends(compared, methodcaller("disagreement", place))
        texts = iter(cost_texts(x for line in gaps for x in line))
        for name, shares in zip(names, apart, strict=True):
            table.add_row(name, *islice(texts, len(splits)), *map(share_text, shares))
        shown += ["", table]
    none = "neither" if both == "both" else "none"
    return [*shown, *_equal(compared), "", *(line.format(none) for line in ABOUT_MEAN)]


def _ends(compared: Comparison, number: Number) -> list[list[float]]:
    """Before (the same for all), the mean of all models, then after each procedure; per split."""
    splits, first = compared.splits, compared.procedures[0]
    start = [float(number(first.metrics(split)[0])) for split in splits]
    mean = [float(number(compared.mean[split])) for split in splits]
    last = [
        [float(number(one.metrics(split)[-1])) for split in splits] for one in compared.procedures
    ]
    return [start, mean, *last]


def _equal(compared: Comparison) -> Iterator[Shown]:
    """At equal numbers of patches and of fitted values, on the rows that count most."""
    for measure, most in compared.most.items():
        if most:
            yield ""
            yield _at(compared, measure, compared.splits[-1])


def _at(compared: Comparison, measure: Measure, split: str) -> Table:
    losses = compared.procedures[0].pair.losses.losses
    heads = [measure, "Brier"]
    for loss in losses:
        heads += [f"{loss.name}:\nloss gap", "\ndisagree"]
    title = f"\nat {compared.most[measure]:,} {measure} at most, {SPLITS[split]} rows"
    table = columns_of([title], heads)
    prefixes = compared.equal[measure]
    at = [prefix.metrics[split] for prefix in prefixes]
    gaps = [cost_texts(float(mean_gap(m, place)) for m in at) for place in range(len(losses))]
    for number, prefix in enumerate(prefixes):
        cells = [f"{prefix.spent:,}", f"{float(mean_brier(at[number])):.4f}"]
        for place in range(len(losses)):
            cells += [gaps[place][number], share_text(at[number].disagreement(place))]
        table.add_row(PROCEDURES[prefix.algorithm], *cells)
    return table

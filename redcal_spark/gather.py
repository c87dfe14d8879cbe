"""The one scan of the data: count everything, keep the active rows of both splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.blocks import Block
from redcal_spark.columns import Layout, Mask, Problems, Reading, read
from redcal_spark.kernel import Rules, Scan, classify, scan
from redcal_spark.metrics import Totals, measure
from redcal_spark.parallel import ordered
from redcal_spark.splits import Split


@dataclass
class Part:
    """One split of the rows: totals over all of them, and the active ones."""

    totals: Totals
    scans: list[Scan] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.totals.rows

    @property
    def active(self) -> list[Block]:
        return [s.active for s in self.scans if s.active.rows]


@dataclass
class Gathered:
    """What one scan of the data found."""

    fit: Part
    judge: Part
    rows: int = 0
    unlabelled: int = 0
    unused: int = 0  # labelled and valid, but of neither split
    bad: int = 0
    off_sum: int = 0
    problems: Problems = field(default_factory=Problems)


def gather(
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    rules: Rules,
    *,
    everywhere: bool,
    split: Split | None = None,
    threads: int | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Gathered:
    """Read, validate and scan batches in one pass; memory grows with the active rows only."""
    d, losses = layout.n_classes, rules.losses
    result = Gathered(Part(Totals.none(losses, d)), Part(Totals.none(losses, d)))

    def work(item: tuple[int, pa.RecordBatch]) -> tuple[int, Reading, Problems, list[_Piece]]:
        start, batch = item
        problems = Problems()
        reading = read(batch, layout, problems, start)
        usable = reading.usable
        fit, judge = (usable, None) if split is None else split.masks(batch)
        if judge is None:
            pieces = [_piece(reading.block, usable, rules, everywhere), None]
        else:
            pieces = [
                _piece(reading.block, mask & usable, rules, everywhere) for mask in (fit, judge)
            ]
        return batch.num_rows, reading, problems, pieces

    for rows, reading, problems, pieces in ordered(work, numbered(batches), threads):
        result.rows += rows
        result.bad += int(np.count_nonzero(~reading.valid))
        result.unlabelled += int(np.count_nonzero(reading.valid & ~reading.labelled))
        result.off_sum += reading.off_sum
        result.problems.merge(problems)
        used = 0
        for part, piece in zip((result.fit, result.judge), pieces, strict=True):
            if piece is not None:
                part.totals += piece[0]
                part.scans.append(piece[1])
                used += piece[1].rows
        result.unused += int(np.count_nonzero(reading.usable)) - used
        if progress is not None:
            progress(rows)
    return result


_Piece = tuple[Totals, Scan] | None


def _piece(block: Block, mask: Mask, rules: Rules, everywhere: bool) -> _Piece:
    if not mask.all():
        block = block.take(mask)
    if not block.rows:
        return None
    known = classify(block, rules)
    return measure(block, rules, known), scan(block, rules, everywhere, known)


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of their first row."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows

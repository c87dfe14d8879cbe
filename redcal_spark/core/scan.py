"""The one scan of the data: count everything, keep the active rows of both splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Layout
from redcal_spark.core.kernel import Rules, Scan, classify, scan
from redcal_spark.core.metrics import Totals, measure
from redcal_spark.core.reading import Mask, Problems, read
from redcal_spark.core.splits import Split

# Batches, each with the number of its first row: a stretch of a table that one thread looks at, and
# reads, if it is read lazily.
Piece = Iterable[tuple[int, pa.RecordBatch]]


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

    def merge(self, other: Part) -> None:
        self.totals += other.totals
        self.scans += other.scans


@dataclass
class Gathered:
    """What a scan found, of a batch or of all of them: it adds up."""

    fit: Part
    holdout: Part
    rows: int = 0
    unlabelled: int = 0
    unused: int = 0  # labelled and valid, but of neither split
    bad: int = 0
    off_sum: int = 0
    problems: Problems = field(default_factory=Problems)

    @classmethod
    def nothing(cls, rules: Rules, d: int) -> Gathered:
        return cls(Part(Totals.none(rules.losses, d)), Part(Totals.none(rules.losses, d)))

    @property
    def parts(self) -> dict[str, Part]:
        """The splits that have rows."""
        return {k: part for k, part in (("fit", self.fit), ("holdout", self.holdout)) if part.rows}

    def merge(self, other: Gathered) -> None:
        self.fit.merge(other.fit)
        self.holdout.merge(other.holdout)
        for name in ("rows", "unlabelled", "unused", "bad", "off_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems.merge(other.problems)


@dataclass(frozen=True)
class Scanner:
    """Reads, validates and scans one batch at a time, on whatever machine.

    audit: rows are counted more closely, and none are kept.
    """

    layout: Layout
    rules: Rules
    everywhere: bool
    split: Split | None = None
    audit: bool = False

    def __call__(self, item: tuple[int | None, pa.RecordBatch]) -> Gathered:
        start, batch = item
        found = Gathered.nothing(self.rules, self.layout.n_classes)
        reading = read(batch, self.layout, found.problems, start)
        usable = reading.usable
        found.rows = batch.num_rows
        found.bad = int(np.count_nonzero(~reading.valid))
        found.unlabelled = int(np.count_nonzero(reading.valid & ~reading.labelled))
        found.off_sum = reading.off_sum
        if self.split is None:
            self._add(found.fit, reading.block, usable)
        else:
            fit, holdout = self.split.masks(batch)
            self._add(found.fit, reading.block, usable & fit)
            self._add(found.holdout, reading.block, usable & holdout)
        found.unused = int(np.count_nonzero(usable)) - found.fit.rows - found.holdout.rows
        return found

    def all(self, piece: Piece) -> Gathered:
        result = Gathered.nothing(self.rules, self.layout.n_classes)
        for item in piece:
            result.merge(self(item))
        return result

    def again(self, known: Gathered) -> Gathered:
        """Rows that an earlier scan kept all of, by the rules of this one."""
        found = []
        for old in (known.fit, known.holdout):
            part = Part(Totals.none(self.rules.losses, self.layout.n_classes))
            for block in old.active:
                part.merge(self._scanned(block))
            found.append(part)
        return replace(known, fit=found[0], holdout=found[1])

    def _add(self, part: Part, block: Block, mask: Mask) -> None:
        if not mask.all():
            block = block.take(mask)
        if block.rows:
            found = self._scanned(block)
            part.totals, part.scans = found.totals, found.scans

    def _scanned(self, block: Block) -> Part:
        known = classify(block, self.rules)
        if self.audit:
            return Part(measure(block, self.rules, known, audit=True))
        kept = scan(block, self.rules, self.everywhere, known)
        return Part(measure(block, self.rules, known, kept.counts), [kept])


def gather(
    pieces: Iterable[Piece],
    scanner: Scanner,
    spread: Callable[..., Iterable[Gathered]] = map,
    progress: Callable[[int], Any] | None = None,
) -> Gathered:
    """One pass over the rows; memory grows with the active ones only.

    spread: how the work is spread over threads, as `map` with a function and items.
    """
    result = Gathered.nothing(scanner.rules, scanner.layout.n_classes)
    for found in spread(scanner.all, pieces):
        result.merge(found)
        if progress is not None:
            progress(found.rows)
    return result


def numbered(
    batches: Iterable[pa.RecordBatch], start: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of their first row."""
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def each_alone(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Batches that were read already, or can be read in their order only: each is a piece."""
    return ([item] for item in numbered(batches))

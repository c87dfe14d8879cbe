"""The one scan of the data: count everything, keep the active rows of both splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from redcal_spark.core.blocks import Block, mean_block
from redcal_spark.core.columns import Layout
from redcal_spark.core.fixed_point import MAX_ROWS, Mask
from redcal_spark.core.folds import Folds, fold_codes
from redcal_spark.core.kernel import BlockScan, Rules, classify, scan
from redcal_spark.core.metrics import Totals, measure
from redcal_spark.core.reading import BadRows, Reading, read
from redcal_spark.core.segment_numbers import all_rows, of_scan, without
from redcal_spark.core.segments import Coded
from redcal_spark.core.splits import Split
from redcal_spark.core.weights import Weights
from redcal_spark.errors import InputError
from redcal_spark.settings import setting

# Batches, each with the number of its first row: a stretch of a table that one thread looks at, and
# reads, if it is read lazily.
BatchGroup = Iterable[tuple[int, pa.RecordBatch]]

COUNTS = ("rows", "unlabelled", "unused", "weightless", "bad", "off_sum")


@dataclass
class SplitResult:
    """One split of the rows: totals over all of them, and the active ones.

    rows: the sum of their weights, where they have weights. counted: the rows themselves.
    folds: for `eta: auto`, how the fitting rows fall into folds.
    mean: the totals if all models were their mean, where that was asked for.
    """

    totals: Totals
    scans: list[BlockScan] = field(default_factory=list)
    folds: Folds | None = None
    mean: Totals | None = None

    @property
    def rows(self) -> int:
        return self.totals.rows

    @property
    def counted(self) -> int:
        return self.totals.counted

    @property
    def active(self) -> list[Block]:
        return [s.active for s in self.scans if s.active.rows]

    def merge(self, other: SplitResult) -> None:
        if not other.counted:  # of many losses even nothing is megabytes
            return
        self.totals += other.totals
        self.scans += other.scans
        if other.folds is not None:
            self.folds = other.folds if self.folds is None else self.folds + other.folds
        if other.mean is not None:
            self.mean = other.mean if self.mean is None else self.mean + other.mean


@dataclass
class ScanResult:
    """What a scan found, of a batch or of all of them: it adds up."""

    fit: SplitResult
    holdout: SplitResult
    rows: int = 0
    unlabelled: int = 0
    unused: int = 0  # labelled and valid, but of neither split
    weightless: int = 0  # labelled and valid, but of weight 0
    bad: int = 0
    off_sum: int = 0
    problems: BadRows = field(default_factory=BadRows)

    @classmethod
    def nothing(cls, rules: Rules, d: int) -> ScanResult:
        return cls(SplitResult(Totals.none(rules, d)), SplitResult(Totals.none(rules, d)))

    @property
    def parts(self) -> dict[str, SplitResult]:
        """The splits that have rows."""
        return {k: part for k, part in (("fit", self.fit), ("holdout", self.holdout)) if part.rows}

    def merge(self, other: ScanResult) -> None:
        self.fit.merge(other.fit)
        self.holdout.merge(other.holdout)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems.merge(other.problems)


@dataclass(frozen=True)
class Scanner:
    """Reads, validates and scans one batch at a time, on whatever machine.

    audit: rows are counted more closely, and none are kept.
    folds: fitting rows are told apart by their fold. mean: what the mean of all models would do
    is measured, too.
    """

    layout: Layout
    rules: Rules
    everywhere: bool
    split: Split | None = None
    audit: bool = False
    folds: bool = False
    mean: bool = False

    @property
    def by_event(self) -> bool:
        """Whether the rows that are kept are those in some event."""
        return not self.everywhere and self.rules.gap is None

    def __call__(self, item: tuple[int | None, pa.RecordBatch]) -> ScanResult:
        start, batch = item
        result = ScanResult.nothing(self.rules, self.layout.n_classes)
        reading = read(batch, self.layout, result.problems, start)
        usable = reading.usable
        result.rows = batch.num_rows
        result.bad = int(np.count_nonzero(~reading.valid))
        result.unlabelled = int(np.count_nonzero(reading.valid & ~reading.labelled))
        result.off_sum, result.weightless = reading.off_sum, reading.weightless
        fitting = reading
        if self.folds:
            fold = fold_codes(batch, self.layout, reading.block)
            fitting = replace(reading, block=replace(reading.block, fold=fold))
        if self.split is None:
            self._add(result.fit, fitting, usable)
        else:
            fit, holdout = self.split.masks(batch)
            self._add(result.fit, fitting, usable & fit)
            self._add(result.holdout, reading, usable & holdout)
        result.unused = int(np.count_nonzero(usable)) - result.fit.counted - result.holdout.counted
        return result

    def all(self, piece: BatchGroup) -> ScanResult:
        result = ScanResult.nothing(self.rules, self.layout.n_classes)
        for item in piece:
            result.merge(self(item))
        return result

    def again(self, known: ScanResult) -> ScanResult:
        """Rows that an earlier scan kept all of, by the rules of this one."""
        parts = []
        for old in (known.fit, known.holdout):
            part = SplitResult(Totals.none(self.rules, self.layout.n_classes))
            for block in old.active:
                part.merge(self._scanned(without(block), ()))
            parts.append(part)
        return replace(known, fit=parts[0], holdout=parts[1])

    def _add(self, part: SplitResult, reading: Reading, mask: Mask) -> None:
        block, segments = reading.block, reading.segments
        if not mask.all():
            block = block.take(mask)
            segments = tuple(column.take(mask) for column in segments)
        if block.rows:
            check_weight(block.weight, "the data", self.layout.columns.weight)
            scanned = self._scanned(block, segments)
            part.totals, part.scans = scanned.totals, scanned.scans
            part.folds, part.mean = scanned.folds, scanned.mean

    def _scanned(self, block: Block, segments: Sequence[Coded]) -> SplitResult:
        known = classify(block, self.rules)
        kept = None if self.audit else scan(block, self.rules, self.everywhere, known)
        counts = None if kept is None else kept.counts
        sums = of_scan(block, known[0], self.rules.losses, segments) if segments else None
        brier = None if sums is None else all_rows(sums, self.rules).briers
        totals = measure(block, self.rules, known, counts, brier, audit=self.audit)
        if block.w is not None:
            totals = replace(totals, weights=Weights.of(block.w))
        if sums is not None:
            totals = replace(totals, segments=sums)
        if kept is None:
            return SplitResult(totals)
        folds = None
        if self.folds and block.fold is not None:  # holdout rows have none
            folds = Folds.of(block, known[0], kept, self.rules.losses)
        mean = measure(mean_block(block), self.rules) if self.mean else None
        # of many losses the counts take more memory than a batch's rows; the totals have them
        return SplitResult(totals, [replace(kept, counts=[])], folds, mean)


def check_weight(total: int, where: str, column: str | None) -> None:
    """Refuse more than sums are exact for."""
    if total >= MAX_ROWS and column is not None:
        raise InputError(
            f"{where}: the weights in column {column!r} add up to {total:,} times "
            f"{setting('weight_unit')} or more; exact sums need less than 2^37: round the weights "
            f"to fewer decimals, and set {setting('weight_unit')} to the last of them"
        )


def numbered(
    batches: Iterable[pa.RecordBatch], start: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of their first row."""
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def each_alone(batches: Iterable[pa.RecordBatch]) -> Iterator[BatchGroup]:
    """Batches that were read already, or can be read in their order only: each is a piece."""
    return ([item] for item in numbered(batches))

"""What a Spark worker does with its share of the rows: functions for `mapInArrow`.

No pyspark here: a worker finds these by importing the package, with numpy and pyarrow alone.
Every task gives back rows of SCHEMA: blocks of packed rows and one row of statistics.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from redcal_spark.backends.spark.cells import (
    AS_ROWS,
    FROM_ROWS,
    STATISTICS,
    FromFiles,
    FromRows,
    Packer,
    SinkOf,
    row,
)
from redcal_spark.backends.spark.reports import CountedCells
from redcal_spark.core.additive import Array
from redcal_spark.core.arrow import Batches
from redcal_spark.core.columns import Layout
from redcal_spark.core.events import Disagreement
from redcal_spark.core.history import Holdout, Measured, added
from redcal_spark.core.kernel import Rules, event_counts
from redcal_spark.core.metrics import Totals
from redcal_spark.core.output_columns import Extension
from redcal_spark.core.packing import (
    gathered_parts,
    pack,
    pack_changes,
    unpack_block,
)
from redcal_spark.core.patches import Patch
from redcal_spark.core.reading import BadRows, read
from redcal_spark.core.rows import Rows
from redcal_spark.core.scan import Scanner, ScanResult
from redcal_spark.core.sums import decision_sums, gap_sums, residuals, sums

Question = Literal["events", "residuals", "gaps", "sums", "decisions"]
Keep = Literal["all", "active", "frozen"] | Disagreement
CellSource = FromRows | FromFiles | CountedCells
MANY = 10_000  # objects that are worth putting away
PIECE = 2**25  # bytes; Spark hands over 64 MiB at once, before 4.1 up to 256 MiB
Reader = Callable[[Batches], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class OnWorker:
    """A task, on a worker that first puts away what it has imported.

    After each task Spark has its worker look through all Python objects for garbage. Nearly all are
    of pyspark, numpy and pyarrow, from when they were imported, and never garbage; that search took
    most of the time of a short task.
    """

    task: Callable[[Batches], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        if len(gc.get_objects()) > MANY:  # of a worker that is new, or has imported more since
            gc.collect()
            gc.freeze()
        return self.task(batches)


def pieces(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The same rows, at most PIECE bytes at a time: what we make of them is as large again."""
    for batch in batches:
        number = max(1, -(-batch.nbytes // PIECE))
        size = max(1, -(-batch.num_rows // number))
        for start in range(0, max(1, batch.num_rows), size):
            yield batch.slice(start, size)


@dataclass(frozen=True)
class ScanTask:
    """The one scan of the table: counts, and the active rows of both splits as cells.

    reader: what comes to the task names its share of the files, and this reads them.
    """

    scanner: Scanner
    names: tuple[str, ...]  # of the columns, which travel without
    vectors: tuple[str, ...] = ()  # columns that hold Spark ML vectors
    reader: Reader | None = None
    sink: SinkOf = AS_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        scanner = self.scanner
        total = ScanResult.nothing(scanner.rules, scanner.layout.n_classes)
        sink, rules = self.sink(), scanner.rules if scanner.by_event else None
        packers = Packer("fit", sink, rules), Packer("holdout", sink)
        for batch in pieces(batches) if self.reader is None else self.reader(batches):
            rows = dense_batch(batch.rename_columns(self.names), self.vectors)
            result = scanner((None, rows))  # a task cannot know the numbers of its rows
            for packer, part in zip(packers, (result.fit, result.holdout), strict=True):
                for scan in part.scans:
                    yield from packer.add(scan.active, scan.classified[1])
                part.scans = []
            total.merge(result)
        for packer in packers:
            yield from packer.close()
        yield from sink.close()
        yield row(STATISTICS, total.rows, pack(*gathered_parts(total)))


@dataclass(frozen=True)
class BlockState:
    """What must be done to stored blocks before anything can be asked of them.

    patches: replayed on every block. round: the blocks are the rows of this round's event.
    """

    rules: Rules
    patches: tuple[Patch, ...]
    round: int | None = None

    def rows(self, packed: Any) -> Rows:
        rows = Rows(unpack_block(packed), self.rules, own=not self.patches)
        if self.round is not None:
            rows.frozen, rows.round = np.arange(len(rows)), self.round
        for patch in self.patches:
            rows.apply(patch)
        return rows

    def rows_of(self, packed: Any, model: int) -> Rows:
        """The same in a region: all rows are in it, and the other models do not matter."""
        mine = [patch for patch in self.patches if patch.model == model]
        rows = Rows.of_model(unpack_block(packed), self.rules, model, own=not mine)
        for patch in mine:
            whole = patch.kind == "reconcile"
            index = np.arange(len(rows)) if whole else rows.acted_on(patch)
            rows.shift(model, index, patch.shift)
        return rows


@dataclass(frozen=True)
class AskTask:
    """Statistics of the rows as patched so far: one row a task."""

    state: BlockState
    question: Question
    model: int = 0
    source: CellSource = FROM_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total: dict[str, Array] = {}
        count = size = 0
        for _, packed in self.source(batches):
            if self.question == "residuals":
                rows = self.state.rows_of(packed, self.model)
            else:
                rows = self.state.rows(packed)
            count, size = count + len(rows), size + len(packed)
            add_up(total, answer(rows, self.question, self.model))
        yield row(STATISTICS, count, pack({"rows": count, "bytes": size}, total))


@dataclass(frozen=True)
class KeepTask:
    """The rows as patched so far, as cells again: all, the active ones, or those of an event.

    Active ones are grouped by their events.
    """

    state: BlockState
    keep: Keep
    source: CellSource = FROM_ROWS
    sink: SinkOf = AS_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        sink, rules = self.sink(), self.state.rules
        packer = Packer("fit", sink, rules if self.keep == "active" else None)
        total: dict[str, Array] = {}
        count = size = 0
        for _, packed in self.source(batches):
            rows = self.state.rows(packed)
            size += len(packed)
            kept = rows.take(self._index(rows))
            count += len(kept)
            if kept.y is not None and len(kept):
                add_up(total, answer(kept, "sums"))
            yield from packer.add(kept.current(), kept.events)
        yield from packer.close()
        yield from sink.close()
        yield row(STATISTICS, count, pack({"rows": count, "bytes": size}, total))

    def _index(self, rows: Rows) -> Any:
        if self.keep == "all":
            return np.arange(len(rows))
        if self.keep == "frozen":
            return rows.frozen if rows.frozen is not None else np.arange(0)
        return rows.active() if self.keep == "active" else rows.in_event(self.keep)


@dataclass(frozen=True)
class HistoryTask:
    """What every segment of a log changed, on the rows of both splits: one row a task and split."""

    rules: Rules
    segments: tuple[tuple[Patch, ...], ...]
    holdout: Holdout
    source: CellSource = FROM_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total: dict[str, list[Totals | None]] = {}
        measured: dict[str, Measured] = {}
        for kind, packed in self.source(batches):
            block = unpack_block(packed)
            if kind not in measured:
                holdout = self.holdout if kind == "holdout" else None
                measured[kind] = Measured(self.segments, self.rules, block.n_classes, holdout)
            changes = measured[kind].changes(block)
            known = total.setdefault(kind, [None] * len(changes))
            total[kind] = added([[t for t in known if t is not None], changes], len(changes))
        for kind, summed in total.items():
            yield row(kind, 0, pack_changes([t for t in summed if t is not None]))


@dataclass(frozen=True)
class ApplyTask:
    """Rows with their reconciled scores and actions: a pure map. reader: as of `ScanTask`."""

    extension: Extension
    names: tuple[str, ...]  # of the columns, which travel without
    vectors: tuple[str, ...] = ()
    reader: Reader | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in pieces(batches) if self.reader is None else self.reader(batches):
            problems = BadRows()
            named = batch.rename_columns(self.names)
            # a task cannot know the numbers of its rows
            new = self.extension.columns(dense_batch(named, self.vectors), problems, start=None)
            if not self.extension.skip:
                problems.raise_if_any("the data", "\n  (in one batch; others may have more)")
            rows = new.beside(named, self.extension.names)
            if rows.num_rows:
                yield rows


@dataclass(frozen=True)
class ProblemsTask:
    """Every row that cannot be used, counted and named; `ApplyTask` stops at the first batch."""

    layout: Layout
    names: tuple[str, ...]  # of the columns, which travel without
    vectors: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        problems, rows = BadRows(), 0
        for batch in pieces(batches):
            dense = dense_batch(batch.rename_columns(self.names), self.vectors)
            read(dense, self.layout, problems, None)
            rows += batch.num_rows
        yield row("statistics", rows, json.dumps(problems.to_json()).encode())


def dense_batch(batch: pa.RecordBatch, vectors: Sequence[str]) -> pa.RecordBatch:
    """Spark ML vectors travel as structs (type, size, indices, values): arrays are made of them."""
    for name in vectors:
        if name in batch.schema.names:
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, name, dense(batch.column(place)))
    return batch


def dense(column: pa.StructArray) -> pa.Array:
    values = column.field("values").to_pylist()
    if bool(column.null_count) or 0 in set(column.field("type").to_pylist()):
        sizes, places = column.field("size").to_pylist(), column.field("indices").to_pylist()
        known = column.is_valid().to_pylist()
        for i, kind in enumerate(column.field("type").to_pylist()):
            if not known[i]:
                values[i] = None
            elif kind == 0:
                full = [0.0] * sizes[i]
                for place, value in zip(places[i], values[i], strict=True):
                    full[place] = value
                values[i] = full
        return pa.array(values, pa.list_(pa.float64()))
    return column.field("values").cast(pa.list_(pa.float64()))


def answer(rows: Rows, question: Question, model: int = 0) -> dict[str, Array]:
    """Small integer arrays that add up over blocks."""
    rules = rows.rules
    if question == "events":
        rows.settle()
        counts = event_counts(rows.events, rules.losses, rows.w)
        return {f"events.{i}": c for i, c in enumerate(counts)}
    if question == "residuals":
        return residuals(rows, model).to_arrays()
    if question == "decisions":
        decided = decision_sums(rows)
        return decided.to_arrays() | {"disputed": np.array([decided.disputed])}
    block = rows.current()
    if question == "gaps":
        coordinates = range(*rules.coordinates.indices(block.n_classes))
        return gap_sums(block, rules, coordinates).to_arrays()
    return sums(block).to_arrays("sum_")


def add_up(total: dict[str, Array], more: dict[str, Array]) -> None:
    for name, array in more.items():
        total[name] = total[name] + array if name in total else array

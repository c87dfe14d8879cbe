"""What a Spark worker does with its share of the rows: functions for `mapInArrow`.

No pyspark here: a worker finds these by importing the package, with numpy and pyarrow alone.
Every task gives back rows of SCHEMA: blocks of packed rows and one row of statistics.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

try:
    import numpy as np
    import pyarrow as pa
except ImportError as err:
    from redcal_spark.errors import UsageError

    raise UsageError(  # in a worker, whose Python is not ours
        f"the Python of Spark's workers, {sys.executable}, cannot be used ({err}): they need numpy "
        "and pyarrow. Install both there, or name a Python that has them with PYSPARK_PYTHON "
        "before Spark starts"
    ) from None

from redcal_spark.core.additive import Array
from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Layout
from redcal_spark.core.events import Disagreement
from redcal_spark.core.history import Measured, added
from redcal_spark.core.kernel import Rules, event_counts
from redcal_spark.core.metrics import Totals
from redcal_spark.core.output_columns import OutputNames, extend
from redcal_spark.core.packing import (
    pack,
    pack_block,
    pack_changes,
    pack_gathered,
    unpack_block,
)
from redcal_spark.core.patches import Patch
from redcal_spark.core.reading import BadRows, read
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.core.rows import Rows
from redcal_spark.core.scan import Scanner, ScanResult
from redcal_spark.core.sums import gap_sums, residuals, sums

SCHEMA = pa.schema([("kind", pa.string()), ("rows", pa.int64()), ("data", pa.binary())])
BLOCK_BYTES = 4 * 2**20  # a cell; larger ones overrun the JVM's heap
DDL = "kind string, rows bigint, data binary"

Kind = Literal["fit", "holdout", "statistics"]
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class ScanTask:
    """The one scan of the table: counts, and the active rows of both splits as blocks."""

    scanner: Scanner
    names: tuple[str, ...]  # of the columns, which travel without
    vectors: tuple[str, ...] = ()  # columns that hold Spark ML vectors

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total = ScanResult.nothing(self.scanner.rules, self.scanner.layout.n_classes)
        active_bytes = 0
        packers = {"fit": Packer("fit"), "holdout": Packer("holdout")}
        for batch in batches:  # a task cannot know the numbers of its rows
            rows = dense_batch(batch.rename_columns(self.names), self.vectors)
            found = self.scanner((None, rows))
            for name, part in (("fit", found.fit), ("holdout", found.holdout)):
                for scan in part.scans:
                    active_bytes += scan.active.nbytes
                    yield from packers[name].add(scan.active)
                part.scans = []
            total.merge(found)
        for packer in packers.values():
            yield from packer.flush()
        yield row("statistics", total.rows, pack_gathered(total, active_bytes))


@dataclass(frozen=True)
class BlockState:
    """What must be done to stored blocks before anything can be asked of them.

    patches: replayed on every block. round: the blocks are the rows of this round's event.
    """

    rules: Rules
    patches: tuple[Patch, ...]
    round: int | None = None

    def rows(self, packed: Any) -> Rows:
        rows = Rows(unpack_block(packed), self.rules)
        if self.round is not None:
            rows.frozen, rows.round = np.arange(len(rows)), self.round
        for patch in self.patches:
            rows.apply(patch)
        return rows


Question = Literal["events", "residuals", "gaps", "sums"]


@dataclass(frozen=True)
class AskTask:
    """Statistics of the rows as patched so far: one row a task."""

    state: BlockState
    question: Question
    model: int = 0

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total: dict[str, Array] = {}
        count = size = 0
        for packed in cells(batches):
            rows = self.state.rows(packed)
            count, size = count + len(rows), size + len(packed)
            add_up(total, answer(rows, self.question, self.model))
        yield row("statistics", count, pack({"rows": count, "bytes": size}, total))


@dataclass(frozen=True)
class KeepTask:
    """The rows as patched so far, as blocks again: all, the active ones, or those of an event."""

    state: BlockState
    keep: Literal["all", "active", "frozen"] | Disagreement

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        packer = Packer("fit")
        total: dict[str, Array] = {}
        count = size = 0
        for packed in cells(batches):
            rows = self.state.rows(packed)
            index = self._index(rows)
            kept = rows.take(index)
            count += len(kept)
            if kept.y is not None and len(kept):
                add_up(total, answer(kept, "sums"))
            if self.keep in ("all", "active"):
                add_up(total, answer(rows, "events"))
            block = kept.current()
            size += block.nbytes
            yield from packer.add(block)
        yield from packer.flush()
        yield row("statistics", count, pack({"rows": count, "bytes": size}, total))

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

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total: dict[Kind, list[Totals | None]] = {}
        measured: dict[Kind, Measured] = {}
        for batch in batches:
            kinds = batch.column(batch.schema.get_field_index("kind")).to_pylist()
            for kind, packed in zip(kinds, cells([batch]), strict=True):
                block = unpack_block(packed)
                if kind not in measured:
                    holdout = kind == "holdout"
                    measured[kind] = Measured(
                        self.segments, self.rules, block.n_classes, paired=holdout
                    )
                found = measured[kind].changes(block)
                known = total.setdefault(kind, [None] * len(found))
                total[kind] = added([[t for t in known if t is not None], found], len(found))
        for kind, summed in total.items():
            yield row(kind, 0, pack_changes([t for t in summed if t is not None]))


@dataclass(frozen=True)
class ApplyTask:
    """Rows with their reconciled scores and actions: a pure map."""

    layout: Layout
    rules: Rules
    log: tuple[Patch, ...]
    names: tuple[str, ...]  # of the columns, which travel without
    new: OutputNames
    skip: bool
    vectors: tuple[str, ...] = ()
    roles: Roles = UNKNOWN

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:  # a task cannot know the numbers of its rows
            problems = BadRows()
            rows = dense_batch(batch.rename_columns(self.names), self.vectors)
            found = extend(
                rows,
                self.layout,
                self.rules,
                self.log,
                self.new,
                problems,
                None,
                self.skip,
                self.roles,
            )
            if not self.skip:
                problems.raise_if_any("the data", "\n  (in one batch; others may have more)")
            columns = [*batch.columns, *found.columns[batch.num_columns :]]
            yield pa.RecordBatch.from_arrays(columns, names=found.schema.names)


@dataclass(frozen=True)
class ProblemsTask:
    """Every row that cannot be used, counted and named; `ApplyTask` stops at the first batch."""

    layout: Layout
    names: tuple[str, ...]  # of the columns, which travel without
    vectors: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        problems, rows = BadRows(), 0
        for batch in batches:
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
        counts = event_counts(rows.events, rules.losses)
        return {f"events.{i}": c for i, c in enumerate(counts)}
    if question == "residuals":
        return residuals(rows, model).to_arrays()
    block = rows.current()
    if question == "gaps":
        coordinates = range(*rules.coordinates.indices(block.n_classes))
        return gap_sums(block, rules, coordinates).to_arrays()
    return sums(block).to_arrays("sum_")


def add_up(total: dict[str, Array], more: dict[str, Array]) -> None:
    for name, array in more.items():
        total[name] = total[name] + array if name in total else array


@dataclass
class Packer:
    """Collects rows and gives them back as packed blocks of a few MB."""

    kind: Kind
    _waiting: list[Block] = field(default_factory=list)
    _bytes: int = 0

    def add(self, block: Block) -> Iterator[pa.RecordBatch]:
        if not block.rows:
            return
        size = max(1, BLOCK_BYTES // max(1, block.nbytes // block.rows))
        for piece in block.pieces(size):
            if self._bytes + piece.nbytes > BLOCK_BYTES:
                yield from self.flush()
            self._waiting.append(piece)
            self._bytes += piece.nbytes

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._waiting:
            block = Block.concat(self._waiting)
            self._waiting, self._bytes = [], 0
            yield row(self.kind, block.rows, pack_block(block))


def cells(batches: Batches) -> Iterator[memoryview]:
    """The packed blocks of some rows, one by one, without copying them."""
    for batch in batches:
        column = batch.column(batch.schema.get_field_index("data"))
        for cell in column:
            yield memoryview(cell.as_buffer())


def row(kind: Kind, rows: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([kind]), pa.array([rows], pa.int64()), pa.array([data], pa.binary())],
        schema=SCHEMA,
    )


def blocks_of(cells_: Iterable[Any]) -> list[Block]:
    return [unpack_block(cell) for cell in cells_]

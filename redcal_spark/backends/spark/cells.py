"""Cells: blocks of rows in scratch, and how a worker's task reads and writes them.

A cell is a packed block of rows of one kind and group. Cells are rows of a table that Spark writes,
or lie in files that tasks write themselves. Then the row that a task gives back, which Spark counts
once however often the task was tried, names its file and the cells in it: that is the manifest.

No pyspark here: a worker finds these by importing the package, with numpy and pyarrow alone.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import fs

from redcal_spark.core.additive import Array
from redcal_spark.core.arrow import Batches
from redcal_spark.core.blocks import Block
from redcal_spark.core.groups import Grouping, Groups
from redcal_spark.core.kernel import Events, Index, Rules
from redcal_spark.core.packing import pack, packed_parts, unpack
from redcal_spark.errors import ScratchError

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("group", pa.int64()),
        ("portion", pa.int32()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)
DDL = "kind string, `group` bigint, portion int, rows bigint, data binary"
CELLS, GROUPS, STATISTICS = "cells", "groups", "statistics"  # rows that hold no cell
PORTIONS = 64  # into which the cells of a Spark table fall, to be collected one by one
BLOCK_BYTES = 4 * 2**20  # a cell; larger ones overrun the JVM's heap
SORTED_BYTES = 4 * BLOCK_BYTES  # rows that are sorted by group at a time
KINDS = ("fit", "holdout")
UNREADABLE_CELL = "a block in scratch cannot be read"


def row(kind: str, rows: int, data: Any, group: int = 0) -> pa.RecordBatch:
    """portion: by chance, so that rows can be collected, or merged, some at a time."""
    values = zip((kind, group, secrets.randbelow(PORTIONS), rows, data), SCHEMA, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in values], schema=SCHEMA
    )


class Cell(NamedTuple):
    """Where a cell is, in files that tasks wrote."""

    file: str
    kind: str
    group: int
    rows: int
    start: int
    length: int


# --- reading -------------------------------------------------------------------------------------


class FromRows:
    """Cells that come as rows of a Spark table."""

    def __call__(self, batches: Batches) -> Iterator[tuple[str, memoryview]]:
        for batch in batches:
            kinds = batch.column(batch.schema.get_field_index("kind")).to_pylist()
            data = batch.column(batch.schema.get_field_index("data"))
            for kind, cell in zip(kinds, data, strict=True):
                yield kind, memoryview(cell.as_buffer())


@dataclass(frozen=True)
class FromFiles:
    """Cells in files: every row that comes is the number of a share."""

    folder: str
    shares: tuple[tuple[Cell, ...], ...]

    def __call__(self, batches: Batches) -> Iterator[tuple[str, memoryview]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for cell, data in read_cells(self.folder, self.shares[number]):
                    yield cell.kind, data


def read_cells(folder: str, cells: Sequence[Cell]) -> Iterator[tuple[Cell, memoryview]]:
    """The bytes of some cells: mapped where the disk is this machine's, else read by ranges."""
    system, path = fs.FileSystem.from_uri(folder)
    name, file = None, None
    try:
        for cell in cells:
            if cell.file != name:
                if file is not None:
                    file.close()
                name, file = cell.file, None  # closed once, also where the next one is lost
                file = _opened(system, f"{path}/{name}")
            assert file is not None
            data = file.read_at(cell.length, cell.start)
            if len(data) != cell.length:
                raise ScratchError(f"{UNREADABLE_CELL}: {folder}/{name} is cut off")
            yield cell, memoryview(pa.py_buffer(data))
    except OSError as err:
        raise ScratchError(f"{UNREADABLE_CELL}: {folder}/{name}: {err}") from err
    finally:
        if file is not None:
            file.close()


def _opened(system: fs.FileSystem, path: str) -> Any:
    return Mapped(path) if isinstance(system, fs.LocalFileSystem) else system.open_input_file(path)


class Mapped:
    """A file in memory; what was read of it outlives closing."""

    def __init__(self, path: str):
        with pa.memory_map(path) as file:
            self._whole = memoryview(file.read_buffer())

    def read_at(self, length: int, start: int) -> Any:
        return self._whole[start : start + length]

    def close(self) -> None:
        del self._whole


@dataclass(frozen=True)
class SeenTask:
    """Whether a worker reads what the driver wrote to a folder; it leaves a word there itself."""

    folder: str
    word: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            seen = Path(self.folder, "driver").read_text() == self.word
            Path(self.folder, "worker").write_text(self.word)
        except OSError:
            seen = False
        yield row(STATISTICS, 0, b"yes" if seen else b"")


# --- writing -------------------------------------------------------------------------------------


class Sink(Protocol):
    """Where a task puts its cells."""

    def put(self, kind: str, group: int, block: Block) -> Iterator[pa.RecordBatch]:
        """Write a block; gives the rows that stand for it, if any."""
        ...

    def close(self) -> Iterator[pa.RecordBatch]:
        """The manifest, if there is one."""
        ...


class RowSink:
    """Cells as rows that Spark writes."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def put(self, kind: str, group: int, block: Block) -> Iterator[pa.RecordBatch]:
        data = b"".join(packed_parts(block))
        self._rows[kind] += block.rows
        self._bytes[kind] += len(data)
        yield row(kind, block.rows, data, group)

    def close(self) -> Iterator[pa.RecordBatch]:
        yield row(CELLS, 0, pack({"rows": self._rows, "bytes": self._bytes}, {}))


class FileSink:
    """Cells in a file of the task's own, made when there is something to write."""

    def __init__(self, folder: str):
        self._folder = folder
        self._name = f"{secrets.token_hex(8)}.cells"
        self._file: Any = None
        self._cells: list[tuple[int, int, int, int, int]] = []
        self._end = 0

    def put(self, kind: str, group: int, block: Block) -> Iterator[pa.RecordBatch]:
        start = self._end
        try:
            if self._file is None:
                system, path = fs.FileSystem.from_uri(self._folder)
                self._file = system.open_output_stream(f"{path}/{self._name}", buffer_size=0)
            for part in packed_parts(block):
                self._file.write(part)
                self._end += memoryview(part).nbytes
        except OSError as err:  # which does not say where
            raise OSError(err.errno, f"{self._folder}: {err}") from err
        length = self._end - start
        self._cells.append((KINDS.index(kind), group, block.rows, start, length))
        yield from ()

    def close(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            self._file.close()
            cells = np.array(self._cells, np.int64)
            yield row(CELLS, 0, pack({"file": self._name}, {"cells": cells}))


@dataclass(frozen=True)
class SinkOf:
    """Makes the sink of a task. folder: where files go; None: cells are rows."""

    folder: str | None = None

    def __call__(self) -> Sink:
        return RowSink() if self.folder is None else FileSink(self.folder)


def cells_of(packed: Any) -> tuple[list[Cell], Counter[str], Counter[str]]:
    """The cells in files that a manifest tells of; rows and bytes of every kind."""
    data, arrays = unpack(packed)
    if "file" not in data:
        return [], Counter(data["rows"]), Counter(data["bytes"])
    cells = [Cell(data["file"], KINDS[kind], *rest) for kind, *rest in arrays["cells"].tolist()]
    rows, sizes = Counter[str](), Counter[str]()
    for cell in cells:
        rows[cell.kind] += cell.rows
        sizes[cell.kind] += cell.length
    return cells, rows, sizes


FROM_ROWS, AS_ROWS = FromRows(), SinkOf()


# --- packing -------------------------------------------------------------------------------------


class Packer:
    """Collects rows of one kind and puts them into a sink as cells of a few MB.

    rules: rows are sorted by the group of their events, and the groups counted.
    """

    def __init__(self, kind: str, sink: Sink, rules: Rules | None = None):
        self.groups = None if rules is None else Groups.none(rules)
        self._kind, self._sink = kind, sink
        self._grouping = None if rules is None else Grouping(rules)
        self._most = BLOCK_BYTES if rules is None else SORTED_BYTES
        self._waiting: list[tuple[Block, Events | None]] = []
        self._size = 0

    def add(self, block: Block, events: Events | None = None) -> Iterator[pa.RecordBatch]:
        """events: where rows are grouped."""
        if not block.rows:
            return
        size = rows_in(self._most, block)
        for start in range(0, block.rows, size):
            part = slice(start, start + size)
            piece = block.take(part)
            if self._size + piece.nbytes > self._most:
                yield from self.flush()
            self._waiting.append((piece, None if events is None else events[:, :, part]))
            self._size += piece.nbytes

    def flush(self) -> Iterator[pa.RecordBatch]:
        if not self._waiting:
            return
        blocks, events = zip(*self._waiting, strict=True)
        self._waiting, self._size = [], 0
        block = Block.concat(blocks)
        if self._grouping is None or self.groups is None:
            yield from self._sink.put(self._kind, 0, block)
            return
        codes = np.concatenate(events, axis=2)
        groups = self._grouping.of(codes)
        self._grouping.count(groups, codes, self.groups, block.w)
        yield from self._sorted(block, groups)

    def close(self) -> Iterator[pa.RecordBatch]:
        """What is still waiting, and what is known of the groups."""
        yield from self.flush()
        if self.groups is not None:
            yield row(GROUPS, 0, pack({}, sparse(self.groups)))

    def _sorted(self, block: Block, groups: Index) -> Iterator[pa.RecordBatch]:
        order = groups.argsort(kind="stable")
        size, start = rows_in(BLOCK_BYTES, block), 0
        for group, rows in enumerate(np.bincount(groups).tolist()):
            for first in range(start, start + rows, size):
                chosen = order[first : min(first + size, start + rows)]
                yield from self._sink.put(self._kind, group, block.take(chosen))
            start += rows


def sparse(groups: Groups) -> dict[str, Array]:
    """Most groups have no row in most events: only the others travel."""
    counts = groups.counts.reshape(-1)
    places = np.flatnonzero(counts)
    return {"rows": groups.rows, "places": places, "counts": counts[places]}


def unpack_groups(packed: Any) -> dict[str, Array]:
    return unpack(packed)[1]


def add_groups(one: dict[str, Array], two: dict[str, Array]) -> dict[str, Array]:
    """What two tasks know of the groups."""
    both = np.concatenate([one["places"], two["places"]])
    places, there = np.unique(both, return_inverse=True)
    counts = np.zeros(len(places), np.int64)
    np.add.at(counts, there, np.concatenate([one["counts"], two["counts"]]))
    return {"rows": one["rows"] + two["rows"], "places": places, "counts": counts}


def dense_groups(known: dict[str, Array], rules: Rules) -> Groups:
    groups = Groups.none(rules)
    groups.rows[:] = known["rows"]
    groups.counts.reshape(-1)[known["places"]] = known["counts"]
    return groups


def rows_in(size: int, block: Block) -> int:
    """How many rows of a block make so many bytes."""
    return max(1, size // max(1, block.nbytes // block.rows))


def from_files(folder: str, cells: Sequence[Cell], share: int) -> tuple[FromFiles, int]:
    """A source of cells in shares of about so many bytes, and how many shares there are."""
    shares: list[list[Cell]] = [[]]
    size = 0
    for cell in sorted(cells):
        if shares[-1] and size + cell.length > share:
            shares.append([])
            size = 0
        shares[-1].append(cell)
        size += cell.length
    return FromFiles(folder, tuple(map(tuple, shares))), len(shares)

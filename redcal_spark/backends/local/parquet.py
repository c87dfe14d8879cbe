"""Parquet files, batch by batch.

pyarrow's own scan of a dataset unpacks whole row groups, several at once, and keeps what it fetched
of a file until the file is done: memory grows with both. Read file by file it needs little more
than a batch, and no more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from redcal_spark.backends.delta_types import inside, is_text
from redcal_spark.core.arrow import BATCH

BATCH_BYTES = 2**25  # of a batch, about: rows may be wide
READ_BYTES = 2**20  # of a column at a time


class Shape(Protocol):
    """How rows of files become rows of their table."""

    def stored(self, file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
        """What the file calls those of the columns that it has."""
        ...

    def rows(
        self,
        fragment: ds.ParquetFileFragment,
        batch: pa.RecordBatch,
        start: int,
        columns: Sequence[str],
    ) -> pa.RecordBatch:
        """A batch of the file that begins at its row `start`, as the table has it."""
        ...

    def count(self, fragment: ds.ParquetFileFragment, start: int, rows: int) -> int:
        """How many of some rows of a file the table has."""
        ...


@dataclass(frozen=True)
class ByName:
    """Files that have the columns by their names, and folders that name others."""

    schema: pa.Schema

    def stored(self, file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name in file.schema_arrow.names]

    def rows(
        self,
        fragment: ds.ParquetFileFragment,
        batch: pa.RecordBatch,
        start: int,
        columns: Sequence[str],
    ) -> pa.RecordBatch:
        wanted = pa.schema([self.schema.field(name) for name in columns])
        return _shaped(batch, wanted, ds.get_partition_keys(fragment.partition_expression))

    def count(self, fragment: ds.ParquetFileFragment, start: int, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class RowGroups:
    """Some of a file's row groups that stand one after the other; None: all of them.

    start: the number of their first row in the file. rows: how many of them the table has.
    """

    fragment: ds.ParquetFileFragment
    index: tuple[int, ...] | None = None
    start: int = 0
    rows: int = 0

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        with self.fragment.open() as file:
            yield pq.ParquetFile(
                file,
                metadata=self.fragment.metadata,
                pre_buffer=False,
                buffer_size=READ_BYTES,
                coerce_int96_timestamp_unit="us",
            )


def in_row_groups(dataset: ds.Dataset, shape: Shape) -> Iterator[RowGroups]:
    """The row groups of all files, in their order."""
    for fragment in dataset.get_fragments():
        metadata, start = fragment.metadata, 0
        for i in range(metadata.num_row_groups):
            rows = metadata.row_group(i).num_rows
            yield RowGroups(fragment, (i,), start, shape.count(fragment, start, rows))
            start += rows


def in_files(dataset: ds.Dataset) -> Iterator[RowGroups]:
    return (RowGroups(fragment) for fragment in dataset.get_fragments())


def read_parquet(
    groups: Iterable[RowGroups],
    shape: Shape,
    columns: Sequence[str],
    rows: int | None = None,
    threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Rows of Parquet files, in order, as their table has them.

    rows: how many a batch; unless told, the first file decides.
    threads: pyarrow may unpack columns at the same time.
    """
    for group in groups:
        start = group.start
        with group.opened() as file:
            there = shape.stored(file, columns)
            rows = rows or batch_rows(file, there)
            for batch in file.iter_batches(
                rows or BATCH, row_groups=group.index, columns=there, use_threads=threads
            ):
                _check_texts(batch)
                yield shape.rows(group.fragment, batch, start, columns)
                start += batch.num_rows


def _check_texts(batch: pa.RecordBatch) -> None:
    """pyarrow takes the bytes of texts as they are; to show one that is no UTF-8 would fail."""
    for column in batch.columns:
        if any(map(is_text, inside(column.type))):
            column.validate(full=True)


def put_together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches, of small files, made larger: each costs a millisecond, however small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH // 4 or size >= BATCH_BYTES // 4:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)


def batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int | None:
    """Rows a batch: fewer where they are wide, as a thousand scores a row would be.

    None: the file has none.
    """
    if not file.metadata.num_row_groups:
        return None
    # pyarrow ends the process if it is asked about a chunk that was tampered with; reading says so
    next(file.iter_batches(1, row_groups=[0], columns=columns), None)
    group, schema = file.metadata.row_group(0), file.schema
    wanted = [i for i in range(len(schema)) if schema.column(i).path.split(".")[0] in columns]
    chunks = [group.column(i) for i in wanted]
    # a dictionary may make 8,000 bytes a few; the number of values tells what they unpack to
    size = sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks)
    return max(1, min(BATCH, BATCH_BYTES * int(group.num_rows) // max(1, int(size))))


def _shaped(batch: pa.RecordBatch, wanted: pa.Schema, fixed: dict[str, Any]) -> pa.RecordBatch:
    """The batch with the columns that its folder names or that its file has not, and the types."""
    if batch.schema.equals(wanted):
        return batch
    there = set(batch.schema.names)
    arrays = []
    for field in wanted:
        if field.name in there:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            value = pa.scalar(fixed.get(field.name), field.type)
            arrays.append(pa.repeat(value, batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)

"""The Parquet files of a table, in their order or row group by row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from redcal_spark.core.arrow import BATCH
from redcal_spark.core.columns import is_text
from redcal_spark.core.parquet import batch_rows, check_texts, parquet_file


class Shape(Protocol):
    """How rows of files become rows of their table."""

    def stored(self, file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
        """What the file calls those of the columns that it has."""

    def rows(
        self,
        fragment: ds.ParquetFileFragment,
        batch: pa.RecordBatch,
        start: int,
        columns: Sequence[str],
        repeated: Sequence[str] = (),
    ) -> pa.RecordBatch:
        """A batch of the file that begins at its row `start`, as the table has it.

        repeated: texts among the columns that may stay dictionaries.
        """

    def count(self, fragment: ds.ParquetFileFragment, start: int, rows: int) -> int:
        """How many of some rows of a file the table has."""


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
        repeated: Sequence[str] = (),
    ) -> pa.RecordBatch:
        wanted = pa.schema(
            wanted_field(self.schema.field(name), batch, name in repeated) for name in columns
        )
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
    def opened(self, shape: Shape, repeated: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
        metadata = self.fragment.metadata
        with self.fragment.open() as opened:
            file = parquet_file(opened, metadata)
            there = file.schema_arrow
            texts = [n for n in shape.stored(file, repeated) if is_text(there.field(n).type)]
            if texts:
                file = parquet_file(opened, metadata, texts)
            yield file


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
    repeated: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Rows of Parquet files, in order, as their table has them.

    rows: how many a batch; unless told, the first file decides.
    threads: pyarrow may unpack columns at the same time.
    repeated: columns of few values. Files have most texts as dictionaries, and these stay so.
    """
    for group in groups:
        start = group.start
        with group.opened(shape, repeated) as file:
            there = shape.stored(file, columns)
            rows = rows or batch_rows(file, there)
            for batch in file.iter_batches(
                rows or BATCH, row_groups=group.index, columns=there, use_threads=threads
            ):
                check_texts(batch)
                yield shape.rows(group.fragment, batch, start, columns, repeated)
                start += batch.num_rows


def wanted_field(field: pa.Field, batch: pa.RecordBatch, repeated: bool) -> pa.Field:
    """A table's column as it is read: a dictionary of its values, where that is what there is."""
    place = batch.schema.get_field_index(field.name) if repeated else -1
    kind = None if place < 0 else batch.schema.field(place).type
    same = kind is not None and pa.types.is_dictionary(kind) and kind.value_type == field.type
    return field.with_type(kind) if same else field


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

"""What a Spark worker does to read its share of a table's files itself, with pyarrow.

No pyspark here: a worker finds this by importing the package, with numpy and pyarrow alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from redcal_spark.backends.object_stores import file_system
from redcal_spark.config.addresses import scheme_of
from redcal_spark.core.parquet import batch_rows, check_texts, parquet_file, put_together
from redcal_spark.core.parquet_columns import UnlikeTable, as_in_table, stored_columns
from redcal_spark.errors import InputError

# The words by which the driver knows that Spark may still be able to read the rows.
Options = tuple[tuple[str, str], ...]
NOT_DIRECTLY = "cannot be read by tasks themselves"
UNREADABLE = (pa.ArrowException, OSError, UnicodeError, UnlikeTable)


@dataclass(frozen=True)
class FilePart:
    """Rows of a file: of the row groups whose middle row is about within these bytes of it.

    size: of the whole file, as the driver saw it. values: of columns that are not in the file.
    """

    path: str
    size: int
    start: int
    end: int
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class FileReader:
    """Reads the files of a task. parts: by the task's number, which is what comes to it.

    schema: of the rows. partitions: columns that are not in files; parts have their values.
    options: where an object store is; who asks is the worker's own business.
    """

    schema: pa.Schema
    partitions: tuple[str, ...]
    parts: tuple[tuple[FilePart, ...], ...]
    options: Options = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = chain.from_iterable(map(self._read, self.parts[number]))
                yield from put_together(rows)

    def _read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        stored = pa.schema([field for field in self.schema if field.name not in self.partitions])
        values = dict(zip(self.partitions, part.values, strict=True))
        with opened(part.path, part.size, self.options) as file:
            there = stored_columns(file, stored)
            groups = groups_within(file.metadata, part)
            rows = batch_rows(file, there) if groups else None
            if rows is None:
                return
            for batch in file.iter_batches(rows, groups, there, use_threads=False):
                check_texts(batch)
                yield self._shaped(batch, values)

    def _shaped(self, batch: pa.RecordBatch, values: dict[str, Any]) -> pa.RecordBatch:
        """The batch in the table's types; a column that its file has not is null there."""
        there = set(batch.schema.names)
        arrays = []
        for field in self.schema:
            if field.name in there:
                arrays.append(as_in_table(batch.column(field.name), field.type))
            else:
                value = pa.scalar(values.get(field.name), field.type)
                arrays.append(pa.repeat(value, batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True)
class ProbeTask:
    """Whether a worker can read files of a table: one row a task, an empty text if it can."""

    schema: pa.Schema
    parts: tuple[FilePart, ...]
    options: Options = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"why": [self._why() or ""]})

    def _why(self) -> str | None:
        for part in self.parts:
            if (why := unreadable(part, self.schema, self.options)) is not None:
                return why
        return None


def unreadable(part: FilePart, stored: pa.Schema, options: Options = ()) -> str | None:
    """Why a file cannot be read here, if it cannot."""
    try:
        with opened(part.path, part.size, options) as file:
            stored_columns(file, stored)
    except InputError as err:
        return str(err).partition(f"{NOT_DIRECTLY}: ")[2]
    return None


@contextmanager
def opened(uri: str, size: int, options: Options = ()) -> Iterator[pq.ParquetFile]:
    """A file of a table, if it is still of this size."""
    try:
        filesystem, path = at(uri, options)
        with filesystem.open_input_file(path) as file:
            if file.size() != size:
                raise OSError(f"has {file.size():,} bytes, not {size:,}: it was changed")
            yield parquet_file(file)
    except UNREADABLE as err:
        raise InputError(f"the data: {NOT_DIRECTLY}: {uri}: {_in_words(err)}") from err


def at(uri: str, options: Options = ()) -> tuple[pa.fs.FileSystem, str]:
    """What a file is opened through, and its path there."""
    if os.path.isabs(uri):  # a plain path may hold signs that mean something else in an address
        return pa.fs.LocalFileSystem(), uri
    if scheme_of(uri) is not None:
        return file_system(uri, dict(options))
    filesystem, path = pa.fs.FileSystem.from_uri(uri)
    return filesystem, path


def groups_within(metadata: pq.FileMetaData, part: FilePart) -> list[int]:
    """Row groups by the place of their middle row: each belongs to one part of its file.

    By rows: pyarrow ends the process if it is asked where in a file that was tampered with.
    """
    groups, before = [], 0
    for i in range(metadata.num_row_groups):
        rows = metadata.row_group(i).num_rows
        middle = part.size * (2 * before + rows) // (2 * max(1, metadata.num_rows))
        if part.start <= min(max(0, middle), part.size - 1) < part.end:
            groups.append(i)
        before += rows
    return groups


def _in_words(err: BaseException) -> str:
    number = getattr(err, "errno", None)
    text = os.strerror(number) if number else str(err)
    return text.splitlines()[0] if text else type(err).__name__

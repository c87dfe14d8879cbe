"""What a Spark worker does to write its share of the reconciled rows itself, as Parquet files.

No pyspark here, as in `tasks`. A task gives back a small row for every file that it closed: what
Spark collects of these is the manifest. Tasks that died or lost a race gave nothing back, so that
their files are in no commit.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from redcal_spark.core.arrow import Batches
from redcal_spark.errors import InputError

FILE_BYTES = 256 * 2**20  # a file is closed when it is larger
GROUP_BYTES = 32 * 2**20  # rows of a file that wait for their row group
WAITING_BYTES = 96 * 2**20  # rows of all files that wait
OPEN_FILES = 64
INDEXED = 32  # columns with statistics, as Delta's writers have it
LONGEST = 32  # signs of a text in statistics
MAX_FOLDER = 250  # signs of a folder's name; file systems take 255
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
ENDING = ".snappy.parquet"

MANIFEST = pa.schema([("rows", pa.int64()), ("file", pa.string())])
MANIFEST_DDL = "rows bigint, file string"


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file as Delta's log tells of it. path: below the table's folder."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    stats: str
    written_at: int  # milliseconds

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WrittenFile:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class WriteTask:
    """Rows made by another task, written into a table's folder.

    schema: of the table, partition columns included. constants: columns that the rows have not,
    and their one value. prefix: how the names of the run's files begin. reader: what comes to the
    task names its share of the input's files, and this reads them.
    """

    make: Callable[[Batches], Iterator[pa.RecordBatch]]
    folder: str
    prefix: str
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    reader: Callable[[Batches], Iterator[pa.RecordBatch]] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        files = Files(self.folder, self.prefix, self.schema, self.partitions)
        read = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch in batches if self.reader is None else self.reader(batches):
                read += batch.num_rows
                yield batch

        try:
            for rows in self.make(counted()):
                files.add(self._as_stored(rows))
            written = files.close()
        except BaseException:
            files.discard()
            raise
        yield _row(read, "")
        for file in written:
            yield _row(0, file.to_json())

    def _as_stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(rows)))
        return rows.select(self.schema.names).cast(self.schema)


@dataclass
class OpenFile:
    """A file that gets rows, and what is known of those."""

    path: str
    partition: dict[str, str | None]
    writer: pq.ParquetWriter
    sink: Any
    stats: Statistics
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.stats.add(rows)
        self.waiting.append(rows)
        self.bytes += rows.nbytes

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.bytes = [], 0


class Files:
    """The files of one task: one per partition, and a new one when it is large enough."""

    def __init__(self, folder: str, prefix: str, schema: pa.Schema, partitions: Sequence[str]):
        self._fs, self._folder = fs.FileSystem.from_uri(folder)
        self._prefix, self._partitions = prefix, tuple(partitions)
        self._schema = pa.schema([each for each in schema if each.name not in partitions])
        self._open: dict[str, OpenFile] = {}
        self._done: list[WrittenFile] = []
        self._texts = [f.name for f in self._schema if pa.types.is_string(f.type)]

    def add(self, rows: pa.RecordBatch) -> None:
        for partition, part in parted(rows, self._partitions):
            file = self._file(partition)
            file.add(part)
            if file.bytes >= GROUP_BYTES:
                file.flush()
                if file.sink.tell() >= FILE_BYTES:
                    self._close(_folder_of(partition))
        if sum(file.bytes for file in self._open.values()) > WAITING_BYTES:
            for file in self._open.values():
                file.flush()

    def close(self) -> list[WrittenFile]:
        for key in list(self._open):
            self._close(key)
        return self._done

    def discard(self) -> None:
        """Nothing of it shall stay."""
        paths = [*(file.path for file in self._open.values()), *(file.path for file in self._done)]
        for file in self._open.values():
            with suppress(OSError, pa.ArrowException):
                file.writer.close()
                file.sink.close()
        for path in paths:
            with suppress(OSError):
                self._fs.delete_file(f"{self._folder}/{path}")

    def _file(self, partition: dict[str, str | None]) -> OpenFile:
        key = _folder_of(partition)
        if key not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open)))
            if key:
                self._fs.create_dir(f"{self._folder}/{key}")
            path = f"{key}{self._prefix}{uuid4().hex}{ENDING}"
            sink = self._fs.open_output_stream(f"{self._folder}/{path}")
            # scores hardly repeat: a dictionary of them would be made and thrown away
            writer = pq.ParquetWriter(
                sink, self._schema, compression="snappy", use_dictionary=self._texts
            )
            self._open[key] = OpenFile(path, partition, writer, sink, Statistics(self._schema))
        return self._open[key]

    def _close(self, key: str) -> None:
        file = self._open[key]
        file.flush()
        file.writer.close()
        file.sink.close()
        del self._open[key]
        size = self._fs.get_file_info(f"{self._folder}/{file.path}").size
        now = time.time_ns() // 1_000_000
        stats = file.stats.to_json()
        self._done.append(WrittenFile(file.path, size, file.stats.rows, file.partition, stats, now))


# --- partitions -----------------------------------------------------------------------------------


def parted(
    rows: pa.RecordBatch, partitions: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.RecordBatch]]:
    """The rows by the values of their partition columns, without these."""
    if not partitions:
        yield {}, rows
        return
    rest = [name for name in rows.schema.names if name not in partitions]
    codes = [rows.column(name).dictionary_encode(null_encoding="encode") for name in partitions]
    keys = np.stack([code.indices.to_numpy(zero_copy_only=False) for code in codes], axis=1)
    groups, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    for number, key in enumerate(groups):
        values = [code.dictionary[int(k)].as_py() for code, k in zip(codes, key, strict=True)]
        named = {n: in_log(value) for n, value in zip(partitions, values, strict=True)}
        one = len(groups) == 1
        part = rows if one else rows.take(pa.array(np.flatnonzero(group == number)))
        yield named, part.select(rest)


def in_log(value: Any) -> str | None:
    """A partition's value as Delta's log has it; there, a text of nothing is null."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or value == "" else str(value)


def _folder_of(partition: Mapping[str, str | None]) -> str:
    """The folders of a partition, with a slash at the end; nothing where there are none."""
    folders = []
    for name, value in partition.items():
        folder = f"{quote(name, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}"
        if len(folder) > MAX_FOLDER:
            raise InputError(
                f"output.partition_by: column {name!r} has a value of {len(value or '')} signs, "
                f"too long for the name of a folder: {(value or '')[:40]!r}..."
            )
        folders.append(f"{folder}/")
    return "".join(folders)


# --- statistics -----------------------------------------------------------------------------------


class Statistics:
    """What Delta's log says of a file, so that readers may skip it. Left out where in doubt."""

    def __init__(self, schema: pa.Schema):
        flat = [f for f in list(schema)[:INDEXED] if not pa.types.is_nested(f.type)]
        self._names = [f.name for f in flat]
        self._ranged = {f.name for f in flat if _has_range(f.type)}
        self.rows = 0
        self._nulls = dict.fromkeys(self._names, 0)
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for name in self._names:
            column = rows.column(name)
            self._nulls[name] += column.null_count
            if name in self._ranged and column.null_count < len(column):
                self._add_range(name, column)

    def _add_range(self, name: str, column: pa.Array) -> None:
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            self._ranged.discard(name)  # NaN is above all numbers to Delta, and to Arrow nowhere
            return
        try:
            ends = pc.min_max(column)
            least, most = ends["min"].as_py(), ends["max"].as_py()
        except (ValueError, OverflowError):  # a time that Python's calendar does not have
            self._ranged.discard(name)
            return
        if isinstance(most, float) and not (math.isfinite(least) and math.isfinite(most)):
            self._ranged.discard(name)  # JSON has no infinity
            return
        self._least[name] = least if name not in self._least else min(self._least[name], least)
        self._most[name] = most if name not in self._most else max(self._most[name], most)

    def to_json(self) -> str:
        known = [name for name in self._names if name in self._ranged and name in self._least]
        least = {name: _shown(self._least[name]) for name in known}
        most = {name: _shown(self._most[name]) for name in known if _whole(self._most[name])}
        stats = {"numRecords": self.rows, "minValues": least, "maxValues": most}
        return json.dumps(stats | {"nullCount": self._nulls}, allow_nan=False)


def _has_range(kind: pa.DataType) -> bool:
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(
        numbers or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    )


def _whole(value: Any) -> bool:
    """Whether the largest value can be told: a text that is cut would be too small."""
    return not isinstance(value, str) or len(value) <= LONGEST


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "Z"
        plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return plain.isoformat(timespec="microseconds") + zone
    if isinstance(value, date):
        return value.isoformat()
    return value


def _row(rows: int, file: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([rows], pa.int64()), pa.array([file], pa.string())], schema=MANIFEST
    )


# --- can they write at all? -----------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeTask:
    """Whether a worker sees the folder that the driver sees, and can write there.

    token: what the driver wrote into the file `name` there.
    """

    folder: str
    name: str
    token: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield _row(0, self._problem() or "")

    def _problem(self) -> str | None:
        try:
            place, folder = fs.FileSystem.from_uri(self.folder)
            with place.open_input_stream(f"{folder}/{self.name}") as there:
                if there.read().decode() != self.token:
                    return "they see another folder of that name"
            own = f"{folder}/{self.name}-{uuid4().hex}"
            with place.open_output_stream(own) as here:
                here.write(b"probe")
            place.delete_file(own)
        except (OSError, pa.ArrowException) as err:
            return str(err).splitlines()[0]
        return None

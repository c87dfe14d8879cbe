"""Files as tables: Parquet and CSV, one file, a folder, or partitioned folders."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from redcal_spark.backends.local.csv_types import csv_types, folder_columns, refuse_repeated
from redcal_spark.backends.local.parquet import (
    ByName,
    RowGroups,
    Shape,
    in_files,
    in_row_groups,
    read_parquet,
)
from redcal_spark.backends.location import Location, failed
from redcal_spark.backends.threads import cores
from redcal_spark.config.addresses import canonical
from redcal_spark.core.arrow import BATCH
from redcal_spark.core.parquet import batch_rows, put_together
from redcal_spark.core.scan import BatchGroup, each_alone, numbered
from redcal_spark.errors import InputError

PACKED = (".br", ".bz2", ".gz", ".lz4", ".zst")  # which pyarrow unpacks by the name
UNREADABLE = (pa.ArrowException, OSError, UnicodeError)  # names of columns may be no UTF-8
AT_ONCE = 8  # objects that a store is asked about beside each other
GROUPS_A_CORE = 4  # with fewer, some cores would have nothing to do at the end


class FileTable:
    """A table made of Parquet or CSV files."""

    def __init__(
        self, place: Location, dataset: ds.Dataset, kind: str, folders: Sequence[str] = ()
    ):
        self.place = place
        self.name = place.name
        self.kind = kind
        self.folders = folders  # columns of CSV files that are in the names of folders alone
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def files(self) -> list[str]:
        """Their paths; in an object store, those that its file system knows."""
        return sorted(self._dataset.files)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        yield from stream(self._dataset, columns, self.name)

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        return pieces(self._dataset, columns, self.name, repeated=repeated)

    def count(self) -> int | None:
        return int(self._dataset.count_rows()) if self.kind == "parquet" else None

    def identity(self) -> dict[str, Any]:
        if self.place.is_address:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                files = list(threads.map(self._object, self.files))
        else:
            files = list(map(self._file, self.files))
        return {"kind": self.kind, "table": self.place.uri, "files": files}

    def _file(self, file: str) -> list[str | int]:
        try:
            stat = os.stat(file)
            return [file, stat.st_size, stat.st_mtime_ns, _tail_digest(file)]
        except OSError as err:
            raise InputError(f"{file}: {err.strerror}") from err

    def _object(self, path: str) -> list[str | int]:
        """In an object store times tell little: the store's own mark of the content does."""
        name = self.place.shown(path)
        try:
            size, mark = self.place.size(path), self.place.etag(path)
        except OSError as err:
            raise failed(InputError, name, err) from err
        if mark is None:
            raise InputError(
                f"{name}: the object store gives neither an ETag nor a version of it, so that a "
                "change would not be noticed; use a Delta table"
            )
        return [canonical(name), size, mark]


def open_files(place: Location, separator: str, fractions: Sequence[str]) -> FileTable:
    """Tell Parquet from CSV by looking: Parquet files begin and end with PAR1."""
    name, path = place.name, place.pure_path
    files: list[PurePath] = []
    kinds: dict[str, PurePath] = {}
    is_folder = place.is_dir()
    for file in place.data_files() if is_folder else [path]:
        kinds.setdefault(_kind(place, file), file)
        files.append(file)
        if len(kinds) > 1:  # at once: a folder that was not meant may be a whole disk
            mixed = (f"{_called(k)} ({kinds[k].relative_to(path)})" for k in sorted(kinds))
            raise InputError(
                f"{name}: the folder mixes {' and '.join(mixed)}; keep one kind, or begin the "
                "names of other files with _ or ."
            )
    if not files:
        raise InputError(f"{name}: the folder holds no data (no Delta log, no Parquet or CSV file)")
    (kind,) = kinds
    try:
        if kind == "csv":
            schema, options = csv_types(place, files, separator, fractions)
            folders = folder_columns(place, files, options, schema.names)
            dataset = ds.dataset(
                [str(file) for file in files],
                schema=pa.schema([*schema, *folders]),
                format=options,
                filesystem=place.file_system,
                partitioning=ds.partitioning(pa.schema(folders), flavor="hive"),
                partition_base_dir=str(path) if folders else None,
            )
            return FileTable(place, dataset, kind, [field.name for field in folders])
        with place.opened(files[0]) as first:
            refuse_repeated(place.shown(files[0]), pq.read_schema(first).names)
        root = str(path) if is_folder else None
        dataset = ds.dataset(
            [str(file) for file in files],
            format="parquet",
            filesystem=place.file_system,
            partitioning=ds.partitioning(flavor="hive") if root else None,
            partition_base_dir=root,
        )
        return FileTable(place, dataset, kind)
    except UNREADABLE as err:
        raise InputError(f"{name}: cannot be read as {_called(kind)}: {_error_text(err)}") from err


def stream(
    dataset: ds.Dataset,
    columns: Sequence[str] | None,
    name: str,
    given: Shape | None = None,
    repeated: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of a dataset; memory does not grow with the table, nor with its row groups.

    given: how rows of Parquet files become rows of the table; usually by the columns' names.
    """
    wanted = list(dataset.schema.names if columns is None else columns)
    with _readable(dataset, name):
        if _is_parquet(dataset):
            shape = given or ByName(dataset.schema)
            rows = read_parquet(in_files(dataset), shape, wanted, repeated=repeated)
        else:
            rows = dataset.to_batches(columns=wanted, batch_readahead=2, fragment_readahead=1)
        yield from put_together(rows)


def pieces(
    dataset: ds.Dataset,
    columns: Sequence[str],
    name: str,
    given: Shape | None = None,
    repeated: Sequence[str] = (),
) -> Iterator[BatchGroup]:
    """The same in pieces, of row groups that a thread reads on its own where there are many.

    Of few row groups, columns are unpacked at the same time instead: by `stream`.
    """
    shape = given or ByName(dataset.schema)
    with _readable(dataset, name):
        groups = in_row_groups(dataset, shape) if _is_parquet(dataset) else iter(())
        first = list(islice(groups, GROUPS_A_CORE * cores()))
    if len(first) < GROUPS_A_CORE * cores():
        yield from each_alone(stream(dataset, columns, name, shape, repeated))
        return
    rows = None

    def read(some: list[RowGroups], start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        with _readable(dataset, name):
            batches = read_parquet(some, shape, columns, rows, threads=False, repeated=repeated)
            yield from numbered(put_together(batches), start)

    start = 0
    waiting: list[RowGroups] = []
    with _readable(dataset, name):
        with first[0].opened(shape) as file:
            rows = batch_rows(file, shape.stored(file, columns))
        for group in chain(first, groups):
            waiting.append(group)
            count = sum(group.rows for group in waiting)
            if count >= BATCH:
                yield read(waiting, start)
                start, waiting = start + count, []
    if waiting:
        yield read(waiting, start)


@contextmanager
def _readable(dataset: ds.Dataset, name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as err:
        raise InputError(f"{name}: cannot be read: {_error_text(err, dataset.schema)}") from err


def _is_parquet(dataset: ds.Dataset) -> bool:
    return isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat)


def _kind(place: Location, file: PurePath) -> str:
    """What a file is, by its first bytes."""
    name = place.shown(file)
    if not place.is_address and not place.is_file(file):
        raise InputError(f"{name}: is neither a file nor a folder")
    try:
        with place.opened(file) as opened:
            begin = opened.read(512)
            start = begin[:4]
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - 4))
            end = opened.read(4)
    except OSError as err:
        if place.is_address:
            raise failed(InputError, f"{name}: cannot be read", err) from err
        raise InputError(f"{name}: cannot be read: {err.strerror}") from err
    if start == b"PAR1":
        if end not in (b"PAR1", b"PARE"):
            raise InputError(f"{name}: is not a whole Parquet file: its end is missing")
        return "parquet"
    if file.suffix.lower() == ".parquet":
        what = "is empty" if not start else "does not begin as Parquet files do"
        raise InputError(f"{name}: is no Parquet file in spite of its name: it {what}")
    if b"\0" in begin and file.suffix.lower() not in PACKED:
        raise InputError(f"{name}: is neither Parquet nor a CSV file in UTF-8")
    return "csv"


def _tail_digest(file: str) -> str:
    """A digest of the end of a file: for Parquet that is its footer, with counts and statistics."""
    with open(file, "rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(0, opened.tell() - 65_536))
        return hashlib.sha256(opened.read()).hexdigest()


def _called(kind: str) -> str:
    return "Parquet" if kind == "parquet" else "CSV"


def _error_text(err: Exception, schema: pa.Schema | None = None) -> str:
    """What pyarrow says of a file, in the words of someone who wrote the file."""
    text = first_line(err)
    ragged = re.search(r"CSV parse error: (?:Row #\d+: )?Expected (\d+) columns, got (\d+):", text)
    if ragged is not None:
        line = text[ragged.end() :].strip()
        return f"a line has {ragged[2]} fields, the first line has {ragged[1]}: {line}"
    place = re.search(r"CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to \w+:", text)
    if place is not None and schema is not None and int(place[1]) < len(schema):
        field = schema.field(int(place[1]))
        return (
            f"column {field.name!r}: {text[place.end() :].strip()}, but the values before are of "
            f"type {field.type}"
        )
    return text


def first_line(err: BaseException) -> str:
    return str(err).splitlines()[0] if str(err) else type(err).__name__

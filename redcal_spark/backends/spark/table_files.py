"""The files of a plain table, as this process sees them: their sizes, and values of partitions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as kinds

from redcal_spark.backends.local.delta_read import DeltaRsTable
from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.location import Location
from redcal_spark.backends.object_stores import public, resolved
from redcal_spark.backends.spark.file_reader import FilePart, Options, opened
from redcal_spark.backends.spark.tables import SparkTable

NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TableFiles:
    """The files themselves, and what is known of them.

    parts: every file as a whole. partitions: columns that are not in files; parts have their
    values. by_folders: the names of folders are partitions, as Spark guesses; else a log says all.
    options: of an object store, with which this process reaches it.
    """

    folder: str
    parts: tuple[FilePart, ...]
    partitions: tuple[str, ...]
    by_folders: bool
    options: Options = field(default=(), repr=False)

    @property
    def shared(self) -> Options:
        """What workers are told: where the store is. Their credentials are their own."""
        return tuple(public(dict(self.options)).items())

    def lacking(self, some: Sequence[FilePart], stored: pa.Schema) -> str | None:
        """A column that none of some files has: Spark may know it from elsewhere."""
        missing = set(stored.names)
        for part in some:
            with opened(part.path, part.size, self.options) as file:
                missing -= set(file.schema_arrow.names)
            if not missing:
                return None
        return f"its files have no column {min(missing)!r}"


def table_files(table: SparkTable, schema: pa.Schema) -> TableFiles | str:
    """The files that hold some columns of a table; or why its rows are not just those of files."""
    seen = table.seen
    if isinstance(seen, DeltaRsTable):
        return _of_delta(seen, schema)
    if not isinstance(seen, FileTable):
        return table.unseen
    if seen.kind != "parquet":
        return "it is made of CSV files"
    return _of_folder(seen, schema)


def _of_delta(table: DeltaRsTable, schema: pa.Schema) -> TableFiles | str:
    files, place = table.files, table.place
    if (odd := files.odd) is not None:
        return odd
    values = {name: array for name, array in files.parted.items() if name in schema.names}
    for name in values:
        if not _may_part(schema.field(name).type):
            return f"it is partitioned by {name!r}, of type {schema.field(name).type}"
    typed = [array.cast(schema.field(name).type).to_pylist() for name, array in values.items()]
    rows = zip(*typed, strict=True) if typed else iter([()] * len(files.sizes))
    parts = [
        FilePart(place.shown(path), size, 0, size, tuple(row))
        for path, size, row in zip(files.paths, files.sizes, rows, strict=True)
    ]
    folder = place.uri if place.is_address else os.path.realpath(table.name)
    return TableFiles(folder, tuple(parts), tuple(values), False, _options(place))


def _of_folder(table: FileTable, schema: pa.Schema) -> TableFiles | str:
    place = table.place
    root, paths = place.pure_path, [type(place.pure_path)(file) for file in table.files]
    is_folder = place.is_dir()
    folders = [_in_path(file, root) if is_folder else {} for file in paths]
    with ThreadPoolExecutor(8) as threads:
        sizes = list(threads.map(place.size, paths))
    files = [place.shown(path if place.is_address else Path(path).absolute()) for path in paths]
    partitions = tuple(name for name in schema.names if any(name in each for each in folders))
    wanted = {name.casefold() for name in schema.names}
    parts = []
    for file, each, size in zip(files, folders, sizes, strict=True):
        if {name.casefold() for name in each} & wanted != {name.casefold() for name in partitions}:
            return f"the folders of {file} name other columns than those of other files"
        values = []
        for name in partitions:
            value = _value(each.get(name, ""), schema.field(name).type)
            if value is NotImplemented:
                return f"{file}: nobody here knows what the folder says of {name!r}"
            values.append(value)
        parts.append(FilePart(file, size, 0, size, tuple(values)))
    folder = place.uri if place.is_address else os.path.abspath(table.name)
    return TableFiles(folder, tuple(parts), partitions, True, _options(place))


def _options(place: Location) -> Options:
    """How this process reaches the files of an object store."""
    return tuple(resolved(place.name, place.options).items()) if place.is_address else ()


def _in_path(file: PurePath, root: PurePath) -> dict[str, str]:
    """What the folders of a file say: name=value."""
    named = (part.partition("=") for part in file.relative_to(root).parts[:-1])
    return {unquote(name): unquote(value) for name, sign, value in named if sign}


def _may_part(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_string(kind)
        or kinds.is_signed_integer(kind)
        or kinds.is_date32(kind)
        or kinds.is_boolean(kind)
    )


def _value(text: str, kind: pa.DataType) -> Any:
    """What a folder says, in the type that Spark guessed; NotImplemented if that is not certain."""
    if text == NULL:
        return None
    if kinds.is_string(kind):
        return text or NotImplemented
    if kinds.is_signed_integer(kind) and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if kinds.is_date32(kind) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return NotImplemented
    return NotImplemented

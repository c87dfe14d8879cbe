"""Files as tables: Parquet and CSV, one file, a folder, or partitioned folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds

from redcal_spark.errors import InputError
from redcal_spark.tables import BATCH


class FileTable:
    """A table made of Parquet or CSV files."""

    def __init__(self, name: str, dataset: ds.Dataset, kind: str):
        self.name = name
        self.kind = kind
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        yield from stream(self._dataset, columns, self.name)

    def count(self) -> int | None:
        return int(self._dataset.count_rows()) if self.kind == "parquet" else None

    def identity(self) -> dict[str, Any]:
        files = []
        for file in sorted(self._dataset.files):
            try:
                stat = os.stat(file)
                files.append([file, stat.st_size, stat.st_mtime_ns, _tail_digest(file)])
            except OSError as err:
                raise InputError(f"{file}: {err.strerror}") from err
        return {"kind": self.kind, "table": self.name, "files": files}


def open_files(name: str, separator: str, fractions: Sequence[str] = ()) -> FileTable:
    """Tell Parquet from CSV by looking: Parquet files begin and end with PAR1."""
    path = Path(name)
    files = _data_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{name}: the folder holds no data (no Delta log, no Parquet or CSV file)")
    try:
        kinds = {"parquet" if _is_parquet(file) else "csv" for file in files}
    except OSError as err:
        raise InputError(f"{name}: cannot be read: {err.strerror}") from err
    if len(kinds) > 1:
        raise InputError(f"{name}: the folder mixes Parquet and other files")
    kind = kinds.pop()
    try:
        if kind == "csv":
            return FileTable(name, _csv(name, files, separator, fractions), kind)
        root = str(path) if path.is_dir() else None
        dataset = ds.dataset(
            [str(file) for file in files],
            format="parquet",
            partitioning=ds.partitioning(flavor="hive") if root else None,
            partition_base_dir=root,
        )
        return FileTable(name, dataset, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as err:
        raise InputError(f"{name}: cannot be read as {_called(kind)}: {_first_line(err)}") from err


def stream(
    dataset: ds.Dataset, columns: Sequence[str] | None, name: str
) -> Iterator[pa.RecordBatch]:
    """Batches of a dataset, read ahead a little: memory does not grow with the table."""
    try:
        yield from dataset.to_batches(
            columns=None if columns is None else list(columns),
            batch_size=BATCH,
            batch_readahead=4,
            fragment_readahead=1,
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as err:
        raise InputError(f"{name}: cannot be read: {_first_line(err)}") from err


def _csv(name: str, files: list[Path], separator: str, fractions: Sequence[str]) -> ds.Dataset:
    """Types come from the first block, where fractions may still look like whole numbers."""
    parse = pa.csv.ParseOptions(delimiter=separator)
    convert = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
    with pa.csv.open_csv(files[0], parse_options=parse, convert_options=convert) as reader:
        found = reader.schema
    repeated = sorted({n for n in found.names if found.names.count(n) > 1})
    if repeated:
        raise InputError(f"{name}: columns named twice: {', '.join(map(repr, repeated))}")

    def kind(field: pa.Field) -> pa.DataType:
        if pa.types.is_integer(field.type) and field.name in fractions:
            return pa.float64()
        return pa.string() if pa.types.is_null(field.type) else field.type

    schema = pa.schema([field.with_type(kind(field)) for field in found])
    convert.column_types = schema
    options = ds.CsvFileFormat(parse_options=parse, convert_options=convert)
    return ds.dataset([str(file) for file in files], schema=schema, format=options)


def _data_files(folder: Path) -> list[Path]:
    """Files below a folder, but for those that Spark and others hide: names with _ or . first."""
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(("_", ".")))
        found += [Path(root, f) for f in sorted(files) if not f.startswith(("_", "."))]
    return found


def _is_parquet(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(4) == b"PAR1"


def _tail_digest(file: str) -> str:
    """A digest of the end of a file: for Parquet that is its footer, with counts and statistics."""
    with open(file, "rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(0, opened.tell() - 65_536))
        return hashlib.sha256(opened.read()).hexdigest()


def _called(kind: str) -> str:
    return "Parquet" if kind == "parquet" else "CSV"


def _first_line(err: BaseException) -> str:
    return str(err).splitlines()[0] if str(err) else type(err).__name__

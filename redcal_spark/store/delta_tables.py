"""A version of a Delta table, read by delta-rs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from redcal_spark.errors import InputError
from redcal_spark.gather import Piece, each_alone
from redcal_spark.store.base import vacuumed, version_at
from redcal_spark.store.delta_errors import unreadable
from redcal_spark.store.files import first_line, pieces, stream


class DeltaRsTable:
    """One version of a Delta table."""

    def __init__(self, name: str, table: DeltaTable):
        self.name = name
        self._table = table

    @cached_property
    def schema(self) -> pa.Schema:
        with unreadable(self.name, InputError, "cannot be read"):
            return pa.schema(self._table.schema().to_arrow())

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._readable():
            dataset = self._dataset()
            if dataset is not None:
                yield from stream(dataset, columns, self.name)
                return
            names = ", ".join(quoted(c) for c in columns or self.schema.names)
            found = QueryBuilder().register("t", self._table).execute(f"select {names} from t")
            for batch in found:
                yield pa.record_batch(batch)

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        with self._readable():
            dataset = self._dataset()
            if dataset is None:
                yield from each_alone(self.batches(columns))
                return
            for piece in pieces(dataset, columns, self.name):
                yield self._each(piece)

    def _each(self, piece: Piece) -> Piece:
        with self._readable():
            yield from piece

    def _dataset(self) -> ds.Dataset | None:
        """None for a table with deletion vectors: delta-rs's query engine alone honours them."""
        if "deletionVectors" in (self._table.protocol().reader_features or ()):
            return None
        return self._table.to_pyarrow_dataset(filesystem=files_of(self.name))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, InputError) as err:
            newest = DeltaTable(self.name).version()
            gone = isinstance(err.__cause__ or err, FileNotFoundError)
            if gone and self._table.version() < newest:
                raise vacuumed(self.name, self._table.version(), newest) from err
            if isinstance(err, InputError):
                raise
            raise InputError(f"{self.name}: cannot be read: {first_line(err)}") from err

    def count(self) -> int | None:
        with unreadable(self.name, InputError, "cannot be read"):
            return int(self._table.count())

    def files(self) -> list[str]:
        """The paths of its files."""
        return [uri.removeprefix("file://") for uri in self._table.file_uris()]

    def identity(self) -> dict[str, Any]:
        found = {"kind": "delta", "table": self.name, "version": self._table.version()}
        return found | {"id": str(self._table.metadata().id)}


def load_version(name: str, table: DeltaTable, version: int | str) -> None:
    newest = table.version()
    if isinstance(version, str):
        with unreadable(name, InputError, "its history cannot be read"):
            known = [e for e in table.history() if "timestamp" in e]  # commits need not tell
        made = [(e["version"], e["timestamp"] / 1_000) for e in known]
        version = version_at(name, [(v, datetime.fromtimestamp(t, UTC)) for v, t in made], version)
    try:
        table.load_as_version(version)
    except (DeltaError, OverflowError, OSError) as err:
        gone = " (older ones may have been cleaned up)" if version < newest else ""
        raise InputError(f"{name}: has no version {version}; the newest is {newest}{gone}") from err


def files_of(table: str) -> pa.fs.SubTreeFileSystem:
    """pyarrow's own view of a table's folder.

    delta-rs would hand it one written in Python, and a thread of pyarrow's that calls it while the
    interpreter shuts down aborts the process: seen in 6 of 60 runs that read a table and ended.
    """
    return pa.fs.SubTreeFileSystem(os.path.abspath(table), pa.fs.LocalFileSystem())


def quoted(name: str) -> str:
    """A column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'

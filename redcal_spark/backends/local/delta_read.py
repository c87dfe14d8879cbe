"""A version of a Delta table, read by delta-rs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from redcal_spark.backends.delta_protocol import check_readable, known_log
from redcal_spark.backends.local.commits import commits, newest_version
from redcal_spark.backends.local.delta_files import DeltaFiles
from redcal_spark.backends.local.errors import unreadable
from redcal_spark.backends.local.files import pieces, stream
from redcal_spark.backends.location import Location, failed
from redcal_spark.backends.store import vacuumed, version_at
from redcal_spark.core.scan import BatchGroup
from redcal_spark.errors import InputError


class DeltaRsTable:
    """One version of a Delta table.

    files: those that hold its rows, as its log has them.
    """

    def __init__(self, place: Location, table: DeltaTable):
        self.place = place
        self.name = name = place.name
        self._table = table
        with unreadable(name, InputError, "cannot be read"):
            check_readable(name, table)
            self.files = DeltaFiles(place, table)

    @property
    def schema(self) -> pa.Schema:
        return self.files.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._readable():
            yield from stream(self.files.dataset, columns, self.name, self.files)

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        with self._readable():
            for piece in pieces(self.files.dataset, columns, self.name, self.files, repeated):
                yield self._each(piece)

    def _each(self, piece: BatchGroup) -> BatchGroup:
        with self._readable():
            yield from piece

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, InputError) as err:
            if isinstance(err.__cause__ or err, FileNotFoundError):
                ours, newest = self._table.version(), newest_version(self.place)
                if newest is not None and ours < newest:
                    raise vacuumed(self.name, ours, newest) from err
            if isinstance(err, InputError):
                raise
            raise failed(InputError, f"{self.name}: cannot be read", err) from err

    def count(self) -> int | None:
        with self._readable():
            return self.files.count_all()

    def lost_file(self) -> str | None:
        """A file of it that is gone, if one is."""
        for path in self.files.paths:
            if not self.place.is_file(path):
                return self.place.shown(path)
        return None

    def identity(self) -> dict[str, Any]:
        identity = {"kind": "delta", "table": self.place.uri, "version": self._table.version()}
        return identity | {"id": str(self._table.metadata().id)}


def load_version(place: Location, table: DeltaTable, version: int | str) -> None:
    name, newest = place.name, table.version()
    if isinstance(version, str):
        with unreadable(name, InputError, "its history cannot be read"):
            known = [
                e for e in commits(place) if isinstance(e.get("timestamp"), int)
            ]  # commits need not tell
        made = [(e["version"], e["timestamp"] / 1_000) for e in known]
        version = version_at(name, [(v, datetime.fromtimestamp(t, UTC)) for v, t in made], version)
    try:
        with known_log(name):
            table.load_as_version(version)
    except (DeltaError, OverflowError, OSError) as err:
        gone = " (older ones may have been cleaned up)" if version < newest else ""
        raise InputError(f"{name}: has no version {version}; the newest is {newest}{gone}") from err


def quoted(name: str) -> str:
    """A column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'

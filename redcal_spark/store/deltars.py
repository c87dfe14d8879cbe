"""The store without a JVM: Delta tables by delta-rs, files by pyarrow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from redcal_spark.errors import InputError, RunError
from redcal_spark.store.base import Commit, Mode
from redcal_spark.store.files import FileTable, open_files, stream

TRIES = 20  # of a write that lost a race for the next version


class DeltaRsTable:
    """One version of a Delta table."""

    def __init__(self, name: str, table: DeltaTable):
        self.name = name
        self._table = table

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        try:
            if "deletionVectors" not in (self._table.protocol().reader_features or ()):
                yield from stream(self._table.to_pyarrow_dataset(), columns, self.name)
                return
            # delta-rs honours deletion vectors in its query engine only
            names = ", ".join(_quoted(c) for c in columns or self.schema.names)
            found = QueryBuilder().register("t", self._table).execute(f"select {names} from t")
            for batch in found:
                yield pa.record_batch(batch)
        except (DeltaError, OSError) as err:
            raise InputError(f"{self.name}: cannot be read: {_first_line(err)}") from err

    def count(self) -> int | None:
        return int(self._table.count())

    def identity(self) -> dict[str, Any]:
        found = {"kind": "delta", "table": self.name, "version": self._table.version()}
        return found | {"id": str(self._table.metadata().id)}


class DeltaRsStore:
    """Tables are paths here. Catalog names need Spark."""

    name = "local"

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> DeltaRsTable | FileTable:
        path = Path(name)
        if not path.exists():
            catalog = re.fullmatch(r"\w+(\.\w+){1,2}", name) and not path.suffix
            hint = "; a catalog name needs --engine spark" if catalog else ""
            raise InputError(f"{name}: no such file or folder{hint}")
        if not (path / "_delta_log").is_dir():
            if version is not None:
                raise InputError(f"{name}: only Delta tables have versions, and this is none")
            return open_files(name, separator, fractions)
        try:
            table = DeltaTable(name)
        except (DeltaError, OSError) as err:
            raise InputError(f"{name}: not a readable Delta table: {_first_line(err)}") from err
        if version is not None:
            _load_version(name, table, version)
        return DeltaRsTable(name, table)

    def check_target(self, name: str, key: str) -> str | None:
        path = Path(name)
        if path.is_file():
            return f"{key}: {name} is a file; a table is a folder"
        if path.is_dir() and not (path / "_delta_log").is_dir() and any(path.iterdir()):
            return f"{key}: {name} is a folder with other things in it, not a Delta table"
        parent = next(p for p in (path, *path.absolute().parents) if p.exists())
        if not parent.is_dir():
            return f"{key}: {name} cannot be made: {parent} is a file"
        if not os.access(parent, os.W_OK | os.X_OK):
            return f"{key}: {name} cannot be written: no permission in {parent}"
        return None

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        source = _Remembering(batches)
        made = _make_folder(Path(name))
        try:
            write_deltalake(
                name,
                pa.RecordBatchReader.from_batches(schema, source),
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                commit_properties=CommitProperties(
                    custom_metadata=commit.metadata(), max_commit_retries=TRIES
                ),
            )
        except BaseException as err:
            _remove_empty(made)
            if source.error is not None:
                raise source.error from None
            if isinstance(err, DeltaError | OSError):
                raise RunError(f"{name}: could not be written: {_first_line(err)}") from err
            raise
        return self._version_of(name, commit)

    def _version_of(self, name: str, commit: Commit) -> int:
        table = DeltaTable(name)
        for entry in table.history(100):
            if entry.get("redcal_run_id") == commit.run_id:
                return int(entry["version"])
        raise RunError(f"{name}: the version just written is not in its history")

    def upsert(self, name: str, rows: pa.Table, key: str, commit: Commit) -> None:
        properties = CommitProperties(custom_metadata=commit.metadata(), max_commit_retries=0)
        _make_folder(Path(name))
        for left in reversed(range(TRIES)):
            try:
                if not DeltaTable.is_deltatable(name):
                    write_deltalake(name, rows, mode="error", commit_properties=properties)
                    return
                merge = DeltaTable(name).merge(
                    rows,
                    predicate=f"target.{key} = source.{key}",
                    source_alias="source",
                    target_alias="target",
                    commit_properties=properties,
                )
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
                return
            except (CommitFailedError, DeltaError) as err:
                if not left:
                    raise RunError(f"{name}: could not be written: {_first_line(err)}") from err

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        try:
            table = DeltaTable(name)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as err:
            raise RunError(f"{name}: cannot be read: {_first_line(err)}") from err
        # filtered here: delta-rs states the statistics of a MERGE in types pyarrow cannot compare
        found = table.to_pyarrow_table()
        for column, value in (equal or {}).items():
            found = found.filter(pc.equal(found[column], value))
        return found

    def last_writer(self, name: str) -> str | None:
        try:
            found = DeltaTable(name).history(1)
        except (DeltaError, OSError):
            return None
        return found[0].get("redcal_run_id") if found else None


def _load_version(name: str, table: DeltaTable, version: int | str) -> None:
    newest = table.version()
    try:
        table.load_as_version(version)
        if isinstance(version, str) and table.version() == 0:
            # delta-rs answers a time before the first version with the first version
            first = datetime.fromtimestamp(table.history()[-1]["timestamp"] / 1_000, UTC)
            asked = datetime.fromisoformat(version)
            if (asked if asked.tzinfo else asked.replace(tzinfo=UTC)) < first:
                raise ValueError("before the first version")
    except (DeltaError, ValueError, OSError) as err:
        raise InputError(
            f"{name}: has no version {version}; the newest is {newest} "
            "(VACUUM may have removed older ones)"
        ) from err


class _Remembering:
    """Batches on their way through Rust, which would turn an error of ours into text."""

    def __init__(self, batches: Iterable[pa.RecordBatch]):
        self.error: BaseException | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except BaseException as err:
            self.error = err
            raise


def _make_folder(path: Path) -> list[Path]:
    """Make the folder and its parents; returns those that are new, innermost first."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RunError(f"{path}: cannot be made: {err.strerror}") from err
    return made


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(err: BaseException) -> str:
    return str(err).splitlines()[0] if str(err) else type(err).__name__

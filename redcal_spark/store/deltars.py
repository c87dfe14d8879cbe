"""The store without a JVM: Delta tables by delta-rs, files by pyarrow."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from redcal_spark.errors import InputError, RedcalError, RunError, UsageError
from redcal_spark.store.base import Commit, Mode, Table, rows_of, run_of, vacuumed, version_at
from redcal_spark.store.delta_errors import is_delta, is_panic, odd_signs, unreadable
from redcal_spark.store.delta_types import delta_schema, unstorable
from redcal_spark.store.files import FileTable, first_line, open_files, stream
from redcal_spark.store.folders import beside, make_folder, remove_empty
from redcal_spark.store.inputs import JoinedTable, RunTable, Side
from redcal_spark.store.targets import RUN_ID, Existing, Target, check_rows, short_partitions

T = TypeVar("T")
MAX_NAME = 255  # bytes of a file's name
TRIES = 20  # of a write that lost a race for the next version
RECENT = 100  # versions among which one just written must be

CATALOG_NAME = re.compile(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`)){1,2}")
ADDRESS = re.compile(r"[A-Za-z][\w+-]*:/")  # of an object store
FILE_ENDINGS = (".csv", ".tsv", ".txt", ".gz", ".parquet")


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
        try:
            if "deletionVectors" not in (self._table.protocol().reader_features or ()):
                dataset = self._table.to_pyarrow_dataset(filesystem=files_of(self.name))
                yield from stream(dataset, columns, self.name)
                return
            # delta-rs honours deletion vectors in its query engine only
            names = ", ".join(_quoted(c) for c in columns or self.schema.names)
            found = QueryBuilder().register("t", self._table).execute(f"select {names} from t")
            for batch in found:
                yield pa.record_batch(batch)
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


class DeltaRsStore:
    """Tables are paths here. Catalog names need Spark."""

    name = "local"

    def __init__(self) -> None:
        self._made: dict[str, list[Path]] = {}  # folders made for tables, innermost first

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> DeltaRsTable | FileTable:
        path = Path(name)
        if not os.path.exists(path):  # unlike that of Path, it takes names that are too long
            elsewhere = _elsewhere(name)
            hint = f"; {elsewhere}" if elsewhere else ""
            raise InputError(f"{name}: no such file or folder{hint}")
        if not os.path.isdir(path / "_delta_log"):
            if version is not None:
                raise InputError(
                    f"{name}: has no version {version}: only Delta tables have versions, and "
                    "this is none"
                )
            return open_files(name, separator, fractions)
        if (odd := odd_signs(name)) is not None:
            raise InputError(f"{name}: {odd}; rename the folder, or use engine.name: spark")
        with unreadable(name, InputError, "not a readable Delta table"):
            table = DeltaTable(name)
        if version is not None:
            _load_version(name, table, version)
        return DeltaRsTable(name, table)

    def join(
        self, main: Table, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ) -> JoinedTable:
        return JoinedTable(main, sides, id, policy)

    def check_target(self, name: str, key: str) -> str | None:
        path = Path(name)
        elsewhere = _elsewhere(name)
        if elsewhere and not os.path.exists(path):
            return f"{key}: {name} cannot be written: {elsewhere}"
        if (odd := odd_signs(name)) is not None:
            return f"{key}: {name} cannot be written: {odd}; rename the folder"
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if any(len(os.fsencode(part)) > MAX_NAME for part in path.parts):
                return f"{key}: {name} cannot be made: {os.strerror(errno.ENAMETOOLONG)}"
            if path.is_symlink():
                return (
                    f"{key}: {name} is a symbolic link to {os.readlink(path)}, which is not there"
                )
        except OSError as err:  # a name that is too long, links in a circle
            return f"{key}: {name} cannot be made: {err.strerror}"
        if path.is_file():
            return f"{key}: {name} is a file; a table is a folder"
        if path.is_dir() and not (path / "_delta_log").is_dir() and any(path.iterdir()):
            return f"{key}: {name} is a folder with other things in it, not a Delta table"
        parent = next(p for p in (path, *path.parents) if p.exists())
        if not parent.is_dir():
            return f"{key}: {name} cannot be made: {parent} is a file"
        if not os.access(parent, os.W_OK | os.X_OK):
            return f"{key}: {name} cannot be written: no permission in {parent}"
        return None

    def check_schema(self, schema: pa.Schema) -> list[str]:
        """Why rows of this schema could not be written."""
        return unstorable(schema)

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        def put(table: str, rows: pa.RecordBatchReader) -> None:
            write_deltalake(
                table,
                rows,
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                commit_properties=_properties(commit),
            )

        if commit.again and (done := self.written(name, commit)) is not None:
            return done[0]
        return self._put(name, schema, batches, put, commit)

    def existing(self, name: str) -> Existing | None:
        table = _table(name)
        if table is None:
            return None
        schema = pa.schema(table.schema().to_arrow())
        return Existing(schema, tuple(table.metadata().partition_columns))

    def check_rows(self, target: Target, schema: pa.Schema) -> None:
        if target.cluster_by:
            raise UsageError(
                "output.cluster_by: only Spark clusters tables; the local engine can partition "
                "them (output.partition_by), or choose engine.name: spark"
            )
        old = self.existing(target.table)
        check_rows(target, schema, old)
        if old is not None and old.partitions and target.mode != "append":
            _check_partitions(target.table)

    def put(
        self, target: Target, schema: pa.Schema, batches: Iterable[pa.RecordBatch], commit: Commit
    ) -> int:
        if target.mode == "append":
            batches = (_with_run(batch, commit.run_id) for batch in batches)
        if target.partition_by:
            batches = (short_partitions(batch, target.partition_by) for batch in batches)

        def put(table: str, rows: pa.RecordBatchReader) -> None:
            old = self.existing(table)
            if target.mode == "merge" and old is not None:
                _merge(table, rows, old, target, commit)
                return
            changes: Literal["overwrite", "merge"] | None = None
            if target.evolve and old is not None:
                changes = "merge" if target.mode == "append" else "overwrite"
            write_deltalake(
                table,
                rows,
                mode="append" if target.mode == "append" else "overwrite",
                schema_mode=changes,
                partition_by=list(target.partitions_for(old, rows.schema.names)) or None,
                commit_properties=_properties(commit),
            )

        return self._put(target.table, target.with_run(schema), batches, put, commit)

    def _put(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        put: Callable[[str, pa.RecordBatchReader], None],
        commit: Commit,
    ) -> int:
        stored = delta_schema(schema)
        if stored != schema:
            batches = (batch.cast(stored) for batch in batches)
        source = _Remembering(batches)
        rows = pa.RecordBatchReader.from_batches(stored, source)
        try:
            if is_delta(name):
                put(name, rows)
            else:
                _put_new(Path(name), rows, put, commit)
        except BaseException as err:
            if source.error is not None:
                raise source.error from None
            ours = isinstance(err, RedcalError)
            if (isinstance(err, Exception) or is_panic(err)) and not ours:
                raise RunError(f"{name}: could not be written: {first_line(err)}") from err
            raise
        return self._version_of(name, commit)

    def written(
        self, name: str, commit: Commit, among: int | None = None
    ) -> tuple[int, int] | None:
        table = _table(name)
        for entry in () if table is None else table.history(among):
            if commit.wrote(entry.get("userMetadata")):
                return int(entry["version"]), rows_of(entry.get("operationMetrics"))
        return None

    def of_run(self, table: Table, run_id: str) -> RunTable:
        return RunTable(table, RUN_ID, run_id)

    def _version_of(self, name: str, commit: Commit) -> int:
        done = self.written(name, commit, RECENT)
        if done is None:
            raise RunError(f"{name}: the version just written is not in its history")
        return done[0]

    def merge(
        self,
        name: str,
        rows: pa.Table,
        same: Mapping[str, str],
        commit: Commit,
        *,
        insert: bool = True,
        update: bool = True,
    ) -> None:
        if not insert and not self.exists(name):
            return
        made = make_folder(Path(name))

        def merge() -> None:
            if not self.exists(name):
                self._made[name] = made
                write_deltalake(name, rows, mode="error", commit_properties=_once(commit))
                return
            merging = DeltaTable(name).merge(
                rows,
                predicate=" and ".join(f"target.{t} = source.{s}" for t, s in same.items()),
                source_alias="source",
                target_alias="target",
                commit_properties=_once(commit),
            )
            if update:
                merging = merging.when_matched_update_all()
            if insert:
                merging = merging.when_not_matched_insert_all()
            merging.execute()

        try:
            _again(name, merge)
        except RunError:
            remove_empty(made)
            raise

    def delete(self, name: str, key: str, values: Sequence[str], commit: Commit) -> int:
        if not values or not self.exists(name):
            return 0
        wanted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
        condition = f"{_quoted(key)} in ({wanted})"

        def delete() -> int:
            table = DeltaTable(name)
            there = table.to_pyarrow_table(columns=[key], filesystem=files_of(name))[key]
            count = pc.sum(pc.is_in(there, pa.array(values, pa.string()))).as_py() or 0
            if count:
                table.delete(condition, commit_properties=_once(commit))
            return int(count)

        return _again(name, delete)

    def compact(self, name: str, commit: Commit) -> tuple[int, int]:
        if not self.exists(name):
            return 0, 0

        def compact() -> tuple[int, int]:
            table = DeltaTable(name)
            before = len(table.file_uris())
            table.optimize.compact(commit_properties=_once(commit))
            return before, len(DeltaTable(name).file_uris())

        return _again(name, compact)

    def exists(self, name: str) -> bool:
        return is_delta(name)

    def drop(self, name: str) -> None:
        shutil.rmtree(name, ignore_errors=True)
        remove_empty(self._made.pop(name, []))

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        table = _table(name)
        if table is None:
            return None
        # filtered here: delta-rs states the statistics of a MERGE in types pyarrow cannot compare
        found = table.to_pyarrow_table(filesystem=files_of(name))
        for column, value in (equal or {}).items():
            if column not in found.column_names:
                has = ", ".join(found.column_names)
                raise RunError(f"{name}: is another kind of table: no column {column!r}, but {has}")
            found = found.filter(pc.equal(found[column], value))
        return found

    def last_writer(self, name: str) -> str | None:
        if not is_delta(name):
            return None
        try:
            found = DeltaTable(name).history(1)
        except (DeltaError, OSError):
            return None
        return run_of(found[0].get("userMetadata")) if found else None


def _table(name: str) -> DeltaTable | None:
    if not is_delta(name):
        return None
    with unreadable(name, RunError, "cannot be read"):
        return DeltaTable(name)


def files_of(table: str) -> pa.fs.SubTreeFileSystem:
    """pyarrow's own view of a table's folder.

    delta-rs would hand it one written in Python, and a thread of pyarrow's that calls it while the
    interpreter shuts down aborts the process: seen in 6 of 60 runs that read a table and ended.
    """
    return pa.fs.SubTreeFileSystem(os.path.abspath(table), pa.fs.LocalFileSystem())


def _metadata(commit: Commit) -> dict[str, str]:
    return {"userMetadata": commit.user_metadata}


def _properties(commit: Commit) -> CommitProperties:
    return CommitProperties(custom_metadata=_metadata(commit), max_commit_retries=TRIES)


def _once(commit: Commit) -> CommitProperties:
    """No retries inside: who changes rows and lost a race must look at the rows again."""
    return CommitProperties(custom_metadata=_metadata(commit), max_commit_retries=0)


def _again(name: str, change: Callable[[], T]) -> T:
    """Change a table, with it as it is then if another writer was quicker."""
    for left in reversed(range(TRIES)):
        try:
            return change()
        except (DeltaError, OSError) as err:
            if not left or isinstance(err, OSError):
                raise RunError(f"{name}: could not be written: {first_line(err)}") from err
            time.sleep(random.uniform(0, 0.1))
    raise AssertionError


def _check_partitions(name: str) -> None:
    """delta-rs does not hit files that Spark put into folders with other letters than ASCII.

    It would name them otherwise than Spark did, which would go on reading what was replaced.
    """
    paths = pa.table(DeltaTable(name).get_add_actions())["path"].to_pylist()
    odd = next((path for path in paths if not path.isascii()), None)
    if odd is not None:
        raise UsageError(
            f"output.table: {name} has partitions that Spark wrote and the local engine cannot "
            f"replace, such as {os.path.dirname(odd)}: use engine.name: spark, or name another "
            "table"
        )


def _with_run(batch: pa.RecordBatch, run_id: str) -> pa.RecordBatch:
    return batch.append_column(RUN_ID, pa.repeat(pa.scalar(run_id, pa.string()), batch.num_rows))


def _merge(
    table: str, rows: pa.RecordBatchReader, old: Existing, target: Target, commit: Commit
) -> None:
    """Insert new rows, replace those that changed, leave all others as they are."""
    assert target.id is not None
    id = _quoted(target.id)
    differs = []
    for name in (n for n in rows.schema.names if n != target.id):
        new = f"source.{_quoted(name)}"
        if name in old.schema.names:
            differs.append(f"({new} is distinct from target.{_quoted(name)})")
        else:  # the table is about to get this column, empty
            differs.append(f"({new} is not null)")
    columns = {f"target.{_quoted(n)}": f"source.{_quoted(n)}" for n in rows.schema.names}
    merge = DeltaTable(table).merge(
        rows,
        predicate=f"target.{id} = source.{id}",
        source_alias="source",
        target_alias="target",
        merge_schema=target.evolve,
        commit_properties=_properties(commit),
    )
    merge = merge.when_matched_update(columns, " or ".join(differs) or "false")
    merge.when_not_matched_insert(columns).execute()
    if not any(commit.wrote(e.get("userMetadata")) for e in DeltaTable(table).history(RECENT)):
        # nothing differed, and delta-rs made no version: an empty one says that the run was here
        nothing = old.schema.empty_table()
        write_deltalake(table, nothing, mode="append", commit_properties=_properties(commit))


def _load_version(name: str, table: DeltaTable, version: int | str) -> None:
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


def _put_new(
    path: Path,
    rows: pa.RecordBatchReader,
    put: Callable[[str, pa.RecordBatchReader], None],
    commit: Commit,
) -> None:
    """Make a table: beside its place, then move it there, so that it is whole or not at all."""
    with beside(path, commit.run_id) as partial:
        put(str(partial), rows)
        try:
            partial.rename(path)
        except OSError:  # meanwhile someone else has made it: this is its next version
            dataset = DeltaTable(str(partial)).to_pyarrow_dataset(filesystem=files_of(str(partial)))
            put(str(path), dataset.scanner().to_reader())


def _elsewhere(name: str) -> str | None:
    """Why a name that is no path here may still be one elsewhere."""
    if CATALOG_NAME.fullmatch(name) and not name.lower().endswith(FILE_ENDINGS):
        return (
            "the local engine knows paths only; a catalog name needs engine.name: spark "
            f"(and a folder of that name is ./{name})"
        )
    if ADDRESS.match(name):
        return "the local engine knows local paths only; an object store needs engine.name: spark"
    return None


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""The store without a JVM: Delta tables by delta-rs, files by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from redcal_spark.backends.delta_protocol import known_log, not_written, unwritable
from redcal_spark.backends.delta_types import as_stored, delta_schema, unstorable
from redcal_spark.backends.inputs import Side
from redcal_spark.backends.local.commits import commits
from redcal_spark.backends.local.delta_read import DeltaRsTable, load_version
from redcal_spark.backends.local.delta_write import (
    Remembering,
    check_partitions,
    merge_rows,
    properties,
    put_new,
    touched_rows,
)
from redcal_spark.backends.local.errors import is_delta, is_panic, odd_signs, unreadable
from redcal_spark.backends.local.files import FileTable, first_line, open_files
from redcal_spark.backends.local.join import JoinedTable
from redcal_spark.backends.local.small_tables import LocalSmallTables, for_writing, table_at
from redcal_spark.backends.names import elsewhere, problem_of_target
from redcal_spark.backends.store import Commit, Mode, Table, rows_of, version_just_written
from redcal_spark.backends.target import (
    RUN_ID,
    Existing,
    Target,
    check_rows,
    is_append_only,
    short_partitions,
)
from redcal_spark.backends.views import OfRun
from redcal_spark.config.folder import looked_for
from redcal_spark.errors import ConflictError, InputError, RedcalError, RunError, UsageError


class DeltaRsStore(LocalSmallTables):
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
        if not os.path.exists(path):  # unlike that of Path, it takes names that are too long
            other = elsewhere(name)
            hint = f"; {other}" if other else looked_for(name)
            raise InputError(f"{name}: no such file or folder{hint}")
        if not os.path.isdir(path / "_delta_log"):
            if version is not None:
                raise InputError(
                    f"{name}: has no version {version}: only Delta tables have versions, and "
                    "this is not one"
                )
            return open_files(name, separator, fractions)
        if (odd := odd_signs(name)) is not None:
            raise InputError(f"{name}: {odd}; rename the folder, or use engine.name: spark")
        with unreadable(name, InputError, "not a readable Delta table"), known_log(name):
            table = DeltaTable(name)
        if version is not None:
            load_version(name, table, version)
        return DeltaRsTable(name, table)

    def join(
        self, main: Table, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ) -> JoinedTable:
        return JoinedTable(main, sides, id, policy)

    def spare(self, name: str) -> None:
        return None

    def check_target(self, name: str, key: str) -> str | None:
        problem = problem_of_target(name, key)
        if problem is not None or not is_delta(name):
            return problem
        try:
            with unreadable(name, InputError, "cannot be read"), known_log(name):
                table = DeltaTable(name)
                why = unwritable(table)
        except InputError as err:
            return f"{key}: {err}"
        if key == "output.runs" and is_append_only(table.metadata().configuration):
            return (
                f"{key}: {name} takes new rows only (delta.appendOnly), but rows of runs change: "
                "name another table"
            )
        return None if why is None else f"{key}: {not_written(name, why)}"

    def check_schema(self, schema: pa.Schema) -> list[str]:
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
            changes: Literal["overwrite", "merge"] | None = None
            if mode == "overwrite":
                changes = "overwrite"
            elif (old := self.existing(table)) is not None and old.is_earlier(rows.schema):
                changes = "merge"
            write_deltalake(
                table,
                rows,
                mode=mode,
                schema_mode=changes,
                commit_properties=properties(commit),
            )

        if commit.again and (done := self.written(name, commit)) is not None:
            return done[0]
        return self._put(name, schema, batches, put, commit)

    def existing(self, name: str) -> Existing | None:
        table = table_at(name)
        if table is None:
            return None
        said = table.metadata()
        return Existing(
            DeltaRsTable(name, table).schema,
            tuple(said.partition_columns),
            append_only=is_append_only(said.configuration),
        )

    def check_rows(self, target: Target, schema: pa.Schema) -> None:
        if target.cluster_by:
            raise UsageError(
                "output.cluster_by: only Spark clusters tables; the local engine can partition "
                "them (output.partition_by), or choose engine.name: spark"
            )
        old = self.existing(target.table)
        check_rows(target, schema, old)
        if old is not None and old.partitions and target.mode != "append":
            check_partitions(target.table)

    def put(
        self, target: Target, schema: pa.Schema, batches: Iterable[pa.RecordBatch], commit: Commit
    ) -> int:
        """Put rows into their table as the target says, whole or not at all; returns the version.

        Ids to merge on must be unique and not null.
        """
        if target.mode == "append":
            batches = (_with_run(batch, commit.run_id) for batch in batches)
        if target.partition_by:
            batches = (short_partitions(batch, target.partition_by) for batch in batches)

        filtered = False

        def put(table: str, rows: pa.RecordBatchReader) -> None:
            nonlocal filtered
            old = self.existing(table)
            if target.mode == "merge" and old is not None:
                if filtered:  # which of its rows must go, the rows that are left do not tell
                    raise ConflictError(f"{table}: another run made it meanwhile; start again")
                merge_rows(table, rows, old, target, commit)
                return
            if target.mode == "merge" and target.touched_only:
                rows, filtered = touched_rows(rows, target), True
            changes: Literal["overwrite", "merge"] | None = None
            if target.evolve and old is not None:
                changes = "merge" if target.mode == "append" else "overwrite"
            write_deltalake(
                table,
                rows,
                mode="append" if target.mode == "append" else "overwrite",
                schema_mode=changes,
                partition_by=list(target.partitions_for(old, rows.schema.names)) or None,
                commit_properties=properties(commit),
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
            batches = (as_stored(batch, stored) for batch in batches)
        source = Remembering(batches)
        rows = pa.RecordBatchReader.from_batches(stored, source)
        try:
            if is_delta(name):
                for_writing(name)
                put(name, rows)
            else:
                put_new(Path(name), rows, put, commit)
        except BaseException as err:
            if source.error is not None:
                raise source.error from None
            ours = isinstance(err, RedcalError)
            if isinstance(err, CommitFailedError):
                raise ConflictError(
                    f"{name}: commit conflict: another run wrote it meanwhile; start this run again"
                ) from err
            if (isinstance(err, Exception) or is_panic(err)) and not ours:
                raise RunError(f"{name}: could not be written: {first_line(err)}") from err
            raise
        return version_just_written(self, name, commit)

    def written(
        self, name: str, commit: Commit, among: int | None = None
    ) -> tuple[int, int] | None:
        table = table_at(name)
        for entry in () if table is None else commits(name, among):
            if commit.wrote(entry.get("userMetadata")):
                return int(entry["version"]), rows_of(entry.get("operationMetrics"))
        return None

    def of_run(self, table: Table, run_id: str) -> OfRun:
        return OfRun(table, run_id)


def _with_run(batch: pa.RecordBatch, run_id: str) -> pa.RecordBatch:
    return batch.append_column(RUN_ID, pa.repeat(pa.scalar(run_id, pa.string()), batch.num_rows))

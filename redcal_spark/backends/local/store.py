"""The store without a JVM: Delta tables by delta-rs, files by pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from redcal_spark.backends.delta_protocol import known_log, not_written, unwritable
from redcal_spark.backends.delta_types import as_stored, delta_schema
from redcal_spark.backends.inputs import Side
from redcal_spark.backends.local.commits import commits
from redcal_spark.backends.local.delta_read import DeltaRsTable, load_version
from redcal_spark.backends.local.delta_write import (
    Remembering,
    check_partitions,
    merge_rows,
    properties,
    put_new,
    put_rows,
    touched_rows,
)
from redcal_spark.backends.local.errors import (
    delta_table,
    is_delta,
    is_panic,
    odd_signs,
    unreadable,
)
from redcal_spark.backends.local.files import FileTable, open_files
from redcal_spark.backends.local.join import JoinedTable
from redcal_spark.backends.local.small_tables import (
    LocalSmallTables,
    answering,
    for_writing,
    table_at,
)
from redcal_spark.backends.location import Location, failed
from redcal_spark.backends.names import elsewhere, problem_of_target
from redcal_spark.backends.retries import retried
from redcal_spark.backends.store import Commit, Mode, Table, just_written, rows_of
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
from redcal_spark.errors import (
    ConflictError,
    InputError,
    RedcalError,
    RunError,
    StoreDownError,
    UsageError,
)

SHOWN = 8  # names of what there is in place of a table


class DeltaRsStore(LocalSmallTables):
    """Tables are paths and addresses of object stores here. Catalog names need Spark."""

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> DeltaRsTable | FileTable:
        place = self.at(name)
        if not self._there(place):
            other = elsewhere(name)
            hint = f"; {other}" if other else "" if place.is_address else looked_for(name)
            if place.is_address:
                hint = self._beside(place)
            raise InputError(f"{name}: no such file or folder{hint}")
        if not self._there(place.below("_delta_log"), folder=True):
            if version is not None:
                raise InputError(
                    f"{name}: has no version {version}: only Delta tables have versions, and "
                    "this is not one"
                )
            return open_files(place, separator, fractions)
        if (odd := odd_signs(name)) is not None:
            raise InputError(f"{name}: {odd}; rename the folder, or use engine.name: spark")
        with unreadable(name, InputError, "not a readable Delta table"), known_log(name):
            table = delta_table(place)
        if version is not None:
            load_version(place, table, version)
        return DeltaRsTable(place, table)

    def _beside(self, place: Location) -> str:
        """What an object store has where there is no such table, as the end of a message."""
        if not self._there(place.bucket):
            return f"; there is no {place.bucket.name}"
        with answering(place.name):
            above = place.above
            names = above.folders() + sorted(info.base_name for info in above.listed())
        more = ", ..." if len(names) > SHOWN else ""
        return f"; {above.name} has {', '.join(names[:SHOWN])}{more}" if names else ""

    def _there(self, place: Location, folder: bool = False) -> bool:
        try:
            return place.is_dir() if folder else place.exists()
        except OSError as err:
            raise failed(InputError, f"{place.name}: cannot be read", err) from err

    def join(
        self, main: Table, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ) -> JoinedTable:
        return JoinedTable(main, sides, id, policy)

    def spare(self, name: str) -> None:
        return None

    def check_target(self, name: str, key: str) -> str | None:
        place = self.at(name)
        try:
            problem = problem_of_target(place, key)
            if problem is not None or not self.exists(name):
                return problem
            with unreadable(name, InputError, "cannot be read"), known_log(name):
                table = delta_table(place)
                why = unwritable(table)
        except StoreDownError:
            raise
        except (InputError, RunError) as err:
            return f"{key}: {err}"
        if key == "output.runs" and is_append_only(table.metadata().configuration):
            return (
                f"{key}: {name} takes new rows only (delta.appendOnly), but rows of runs change: "
                "name another table"
            )
        return None if why is None else f"{key}: {not_written(name, why)}"

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        def put(table: Location, rows: pa.RecordBatchReader, said: CommitProperties) -> None:
            changes: Literal["overwrite", "merge"] | None = None
            if mode == "overwrite":
                changes = "overwrite"
            elif (old := self._existing(table)) is not None and old.is_earlier(rows.schema):
                changes = "merge"
            put_rows(
                table,
                rows,
                mode=mode,
                schema_mode=changes,
                commit_properties=said,
            )

        if commit.again and (done := self.written(name, commit)) is not None:
            return done[0]
        if not self.at(name).is_address:
            return self._put(name, schema, batches, put, commit)
        rows = list(batches)  # few, and who made a new table first may be someone else
        return retried(
            lambda: self._put(name, schema, rows, put, commit),
            lambda err: isinstance(err, ConflictError),
            pause=0.1,
        )

    def existing(self, name: str) -> Existing | None:
        return self._existing(self.at(name))

    def _existing(self, place: Location) -> Existing | None:
        table = table_at(place)
        if table is None:
            return None
        said = table.metadata()
        return Existing(
            DeltaRsTable(place, table).schema,
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
            check_partitions(self.at(target.table))

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

        def put(table: Location, rows: pa.RecordBatchReader, said: CommitProperties) -> None:
            nonlocal filtered
            old = self._existing(table)
            if target.mode == "merge" and old is not None:
                if filtered:  # which of its rows must go, the rows that are left do not tell
                    raise ConflictError(f"{table.name}: another run made it meanwhile; start again")
                merge_rows(table, rows, old, target, commit)
                return
            if target.mode == "merge" and target.touched_only:
                rows, filtered = touched_rows(rows, target), True
            changes: Literal["overwrite", "merge"] | None = None
            if target.evolve and old is not None:
                changes = "merge" if target.mode == "append" else "overwrite"
            put_rows(
                table,
                rows,
                mode="append" if target.mode == "append" else "overwrite",
                schema_mode=changes,
                partition_by=list(target.partitions_for(old, rows.schema.names)) or None,
                commit_properties=said,
            )

        return self._put(target.table, target.with_run(schema), batches, put, commit)

    def _put(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        put: Callable[[Location, pa.RecordBatchReader, CommitProperties], None],
        commit: Commit,
    ) -> int:
        stored = delta_schema(schema)
        if stored != schema:
            batches = (as_stored(batch, stored) for batch in batches)
        source, place = Remembering(batches), self.at(name)
        rows = pa.RecordBatchReader.from_batches(stored, source)
        try:
            if is_delta(place):
                for_writing(place)
                put(place, rows, properties(commit))
            else:
                put_new(place, rows, put, commit)
        except BaseException as err:
            if source.error is not None:
                raise source.error from None
            ours = isinstance(err, RedcalError)
            if isinstance(err, CommitFailedError):
                raise ConflictError(
                    f"{name}: commit conflict: another run wrote it meanwhile; start this run again"
                ) from err
            if (isinstance(err, Exception) or is_panic(err)) and not ours:
                raise failed(RunError, f"{name}: could not be written", err) from err
            raise
        return just_written(self, name, commit)[0]

    def written(
        self, name: str, commit: Commit, among: int | None = None
    ) -> tuple[int, int] | None:
        place = self.at(name)
        table = table_at(place)
        with unreadable(name, RunError, "its history cannot be read"):
            entries = [] if table is None else commits(place, among)
        for entry in entries:
            if commit.wrote(entry.get("userMetadata")):
                return int(entry["version"]), rows_of(entry.get("operationMetrics"))
        return None

    def of_run(self, table: Table, run_id: str) -> OfRun:
        return OfRun(table, run_id)


def _with_run(batch: pa.RecordBatch, run_id: str) -> pa.RecordBatch:
    return batch.append_column(RUN_ID, pa.repeat(pa.scalar(run_id, pa.string()), batch.num_rows))

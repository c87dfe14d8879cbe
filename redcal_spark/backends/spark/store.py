"""The store on Spark: Delta by path and by catalog name, Parquet, CSV.

DataFrame reads and writes and SQL only, so that it works on Spark Connect too. Identifiers are
quoted, values never pasted into SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit

from redcal_spark.backends.comments import UNSAID, Comments
from redcal_spark.backends.delta_protocol import UnsupportedTable
from redcal_spark.backends.inputs import Side, joined_name
from redcal_spark.backends.local.delta_read import DeltaRsTable
from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.local.folders import beside
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.location import Location
from redcal_spark.backends.names import Place, problem_of_target, quoted
from redcal_spark.backends.spark.catalog import commented, described, overwrite_rows, said_of
from redcal_spark.backends.spark.errors import message_of
from redcal_spark.backends.spark.join import join_frames
from redcal_spark.backends.spark.merge import cluster, merge_rows
from redcal_spark.backends.spark.small_tables import OUT_OF_REACH, SparkSmallTables
from redcal_spark.backends.spark.tables import (
    SparkTable,
    again,
    at_location,
    explained,
    frame_of,
    frame_of_files,
    unread,
    unwritten,
)
from redcal_spark.backends.spark.targets import (
    check_managed,
    check_names,
    check_numbered,
    existing_table,
)
from redcal_spark.backends.store import (
    RECENT,
    Commit,
    Mode,
    just_written,
    version_at,
)
from redcal_spark.backends.target import RUN_ID, Existing, Target, check_rows
from redcal_spark.config.addresses import canonical
from redcal_spark.errors import InputError


class SparkStore(SparkSmallTables):
    """Tables are paths that the workers see, or names in the catalog."""

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> SparkTable:
        place = Place(name).absolute
        if self._is_of_files(place):
            return self._open_files(name, version, separator, fractions)
        visible = place.is_here or place.is_address
        table, why = self._seen(name, version) if visible else (None, None)
        unseen = f"this process cannot read it: {why}" if why else f"{name} is not a path here"
        if table is not None:
            identity = table.identity()
        else:
            identity, location = self._pinned(name, place, version, why)
            if not place.is_path:
                table, unseen = at_location(self.spark, place, location, identity, self._seen)
        reader = self.spark.read.option("versionAsOf", str(identity["version"]))

        def frame() -> DataFrame:
            if place.is_path:
                return reader.format("delta").load(place.name)
            return reader.table(place.sql)

        newest = partial(self._newest, name)
        return SparkTable(name, frame, lambda: identity, table, newest, unseen)

    def _is_of_files(self, place: Place) -> bool:
        """Whether a path is no Delta table, as far as this process can see."""
        if place.is_here:
            return not Path(place.name, "_delta_log").is_dir()
        if not place.is_address:
            return False
        there = self._local.at(place.name)
        try:
            return there.exists() and not there.below("_delta_log").is_dir()
        except OSError:  # Spark may reach it
            return False

    def _newest(self, name: str) -> int:
        return int(self.history(name, 1)[0]["version"])

    def _seen(
        self, name: str, version: int | str | None
    ) -> tuple[DeltaRsTable | None, InputError | None]:
        """A Delta table as this process sees it: looked up quicker, refused in the same words.

        Not so if only Spark can read it; then, what is wrong with it in the eyes of delta-rs.
        """
        try:
            self._local.open(name)
        except InputError as err:
            return None, err
        try:
            table = self._local.open(name, version)
        except UnsupportedTable as err:  # that version asks for more than the newest one
            return None, err
        assert isinstance(table, DeltaRsTable)
        return table, None

    def _open_files(
        self, name: str, version: int | str | None, separator: str, fractions: Sequence[str]
    ) -> SparkTable:
        # the embedded store tells what is wrong with files, in the same words
        table = self._local.open(name, version, separator, fractions)
        assert isinstance(table, FileTable)
        read = partial(frame_of_files, self.spark, table, separator)
        return SparkTable(name, read, table.identity, table)

    def _pinned(
        self, name: str, place: Place, version: int | str | None, why: InputError | None
    ) -> tuple[dict[str, Any], str]:
        """The version to read, as a number, so that every pass reads the same rows; its location.

        why: what is wrong with it in other eyes, told if Spark cannot read it either. Times are
        those of Delta's history: of the files of the log.
        """

        def refusal(err: Exception) -> Exception:
            if why is not None and not isinstance(why, UnsupportedTable):
                return why
            if "NOT_FOUND" in str(err) and not place.is_path:
                return InputError(f"{name}: no such table in the catalog")
            return InputError(f"{name}: not a readable Delta table: {message_of(err)}")

        with explained(refusal):
            entries = self.spark.sql(f"DESCRIBE HISTORY {place.sql}").select("version", "timestamp")
            # Spark gives local times without a zone
            versions = [(int(v), time.astimezone(UTC)) for v, time in entries.collect()]
            details = self.spark.sql(f"DESCRIBE DETAIL {place.sql}")
            detail = details.select("id", "location").collect()[0]
        newest = max(v for v, _ in versions)
        if version is None:
            chosen = newest
        elif isinstance(version, int):
            if version not in {v for v, _ in versions}:
                gone = " (older ones may have been cleaned up)" if version < newest else ""
                raise InputError(f"{name}: has no version {version}; the newest is {newest}{gone}")
            chosen = version
        else:
            chosen = version_at(name, versions, version)
        table, id = canonical(name), detail["id"]
        identity = {"kind": "delta", "table": table, "version": int(chosen), "id": id}
        return identity, str(detail["location"])

    def join(
        self, main: SparkTable, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ) -> SparkTable:
        tables: list[Any] = [main, *(side.table for side in sides)]
        with explained(main.explain):
            frame = join_frames(main, sides, id, policy)
        return SparkTable(
            joined_name(main, sides),
            lambda: frame,
            lambda: {"kind": "join", "tables": [table.identity() for table in tables]},
        )

    def spare(self, name: str) -> DeltaRsStore | None:
        return self._local if Place(name).is_here else self.quick(name)

    def check_target(self, name: str, key: str) -> str | None:
        place = Place(name)
        if place.is_here:
            return problem_of_target(Location(name), key)
        if place.is_address and self.loses_commits(name):
            if not self._seen_by_spark(place):
                return f"{key}: {name}: {OUT_OF_REACH}"
            return self._local.check_target(name, key) if key != "output.table" else None
        return None

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        """Write rows that are at the driver, into one file."""
        if (quick := self.to_change(name)) is not None:
            return quick.write(name, schema, batches, mode, commit)
        rows, place = frame_of(self.spark, schema, batches).coalesce(1), Place(name).absolute
        old = self.existing(name)
        if old is None and mode == "append" and not place.is_path:
            # a CREATE TABLE AS SELECT would not keep what the commit says of itself
            self._create(place, name, rows.limit(0), Comments.of(schema))
        evolve = old is not None and old.is_earlier(schema)
        return self.write_frame(name, rows, mode, commit, evolve=evolve)

    def write_frame(
        self, name: str, frame: DataFrame, mode: Mode, commit: Commit, *, evolve: bool
    ) -> int:
        """Write a frame as one version. A repeat of the same phase of a run is skipped by Delta.

        evolve: columns that the table has not are added to it.
        """
        place = Place(name).absolute
        if commit.again and (done := self.written(name, commit)) is not None:
            return done[0]
        writer = self._writer(frame, mode, commit)
        if mode == "overwrite":
            writer = writer.option("overwriteSchema", "true")
        elif evolve:
            writer = writer.option("mergeSchema", "true")
        self._save(writer, place, name, commit)
        self._columns[place.sql] = {*frame.columns}
        return just_written(self, name, commit)[0]

    def _writer(self, frame: DataFrame, mode: Mode, commit: Commit) -> DataFrameWriter:
        return frame.write.format("delta").mode(mode).options(**said_of(commit))

    def _save(self, writer: DataFrameWriter, place: Place, name: str, commit: Commit) -> None:
        def save() -> None:
            if not place.is_path:
                writer.saveAsTable(place.sql)
            elif place.is_here and not self._exists(place):
                _save_new(writer, Path(place.name), commit)
            else:
                writer.save(place.name)

        with explained(partial(unwritten, name)):
            again(save)

    def _mark(self, place: Place, name: str, commit: Commit) -> None:
        """An empty version that says that the run was here."""
        nothing = self._frame(place).limit(0)
        self._save(self._writer(nothing, "append", commit), place, name, commit)

    def existing(self, name: str) -> Existing | None:
        place = Place(name).absolute
        if not self._exists(place):
            return None
        with explained(partial(unread, name)):
            return existing_table(self._frame(place), place, name)

    def check_rows(self, target: Target, schema: pa.Schema) -> None:
        old = self.existing(target.table)
        check_rows(target, schema, old)
        check_names(target, schema, old)
        check_managed(target, schema, old)
        place = Place(target.table).absolute
        if old is not None and (place.is_here or place.is_address):
            check_numbered(target, self._local.at(place.name))

    def put_frame(
        self, target: Target, frame: DataFrame, commit: Commit, comments: Comments = UNSAID
    ) -> tuple[int, int]:
        """Put a frame's rows into their table as the target says; the version, and its rows.

        comments: for what is new, where a catalog shows them.
        """
        name = target.table
        place = Place(name).absolute
        old = self.existing(name)
        if target.mode == "merge" and old is not None:
            with explained(partial(unwritten, name)):
                again(lambda: merge_rows(place, frame, self._frame(place), target, commit))
            if (done := self.written(name, commit, RECENT)) is not None:
                return done
            # nothing differed, or the session may not say who writes: an empty version says it
            self._mark(place, name, commit)
            return just_written(self, name, commit)
        mode: Mode = "append" if target.mode == "append" else "overwrite"
        if target.mode == "merge" and target.touched_only:
            frame = frame.where(col(quoted(target.touched)))
        if mode == "append":
            frame = frame.withColumn(RUN_ID, lit(commit.run_id))
        new = old is None and not place.is_path
        if not place.is_path:
            frame = commented(frame, comments, self._frame(place).schema if old else None)
        if old is not None and mode == "overwrite" and not place.is_path:
            with explained(partial(unwritten, name)):
                if overwrite_rows(frame, place, target, old, commit):
                    return just_written(self, name, commit)
        # an append that makes a table in a catalog would not keep what the commit says of itself
        writer = self._writer(frame, "overwrite" if new else mode, commit)
        writer = described(writer, comments) if new else writer
        if partitions := target.partitions_for(old, frame.columns):
            writer = writer.partitionBy(*partitions)
        if target.evolve and old is not None:
            option = "mergeSchema" if mode == "append" else "overwriteSchema"
            writer = writer.option(option, "true")
        self._save(writer, place, name, commit)
        if mode == "overwrite" and (clusters := target.clusters_for(old, frame.columns)):
            with explained(partial(unwritten, name)):
                cluster(self.spark, place, clusters, commit)
        return just_written(self, name, commit)

    def of_run(self, table: SparkTable, run_id: str) -> SparkTable:
        return SparkTable(
            table.name,
            lambda: table.frame.where(col(RUN_ID) == run_id),
            lambda: table.identity() | {RUN_ID: run_id},
        )


def _save_new(writer: DataFrameWriter, path: Path, commit: Commit) -> None:
    """Make a table: beside its place, then move it there, so that it is whole or not at all."""
    with beside(path, commit.run_id) as partial:
        writer.save(str(partial))
        try:
            partial.rename(path)
        except OSError:  # meanwhile someone else has made it, or Spark's disk is not ours
            writer.save(str(path))

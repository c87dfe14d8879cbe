"""Reconciled rows that tasks write themselves: Parquet files by pyarrow, one commit by delta-rs.

What Spark collects of the tasks is the manifest. Files that are not in it, of tasks that were
killed or tried again, are in no commit and are removed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import fs
from pyspark.sql import SparkSession

from redcal_spark.backends.delta_protocol import known_log, unwritable
from redcal_spark.backends.delta_types import delta_schema, delta_type
from redcal_spark.backends.local.errors import is_delta, unreadable
from redcal_spark.backends.local.folders import beside, missing_folders
from redcal_spark.backends.location import Location
from redcal_spark.backends.names import Place
from redcal_spark.backends.retries import retried
from redcal_spark.backends.spark.frames import map_in_arrow
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.source import Source
from redcal_spark.backends.spark.tables import explained, unwritten
from redcal_spark.backends.spark.write_task import (
    MANIFEST_DDL,
    ProbeTask,
    WriteTask,
    WrittenFile,
)
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import RUN_ID, Target
from redcal_spark.core.arrow import Batches
from redcal_spark.errors import ConflictError, InputError, RunError, UsageError

log = logging.getLogger(__name__)

PROBES = 8  # tasks that look whether they see the folder
SPARK = "use output.writer: spark"


# --- what can be seen beforehand ------------------------------------------------------------------


def check_direct(
    spark: SparkSession, target: Target, schema: pa.Schema, vectors: Sequence[str]
) -> None:
    """Refuse what only Spark can write, and folders that workers do not see.

    schema: of the rows. vectors: their columns of Spark ML's own type.
    """
    place = Place(target.table).absolute
    if not place.is_here:
        what = "an address" if place.is_path else "a catalog name"
        raise UsageError(
            f"output.writer: direct writes into a folder that driver and workers both see; "
            f"output.table: {target.table} is {what}: {SPARK}"
        )
    problems = [
        f"column {name!r} is a vector of Spark ML, which Spark alone writes" for name in vectors
    ]
    names = target.with_run(schema).names
    old = DeltaTable(place.name) if is_delta(Location(place.name)) else None
    if old is not None:
        problems += _of_a_table(target, place.name, old, names)
    parted = target.partitions or (() if old is None else old.metadata().partition_columns)
    for name in parted:
        kind = pa.string() if name == RUN_ID else delta_schema(schema).field(name).type
        if not _is_key(kind):
            problems.append(f"partition column {name!r} has type {delta_type(kind)}")
    if problems:
        head = f"output.writer: direct cannot write {target.table}"
        raise UsageError("\n  ".join([f"{head}; {SPARK}:", *problems]))
    _probe(spark, place.name)


def _of_a_table(target: Target, path: str, table: DeltaTable, names: list[str]) -> Iterator[str]:
    """What a table that is there asks of its writers."""
    with unreadable(path, InputError, "cannot be read"), known_log(path):
        why = unwritable(table)
    if why is not None:
        yield why
    if "deletionVectors" in (table.protocol().writer_features or ()):
        yield "it may have rows that are marked as deleted (deletionVectors)"
    fixed = [field.name for field in table.schema().fields if not field.nullable]
    if fixed:
        yield f"Spark alone checks columns that are NOT NULL: {', '.join(map(repr, fixed))}"
    has = tuple(table.metadata().partition_columns)
    if (target.partitions and target.partitions != has) or not {*has} <= {*names}:
        yield "how the table is partitioned would change"


def _is_key(kind: pa.DataType) -> bool:
    """Whether values of this type are written into Delta's log without any doubt."""
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)
    return bool(whole or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _probe(spark: SparkSession, path: str) -> None:
    """A small job: its tasks must see what is written here, and write beside it."""
    missing = missing_folders(path)
    folder = missing[-1].parent if missing else Path(path)
    name, token = f".redcal-probe-{secrets.token_hex(8)}", secrets.token_hex(16)
    ship_package(spark)
    try:
        (folder / name).write_text(token, "utf-8")
    except OSError as err:
        raise UsageError(f"output.writer: direct: {folder}: {err.strerror}") from err
    try:
        task = ProbeTask(folder.as_uri(), name, token)
        with explained(partial(unwritten, path)):
            answers = map_in_arrow(spark.range(0, PROBES, 1, PROBES), task, MANIFEST_DDL).toArrow()
    finally:
        with suppress(OSError):
            (folder / name).unlink()
    wrong = next((text for text in answers["file"].to_pylist() if text), None)
    if wrong is not None:
        raise UsageError(
            f"output.writer: direct: Spark's workers cannot write into {folder} ({wrong}): name a "
            f"folder that driver and workers both see, or {SPARK}"
        )


# --- writing --------------------------------------------------------------------------------------


def write_direct(
    source: Source,
    make: Callable[[Batches], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    target: Target,
    commit: Commit,
    at_end: Callable[[], None],
) -> tuple[int, int]:
    """Write what `make` makes of a source's rows; returns how many rows were read and written.

    schema: of what it makes. at_end: called when all rows were read, before anything is committed.
    """
    path = Path(Place(target.table).absolute.name)
    job = _Job(source, make, delta_schema(target.with_run(schema)), target, commit)
    if is_delta(Location(str(path))):
        return job.into_table(path, at_end)
    with beside(path, commit.run_id) as partial_:
        partial_.mkdir()
        done = job.into_new(partial_, at_end)
        try:
            partial_.rename(path)
        except OSError as err:
            raise ConflictError(
                f"{target.table}: another run made it meanwhile; start this run again"
            ) from err
    return done


class _Job:
    """One write of one run."""

    def __init__(
        self,
        source: Source,
        make: Callable[[Batches], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
        target: Target,
        commit: Commit,
    ):
        self._source, self._make, self._schema = source, make, schema
        self._target, self._commit = target, commit

    def into_new(self, folder: Path, at_end: Callable[[], None]) -> tuple[int, int]:
        read, files = self._write(folder, self._target.partitions)
        at_end()
        create_table_with_add_actions(
            str(folder),
            Schema.from_arrow(self._schema),
            _added(files),
            partition_by=list(self._target.partitions),
            commit_properties=_said(self._commit, files),
        )
        remove_others(folder, self._commit, files)
        return read, sum(file.rows for file in files)

    def into_table(self, folder: Path, at_end: Callable[[], None]) -> tuple[int, int]:
        parted = tuple(DeltaTable(str(folder)).metadata().partition_columns)
        files: list[WrittenFile] = []
        try:
            read, files = self._write(folder, parted)
            at_end()
            retried(lambda: self._add(folder, files, parted), _lost_a_race, pause=0.1)
        except BaseException as err:
            remove_others(folder, self._commit, ())
            if isinstance(err, DeltaError | OSError):
                text = str(err).splitlines()[0]
                raise RunError(f"{self._target.table}: could not be written: {text}") from err
            raise
        remove_others(folder, self._commit, files)
        return read, sum(file.rows for file in files)

    def _write(self, folder: Path, parted: tuple[str, ...]) -> tuple[int, list[WrittenFile]]:
        """The job: how many rows were read, and the files of the tasks that Spark counts."""
        target, commit = self._target, self._commit
        constants = ((RUN_ID, commit.run_id),) if target.mode == "append" else ()
        task = WriteTask(
            *(self._make, folder.as_uri(), prefix(commit), self._schema),
            partitions=parted,
            constants=constants,
            reader=self._source.reader,
        )
        with explained(partial(unwritten, target.table)):
            manifest = map_in_arrow(self._source.frame, task, MANIFEST_DDL).toArrow()
        files = [WrittenFile.from_json(text) for text in manifest["file"].to_pylist() if text]
        return sum(manifest["rows"].to_pylist()), files

    def _add(self, folder: Path, files: Sequence[WrittenFile], parted: tuple[str, ...]) -> None:
        """One commit to the table as it is now."""
        target, table = self._target, DeltaTable(str(folder))
        has = {field.name for field in table.schema().fields}
        schema = Schema.from_arrow(self._schema)
        new = [field for field in schema.fields if field.name not in has]
        if target.mode == "append" and new:  # refused before, unless the table may change
            said = replace(self._commit, phase=self._commit.phase + 1)
            table.alter.add_columns(new, commit_properties=_said(said, ()))
            table = DeltaTable(str(folder))
        same = target.mode == "append" or not target.evolve
        table.create_write_transaction(
            [*_added(files)],
            mode="append" if target.mode == "append" else "overwrite",
            schema=table.schema() if same else schema,
            partition_by=list(parted),
            commit_properties=_said(self._commit, files),
        )


def _lost_a_race(err: Exception) -> bool:
    if isinstance(err, CommitFailedError):
        log.info("another writer was quicker; trying the commit again")
    return isinstance(err, CommitFailedError)


def _said(commit: Commit, files: Sequence[WrittenFile]) -> CommitProperties:
    """What the commit says of itself, as Spark's own writer would."""
    counted = {
        "numFiles": str(len(files)),
        "numOutputRows": str(sum(file.rows for file in files)),
        "numOutputBytes": str(sum(file.size for file in files)),
    }
    metadata = {"userMetadata": commit.user_metadata, "operationMetrics": counted}
    return CommitProperties(custom_metadata=metadata, max_commit_retries=0)


def _added(files: Sequence[WrittenFile]) -> list[AddAction]:
    return [
        AddAction(file.path, file.size, file.partition, file.written_at, True, file.stats)
        for file in files
    ]


# --- files that are in no commit ------------------------------------------------------------------


def prefix(commit: Commit) -> str:
    """How the names of a run's files begin."""
    return f"redcal-{commit.run_id}-"


def remove_others(folder: Path, commit: Commit, kept: Sequence[WrittenFile]) -> None:
    """Remove files of this run that are not kept: of tasks that died, or were tried again."""
    keep = {file.path for file in kept}
    place, root = fs.FileSystem.from_uri(folder.as_uri())
    mark = prefix(commit)
    for file in place.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True)):
        path = file.path.removeprefix(root).lstrip("/")
        if file.base_name.startswith(mark) and path not in keep:
            with suppress(OSError):
                place.delete_file(file.path)


def remove_uncommitted(target: Target, commit: Commit, version: int) -> None:
    """The same for a run that was killed after its commit: the log says which files count."""
    path = Path(Place(target.table).absolute.name)
    with suppress(DeltaError, OSError):
        known = pa.table(DeltaTable(str(path), version=version).get_add_actions())["path"]
        # the log has paths in their encoded form
        kept = [WrittenFile(unquote(name), 0, 0, {}, "", 0) for name in known.to_pylist()]
        remove_others(path, commit, kept)

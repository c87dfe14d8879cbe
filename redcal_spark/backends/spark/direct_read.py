"""Tables whose files Spark's tasks read themselves: which, and which files go to which task.

Spark's own scan decodes files in the JVM, makes rows of them and sends these to Python. Where
workers can open the files, a task that gets their names needs none of that.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import UserDefinedType

from redcal_spark.backends.names import quoted
from redcal_spark.backends.spark.errors import is_sparks, message_of
from redcal_spark.backends.spark.file_reader import FilePart, FileReader, ProbeTask, unreadable
from redcal_spark.backends.spark.frames import arrow_schema, map_in_arrow
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.source import Source
from redcal_spark.backends.spark.table_files import TableFiles, table_files
from redcal_spark.backends.spark.tables import SparkTable
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.core.parquet_columns import known

MOST_FILES = 100_000  # their names go to every task
LOOKED_AT = 256  # files, at most, before anything is computed; tasks look at those they read
PROBED = 3  # files that each worker opens to see whether it can
PROBES = 4_096  # rows of the probe, which Spark spreads over all its cores
TASK_BYTES = 2**27  # of files, about, unless that makes too few tasks or too many
TASKS_A_CORE = (4, 32)  # with fewer, cores wait at the end; each sends its statistics to the driver
LEAST_BYTES = 2**21  # of a task
OPENING = 2**18  # what opening a file costs, in bytes that could be read instead

_seen: weakref.WeakKeyDictionary[SparkSession, dict[str, int]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class NotDirect:
    """Why tasks cannot read a table's files themselves, in words."""

    why: str


def direct_source(table: SparkTable, columns: Sequence[str]) -> Source | NotDirect:
    """Some columns of a table, of files that tasks read themselves; or why they cannot."""
    schema = _known_schema(table.frame, columns)
    if isinstance(schema, str):
        return NotDirect(schema)
    files = table_files(table, schema)
    if isinstance(files, str):
        return NotDirect(files)
    if len(files.parts) > MOST_FILES:
        return NotDirect(f"it has {len(files.parts):,} files, more than {MOST_FILES:,}")
    stored = pa.schema([field for field in schema if field.name not in files.partitions])
    if (why := _unlike(files, stored)) is not None:
        return NotDirect(why)
    spark = table.frame.sparkSession
    cores = _cores(spark, files, stored)
    if isinstance(cores, str):
        return NotDirect(cores)
    tasks = divided(files.parts, cores)
    reader = FileReader(schema, files.partitions, tasks, files.shared)
    return Source(spark.range(0, len(tasks), 1, len(tasks)), tuple(columns), (), reader)


def _known_schema(frame: DataFrame, columns: Sequence[str]) -> pa.Schema | str:
    """The columns in the types that a task has them in; or which one it cannot have."""
    chosen = frame.select(*map(quoted, columns))
    for field in chosen.schema.fields:
        if isinstance(field.dataType, UserDefinedType):
            return f"column {field.name!r} has type {field.dataType.simpleString()}"
    schema = arrow_schema(chosen)
    odd = next((field for field in schema if not known(field.type)), None)
    return schema if odd is None else f"column {odd.name!r} has type {odd.type}"


def _unlike(files: TableFiles, stored: pa.Schema) -> str | None:
    """Why files do not hold the columns as the table has them, by those that are looked at."""
    some = spread(files.parts, LOOKED_AT)
    with ThreadPoolExecutor(8) as threads:
        for why in threads.map(partial(unreadable, stored=stored, options=files.options), some):
            if why is not None:
                return why
    return files.lacking(some, stored) if files.by_folders else None


def _cores(spark: SparkSession, files: TableFiles, stored: pa.Schema) -> int | str:
    """How many tasks run beside each other; or why one of them cannot read the files.

    Asked of each folder once a session.
    """
    seen = _seen.setdefault(spark, {})
    if files.folder not in seen:
        ship_package(spark)
        probe = ProbeTask(stored, tuple(spread(files.parts, PROBED)), files.shared)
        try:
            answers = map_in_arrow(spark.range(PROBES), probe, "why string").toArrow()
        except Exception as err:
            if not is_sparks(err):
                raise
            return f"a worker cannot do it: {of_worker(err) or message_of(err)}"
        for why in answers.column("why").to_pylist():
            if why:
                return f"a worker cannot read {why}"
        seen[files.folder] = answers.num_rows
    return seen[files.folder]


def spread(parts: Sequence[FilePart], most: int) -> list[FilePart]:
    """Some of the files, from the first to the last."""
    number = min(most, len(parts))
    return [parts[i * (len(parts) - 1) // max(1, number - 1)] for i in range(number)]


def divided(files: Sequence[FilePart], cores: int) -> tuple[tuple[FilePart, ...], ...]:
    """The files as the work of tasks: a few for every core, of about as many bytes."""
    total = sum(file.size + OPENING for file in files)
    least, most = (each * cores for each in TASKS_A_CORE)
    number = min(max(-(-total // TASK_BYTES), least), most, -(-total // LEAST_BYTES))
    size = -(-total // max(1, number))
    parts = [part for file in files for part in _cut(file, size)]
    parts.sort(key=lambda part: part.start - part.end)
    tasks: list[list[FilePart]] = [[] for _ in range(min(number, len(parts)))]
    waiting = [(0, i) for i in range(len(tasks))]
    for part in parts:  # each to the task that has least to do
        load, i = waiting[0]
        tasks[i].append(part)
        heapq.heapreplace(waiting, (load + part.end - part.start + OPENING, i))
    return tuple(map(tuple, tasks))


def _cut(file: FilePart, size: int) -> list[FilePart]:
    """A large file in parts of about this size."""
    number = max(1, round(file.size / size))
    ends = [file.size * i // number for i in range(number + 1)]
    return [replace(file, start=ends[i], end=ends[i + 1]) for i in range(number)]

"""A run's work on Spark: scans, passes and writes are Spark jobs."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructField, StructType

from redcal_spark.backends.backend import AtEnd, Progress
from redcal_spark.backends.comments import of_rows
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.inputs import columns_read
from redcal_spark.backends.location import REFUSED
from redcal_spark.backends.names import quoted
from redcal_spark.backends.object_stores import Options
from redcal_spark.backends.spark.arrow_batches import small_batches, warn_of_large_batches
from redcal_spark.backends.spark.direct_read import NotDirect, direct_source
from redcal_spark.backends.spark.direct_write import (
    check_direct,
    remove_uncommitted,
    write_direct,
)
from redcal_spark.backends.spark.errors import is_sparks
from redcal_spark.backends.spark.file_reader import NOT_DIRECTLY
from redcal_spark.backends.spark.frames import (
    apply_task,
    apply_to_frame,
    arrow_fields,
    arrow_schema,
    layout_of,
    map_in_arrow,
    nameless,
    plain_text,
    problems_of,
    table_of,
    vectors,
)
from redcal_spark.backends.spark.join import id_problems
from redcal_spark.backends.spark.scan import SparkScan
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.source import Source, frame_source
from redcal_spark.backends.spark.spark_version import need_spark_4
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.stream import SparkStream, stream_of
from redcal_spark.backends.spark.tables import SparkTable, explained, refused
from redcal_spark.backends.spark.tasks import ApplyTask
from redcal_spark.backends.spark.watch import Growing
from redcal_spark.backends.store import Commit, Table, just_written, written_before
from redcal_spark.backends.target import Target
from redcal_spark.backends.views import Made
from redcal_spark.config.schema import Config, Read
from redcal_spark.core.columns import Layout
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.multiset import CompareTask, FetchTask, SumTask
from redcal_spark.core.problem import Problem, way_out
from redcal_spark.core.splits import Split
from redcal_spark.errors import InputError, RedcalError, UsageError
from redcal_spark.settings import DriverBudget

log = logging.getLogger(__name__)


class NotRead(Exception):
    """A task that could not read its files: Spark may."""


class SparkBackend:
    """Tables are DataFrames, and so is the work."""

    def __init__(
        self,
        spark: SparkSession,
        scratch: str | None = None,
        driver_budget: DriverBudget = "auto",
        threads: int | None = None,
        read: Read = "auto",
        options: Options | None = None,
    ):
        need_spark_4(spark)
        self.store, self._options = SparkStore(spark, options), options
        self.counters = Counters()
        self._spark, self._scratch = spark, scratch
        self._budget = driver_budget
        self._threads = threads
        self._read = read

    def first(self, table: Table, columns: list[str]) -> pa.RecordBatch | None:
        return _frame(table).first(columns)

    def id_problems(self, table: Table, id: str) -> list[str]:
        source = _frame(table)
        with explained(source.explain):
            return id_problems(source.frame, id, table.name)

    def rows_with(
        self, table: Table, id: str, value: pa.Scalar, names: list[str], most: int
    ) -> tuple[pa.Table, int]:
        source = _frame(table)
        with explained(source.explain):
            same = source.frame.where(col(quoted(id)) == value.as_py())
            rows = table_of(same.limit(most), names)
            return rows, rows.num_rows if rows.num_rows < most else same.count()

    def scan(
        self, table: Table, problem: Problem, split: Split | None, progress: Progress
    ) -> SparkScan:
        source = _frame(table)
        layout = layout_of(source.frame, problem.columns, problem.n_classes, where=table.name)
        heard = Growing(progress)
        wanted = problem, layout, split, heard, table.count()
        rows = self._source(source, columns_read(layout.columns, split))
        try:
            scan = self._scanned(source, rows, *wanted)
        except NotRead as err:  # in spite of the probe: other files, another worker
            self._tell(source, NotDirect(str(err)))
            scan = self._scanned(source, source.frame, *wanted)
        heard(scan.gathered.rows)
        return scan

    def _scanned(
        self,
        source: SparkTable,
        rows: Source | DataFrame,
        problem: Problem,
        layout: Layout,
        split: Split | None,
        heard: Growing,
        total: int | None,
    ) -> SparkScan:
        scratch = Scratch(self._spark, self._scratch, self.counters, self._options)
        if isinstance(rows, DataFrame):
            warn_of_large_batches(self._spark, layout)
        room = self._budget, self._threads
        try:
            scan = SparkScan(rows, problem, layout, scratch, *room, split, heard, total)
            problem.check(scan.gathered, source.name, split)
        except BaseException as err:
            scratch.close()
            if isinstance(err, Exception) and is_sparks(err):
                cause = source.explain(err)
                _, ours, why = str(cause).partition(f"{NOT_DIRECTLY}: ")
                raise NotRead(why) if ours and self._read == "auto" else cause from err
            raise
        return scan

    def check_reading(self, table: Table, columns: list[str]) -> None:
        source = _frame(table)
        if self._read == "direct":
            with explained(source.explain):
                direct = direct_source(source, columns)
            if isinstance(direct, NotDirect):
                self._tell(source, direct)

    def _source(self, table: SparkTable, columns: list[str]) -> Source | DataFrame:
        """Where tasks get their rows from; the log says which and why."""
        if self._read == "spark":
            log.info("%s: read by Spark: engine.read is spark", table.name)
            return table.frame
        with explained(table.explain):
            direct = direct_source(table, columns)
        self._tell(table, direct)
        return direct if isinstance(direct, Source) else table.frame

    def _tell(self, table: SparkTable, direct: Source | NotDirect) -> None:
        if isinstance(direct, Source):
            log.info("%s: tasks read its files themselves", table.name)
        elif self._read == "auto":
            why = direct.why
            if REFUSED.search(why):
                why += "; workers have no credentials of their own: give them some, or ignore this"
            log.info("%s: read by Spark; its files %s: %s", table.name, NOT_DIRECTLY, why)
        else:
            raise UsageError(
                f"engine.read: direct, but the files of {table.name} {NOT_DIRECTLY}: {direct.why}; "
                "use engine.read: auto"
            )

    def write_rows(
        self, table: Table, made: Made, commit: Commit, progress: Progress, at_end: AtEnd
    ) -> tuple[int, int]:
        """One job reads, maps and writes. Files that change meanwhile are noticed after it."""
        target = made[1]
        done = written_before(self.store, target, commit)
        if done is not None:
            if target.direct:
                remove_uncommitted(target, commit, done[0])
            return done
        try:
            heard = Growing(progress)
            version, read, written = self._put(table, made, commit, at_end, heard)
            self.counters.jobs += 1
        except RedcalError as err:
            bad = refused(str(err.__cause__ or err), table.name)
            if bad is None:
                raise
            raise self._counted(_frame(table), made, bad) from err
        heard(read)
        return version, written

    def _put(
        self, table: Table, made: Made, commit: Commit, at_end: AtEnd, heard: Growing
    ) -> tuple[int, int, int]:
        """The version, and how many rows were read and written."""
        source, target = _frame(table), made[1]
        columns = list(_task(table, made)[0].names)
        # a write by Spark of all rows makes as many files as the table's reading has tasks
        direct = target.direct or target.touched_only
        rows = self._source(source, columns) if direct else source.frame
        write = self._put_direct if target.direct else self._put_frame

        def put(rows: Source | DataFrame) -> tuple[int, int, int]:
            scratch = Scratch(self._spark, self._scratch, self.counters)
            try:
                with scratch.watched(heard, table.count()) as watch:
                    given = _source_of(rows, columns)
                    read = replace(given, reader=watch.rows(given.reader))
                    return write(table, made, read, commit, at_end)
            finally:
                scratch.close()

        try:
            return put(rows)
        except RedcalError as err:
            _, ours, why = str(err).partition(f"{NOT_DIRECTLY}: ")
            if not ours or self._read != "auto":
                raise
            self._tell(source, NotDirect(why))
            return put(source.frame)

    def _put_frame(
        self, table: Table, made: Made, source: Source, commit: Commit, at_end: AtEnd
    ) -> tuple[int, int, int]:
        target = made[1]
        task, fields = _task(table, made)
        task = replace(task, reader=source.reader)
        new = plain_text(map_in_arrow(source.frame, task, StructType(fields)), fields)
        self.store.check_rows(target, arrow_schema(new))
        at_end()
        pair = made[0]
        said = of_rows(target.names(pair.columns, pair.losses))
        version, written = self.store.put_frame(target, new, commit, said)
        read = _frame(table).frame.count() if target.touched_only else written
        return version, read, written

    def _put_direct(
        self, table: Table, made: Made, source: Source, commit: Commit, at_end: AtEnd
    ) -> tuple[int, int, int]:
        target = made[1]
        task, fields = _task(table, made)
        schema = arrow_fields(fields)
        self.store.check_rows(target, schema)
        read, written = write_direct(source, task, schema, target, commit, at_end)
        return just_written(self.store, target.table, commit)[0], read, written

    def check_writer(self, table: Table, target: Target, schema: pa.Schema) -> None:
        if target.direct:
            frame = _frame(table).frame
            carried = [name for name in vectors(frame) if name in schema.names]
            check_direct(self._spark, target, schema, carried)

    def _counted(self, source: SparkTable, made: Made, first: InputError) -> InputError:
        """The bad rows of the whole table. first: those of the task that met some first."""
        pair, target, _ = made
        layout = layout_of(source.frame, pair.columns, pair.n_classes, False, source.name)
        layout = replace(layout, skip_missing=target.skip_missing)
        try:
            problems = problems_of(source.frame, layout)
            problems.raise_if_any(source.name, way_out(problems))
        except InputError as all_of_them:
            return all_of_them
        except Exception as err:
            if not is_sparks(err):
                raise
        return first

    def stream(self, config: Config, pair: Fitted, model: tuple[str, str]) -> SparkStream:
        return stream_of(self.store, config, pair, model)

    def compared(self, table: Table, task: CompareTask, made: Made | None) -> list[pa.RecordBatch]:
        source = _frame(table)
        rows = source.frame if made is None else _made(table, made)
        ship_package(self._spark)
        asked = replace(task, names=tuple(rows.columns))
        kind = "sums binary" if isinstance(task, SumTask) else nameless(rows).schema
        try:
            with small_batches(self._spark):
                answers = map_in_arrow(nameless(rows), asked, kind).toArrow()
        except Exception as err:
            if not is_sparks(err):
                raise
            raise refused(str(err), table.name) or source.explain(err) from err
        self.counters.jobs += 1
        if isinstance(task, FetchTask):
            answers = answers.rename_columns(rows.columns)
        return list(answers.to_batches())

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        return arrow_schema(_made(table, made))

    def only(self, table: Table, names: list[str]) -> Table:
        source = _frame(table)
        chosen = [quoted(name) for name in names]
        return SparkTable(table.name, lambda: source.frame.select(*chosen), table.identity)

    def labelled(self, table: Table, label: str) -> Table:
        source = _frame(table)
        known = col(quoted(label)).isNotNull()
        return SparkTable(table.name, lambda: source.frame.where(known), table.identity)

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        source, ids = _frame(table), _frame(other).frame.select(col(quoted(id)).alias("_redcal_id"))
        how = "left_semi" if inside else "left_anti"

        def chosen() -> DataFrame:
            rows = source.frame
            return rows.join(ids, rows[quoted(id)] == ids["_redcal_id"], how)

        return SparkTable(table.name, chosen, table.identity)


def _made(table: Table, made: Made) -> DataFrame:
    """The rows as they must be in the end."""
    pair, target, roles = made
    names = target.names(pair.columns, pair.losses)
    return apply_to_frame(_frame(table).frame, pair, names, target.skip, roles)


def _task(table: Table, made: Made) -> tuple[ApplyTask, list[StructField]]:
    """What tasks make of the rows to write them, and the columns of that."""
    pair, target, roles = made
    names = target.names_to_write(pair.columns, pair.losses)
    return apply_task(_frame(table).frame, pair, names, target.skip, roles)


def _source_of(rows: Source | DataFrame, columns: list[str]) -> Source:
    return rows if isinstance(rows, Source) else frame_source(rows, columns)


def _frame(table: Table) -> SparkTable:
    assert isinstance(table, SparkTable)
    return table

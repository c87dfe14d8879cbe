"""A run's work on Spark: scans, passes and writes are Spark jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.spark.errors import is_sparks
from redcal_spark.backends.spark.frames import (
    apply_to_frame,
    arrow_schema,
    column,
    layout_of,
    problems_of,
    scan_frame,
    table_of,
)
from redcal_spark.backends.spark.join import id_problems
from redcal_spark.backends.spark.scan import DRIVER_BUDGET, SparkScan, nameless
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.stream import SparkStream, stream_of
from redcal_spark.backends.spark.tables import SparkTable, explained, refused
from redcal_spark.backends.store import Commit, Table, written_before
from redcal_spark.backends.target import Target
from redcal_spark.backends.views import Made
from redcal_spark.config.schema import Config
from redcal_spark.core.columns import Layout
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.multiset import CompareTask, FetchTask, SumTask
from redcal_spark.core.problem import Problem
from redcal_spark.core.roles import Roles
from redcal_spark.core.splits import Split
from redcal_spark.errors import InputError, RedcalError


class SparkBackend:
    """Tables are DataFrames, and so is the work."""

    def __init__(
        self,
        spark: SparkSession,
        scratch: str | None = None,
        driver_budget: int = DRIVER_BUDGET,
        threads: int | None = None,
    ):
        self.store: Any = SparkStore(spark)  # also writes frames, which a Store need not
        self.counters = Counters()
        self._spark = spark
        self._scratch = scratch
        self._budget = driver_budget
        self._threads = threads

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
            same = source.frame.where(col(column(id)) == value.as_py())
            found = table_of(same.limit(most), names)
            return found, found.num_rows if found.num_rows < most else same.count()

    def scan(
        self,
        table: Table,
        problem: Problem,
        wanted: list[str],
        split: Split | None,
        progress: Callable[[int], Any],
    ) -> ScannedOnSpark:
        source = _frame(table)
        layout = layout_of(source.frame, problem.columns, problem.n_classes, where=table.name)
        scratch = Scratch(self._spark, self._scratch, self.counters)
        try:
            found = scan_frame(
                source.frame,
                problem.scanner(layout, split),
                scratch,
                self._budget,
                self._threads,
            )
            problem.check(found.gathered, table.name)
        except BaseException as err:
            scratch.close()
            if isinstance(err, Exception) and is_sparks(err):
                raise source.explain(err) from err
            raise
        progress(found.gathered.rows)
        return ScannedOnSpark(found, layout, problem, scratch)

    def write_rows(
        self,
        table: Table,
        pair: Fitted,
        target: Target,
        commit: Commit,
        progress: Callable[[int], Any],
        at_end: Callable[[], None],
        roles: Roles,
    ) -> tuple[int, int]:
        """One job reads, maps and writes. Files that change meanwhile are noticed after it."""
        done: tuple[int, int] | None = written_before(self.store, target, commit)
        if done is not None:
            return done
        rows = _made(table, (pair, target, roles))
        self.store.check_rows(target, arrow_schema(rows))
        at_end()
        try:
            version = self.store.put_frame(target, rows, commit)
            self.counters.jobs += 1
        except RedcalError as err:
            bad = refused(str(err.__cause__ or err), table.name)
            if bad is None:
                raise
            raise self._counted(_frame(table), pair, bad) from err
        _, written = self.store.written(target.table, commit) or (version, 0)
        progress(written)
        return version, written

    def _counted(self, source: SparkTable, pair: Fitted, first: InputError) -> InputError:
        """The bad rows of the whole table. first: those of the task that met some first."""
        layout = layout_of(source.frame, pair.columns, pair.n_classes, False, source.name)
        try:
            problems_of(source.frame, layout).raise_if_any(source.name)
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
            found = nameless(rows).mapInArrow(asked, kind).toArrow()
        except Exception as err:
            if not is_sparks(err):
                raise
            raise refused(str(err), table.name) or source.explain(err) from err
        self.counters.jobs += 1
        if isinstance(task, FetchTask):
            found = found.rename_columns(rows.columns)
        return list(found.to_batches())

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        return arrow_schema(_made(table, made))

    def only(self, table: Table, names: list[str]) -> Table:
        source = _frame(table)
        chosen = [column(name) for name in names]
        return SparkTable(table.name, lambda: source.frame.select(*chosen), table.identity)

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        source, ids = _frame(table), _frame(other).frame.select(col(column(id)).alias("_redcal_id"))
        how = "left_semi" if inside else "left_anti"

        def chosen() -> DataFrame:
            rows = source.frame
            return rows.join(ids, rows[column(id)] == ids["_redcal_id"], how)

        return SparkTable(table.name, chosen, table.identity)


class ScannedOnSpark:
    """The scan's counts, and its active rows: at the driver if they fit, else in scratch."""

    def __init__(self, scan: SparkScan, layout: Layout, problem: Problem, scratch: Scratch):
        self.gathered = scan.gathered
        self.layout = layout
        self.replayed = 0
        self._scan = scan
        self._problem = problem
        self._scratch = scratch

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        return self._scan.engine(problem.fitting_rules(self.layout))

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        self.replayed = self._scan.active_rows
        return self._scan.histories(pair.rules, pair.log)

    def rows_at_hand(self) -> list[BlockScan] | None:
        if not self._scan.fits_the_driver:
            return None
        self.engine(self._problem).close()  # collects the rows
        return self.gathered.fit.scans

    def again(self, problem: Problem) -> None:
        """Their totals would take a job over the rows, which is what a scan is."""
        return None

    def close(self) -> None:
        self._scratch.close()


def _made(table: Table, made: Made) -> DataFrame:
    """The rows as they are written."""
    pair, target, roles = made
    names = target.names(pair.columns, pair.losses)
    rows: DataFrame = apply_to_frame(_frame(table).frame, pair, names, target.skip, roles)
    return rows


def _frame(table: Table) -> SparkTable:
    assert isinstance(table, SparkTable)
    return table

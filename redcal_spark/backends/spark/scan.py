"""The one scan on Spark: where everything that follows starts."""

from __future__ import annotations

import logging
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.inputs import columns_read
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.names import quoted
from redcal_spark.backends.spark.engine import SparkEngine, scans_of
from redcal_spark.backends.spark.frames import nameless, vectors
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import DDL, HistoryTask, ScanTask, blocks_of
from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Layout
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Holdout, Point, added, points, segments
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import unpack_changes, unpack_gathered
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import ScanResult
from redcal_spark.core.splits import Split
from redcal_spark.settings import DRIVER_BUDGET

log = logging.getLogger(__name__)


class SparkScan:
    """The one scan of a DataFrame: its counts, and its active rows in scratch.

    What follows is done at the driver if the active rows of both splits fit its budget.
    """

    def __init__(
        self,
        frame: DataFrame,
        problem: Problem,
        layout: Layout,
        scratch: Scratch,
        driver_budget: int = DRIVER_BUDGET,
        threads: int | None = None,
        split: Split | None = None,
    ):
        ship_package(scratch.spark)
        self.layout = layout
        self.scratch = scratch
        self.driver_budget = driver_budget
        self.threads = threads
        self.replayed = 0
        scanner = problem.scanner(layout, split)
        self._rules = scanner.rules
        names = columns_read(layout.columns, split)
        chosen = frame.select(*map(quoted, names))
        task = ScanTask(scanner, tuple(names), vectors(chosen))
        self.written = scratch.write(nameless(chosen).mapInArrow(task, DDL))
        self.gathered = ScanResult.nothing(scanner.rules, layout.n_classes)
        self.bytes = 0
        for _, data in scratch.collected(self.written.where(col("kind") == "statistics")):
            part, size = unpack_gathered(data)
            self.gathered.merge(part)
            self.bytes += size
        scratch.counters.scratch_bytes += self.bytes

    @property
    def row_bytes(self) -> int:
        """Of a packed row."""
        d = self.layout.n_classes
        return 8 * d + (4 * d if self.layout.label == "vector" else 4)

    @property
    def active_rows(self) -> int:
        """Of both splits."""
        return self.bytes // self.row_bytes

    @property
    def fits_the_driver(self) -> bool:
        """Whether the active rows of both splits do."""
        return self.bytes <= self.driver_budget

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        """Local if the active rows of both splits fit the driver's budget, else distributed."""
        if self.fits_the_driver:
            log.info("handing over: %s bytes of active rows go to the driver", f"{self.bytes:,}")
            return self._at_the_driver.engine(problem)
        fit, budget = self.gathered.fit, self.driver_budget
        stored = Stored(self.scratch, self.written, problem.fitting_rules(self.layout))
        counts = list(fit.totals.events)
        return SparkEngine(stored, fit.rows, counts, self.row_bytes, budget, self.threads)

    def rows_at_hand(self) -> list[BlockScan] | None:
        return self._at_the_driver.rows_at_hand() if self.fits_the_driver else None

    @cached_property
    def _at_the_driver(self) -> LocalScan:
        """The scan with the active rows of both splits, collected."""
        blocks: dict[str, list[Block]] = {"fit": [], "holdout": []}
        with self.scratch.counters.timed("collect") as made:
            made.rows, made.bytes = self.active_rows, self.bytes
            for kind, data in self.scratch.collected(self._active):
                blocks[kind] += blocks_of([data])
        for kind, part in (("fit", self.gathered.fit), ("holdout", self.gathered.holdout)):
            part.scans = scans_of(blocks[kind], self._rules, self.threads)
        return LocalScan(self.gathered, self.layout, self.threads)

    @property
    def _active(self) -> DataFrame:
        return self.written.where(col("kind") != "statistics")

    def again(self, problem: Problem) -> None:
        """Their totals would take a job over the rows, which is what a scan is."""
        return None

    def close(self) -> None:
        self.scratch.close()

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        """The one pass after the fit, over the active rows of both splits where they are."""
        self.replayed = self.active_rows
        if self.fits_the_driver:
            return self._at_the_driver.histories(pair, None)
        parts, pairing = self.gathered.parts, Holdout(self.layout.label == "vector")
        holdout = {name: pairing if name == "holdout" else None for name in parts}
        cut = segments(pair.log, self.gathered.fit.rows)
        task = HistoryTask(pair.rules, tuple(tuple(segment) for segment in cut))
        changes: dict[str, list[list[Totals]]] = {name: [] for name in parts}
        for kind, data in self.scratch.collected(self._active.mapInArrow(task, DDL)):
            changes[kind].append(unpack_changes(data))
        return {
            name: points(part.totals, cut, added(changes[name], len(cut)), holdout[name])
            for name, part in parts.items()
        }

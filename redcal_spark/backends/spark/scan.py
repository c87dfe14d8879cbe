"""The one scan on Spark: where everything that follows starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.spark.engine import SparkEngine, scans_of
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import DDL, HistoryTask, ScanTask, blocks_of
from redcal_spark.backends.threads import ordered
from redcal_spark.core.blocks import Block
from redcal_spark.core.history import Holdout, Point, added, history, points, segments
from redcal_spark.core.kernel import Rules
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import unpack_changes, unpack_gathered
from redcal_spark.core.patches import Patch
from redcal_spark.core.scan import Scanner, ScanResult

log = logging.getLogger(__name__)

DRIVER_BUDGET = 256 * 2**20


def nameless(frame: DataFrame) -> DataFrame:
    """The columns by number: `mapInArrow` takes a dot in a name for a field of a struct."""
    return frame.toDF(*[f"c{number}" for number in range(len(frame.columns))])


class SparkScan:
    """The one scan of a DataFrame, and the engine that goes on from it."""

    def __init__(
        self,
        frame: DataFrame,
        scanner: Scanner,
        vectors: tuple[str, ...],
        scratch: Scratch,
        driver_budget: int = DRIVER_BUDGET,
        threads: int | None = None,
    ):
        ship_package(scratch.spark)
        self.scanner = scanner
        self.scratch = scratch
        self.driver_budget = driver_budget
        self.threads = threads
        task = ScanTask(scanner, tuple(frame.columns), vectors)
        self.written = scratch.write(nameless(frame).mapInArrow(task, DDL))
        self.gathered = ScanResult.nothing(scanner.rules, scanner.layout.n_classes)
        self.bytes = 0
        for _, data in scratch.collected(self.written.where(col("kind") == "statistics")):
            found, size = unpack_gathered(data)
            self.gathered.merge(found)
            self.bytes += size
        scratch.counters.scratch_bytes += self.bytes

    @property
    def row_bytes(self) -> int:
        """Of a packed row."""
        layout = self.scanner.layout
        label_bytes = 4 * layout.n_classes if layout.label == "vector" else 4
        return 8 * layout.n_classes + label_bytes

    @property
    def active_rows(self) -> int:
        """Of both splits."""
        return self.bytes // self.row_bytes

    @property
    def fits_the_driver(self) -> bool:
        """Whether the active rows of both splits do."""
        return self.bytes <= self.driver_budget

    def engine(self, rules: Rules) -> Engine:
        """Local if the active rows of both splits fit the driver's budget, else distributed."""
        if self.fits_the_driver:
            log.info("handing over: %s bytes of active rows go to the driver", f"{self.bytes:,}")
            found: dict[str, list[Block]] = {"fit": [], "holdout": []}
            with self.scratch.counters.timed("collect") as made:
                made.rows, made.bytes = self.active_rows, self.bytes
                blocks = self.written.where(col("kind") != "statistics")
                for kind, data in self.scratch.collected(blocks):
                    found[kind] += blocks_of([data])
            for kind, part in (("fit", self.gathered.fit), ("holdout", self.gathered.holdout)):
                part.scans = scans_of(found[kind], self.scanner.rules, self.threads)
            fit = self.gathered.fit
            return LocalEngine(fit.scans, fit.rows, rules, self.threads)
        stored = Stored(self.scratch, self.written, rules)
        counts = list(self.gathered.fit.totals.events)
        rows, budget = self.gathered.fit.rows, self.driver_budget
        return SparkEngine(stored, rows, counts, self.row_bytes, budget, self.threads)

    def histories(self, rules: Rules, log: Sequence[Patch]) -> dict[str, list[Point]]:
        """The one pass after the fit, over the active rows of both splits where they are."""
        parts, fitted = self.gathered.parts, self.gathered.fit.rows
        pairing = Holdout(self.scanner.layout.label == "vector")
        holdout = {name: pairing if name == "holdout" else None for name in parts}
        if self.fits_the_driver:
            spread = partial(ordered, threads=self.threads)
            return {
                name: history(
                    *(part.totals, part.scans, rules, log, spread),
                    fitted=fitted,
                    holdout=holdout[name],
                )
                for name, part in parts.items()
            }
        cut = segments(log, fitted)
        task = HistoryTask(rules, tuple(tuple(segment) for segment in cut))
        blocks = self.written.where(col("kind") != "statistics")
        changes: dict[str, list[list[Totals]]] = {name: [] for name in parts}
        for kind, data in self.scratch.collected(blocks.mapInArrow(task, DDL)):
            changes[kind].append(unpack_changes(data))
        return {
            name: points(part.totals, cut, added(changes[name], len(cut)), holdout[name])
            for name, part in parts.items()
        }

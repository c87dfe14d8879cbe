"""The one scan on Spark: where everything that follows starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from math import ceil

from pyspark.sql import DataFrame

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.backend import Scan
from redcal_spark.backends.inputs import columns_read
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.spark.budget import budget_of
from redcal_spark.backends.spark.cell_tasks import EffectsTask, FoldTask
from redcal_spark.backends.spark.cells import DDL, KINDS
from redcal_spark.backends.spark.engine import SparkEngine
from redcal_spark.backends.spark.frames import map_in_arrow
from redcal_spark.backends.spark.lazy import Room, blocks_at_driver, scans_of
from redcal_spark.backends.spark.scratch import LARGE, Scratch, Statistics, merged
from redcal_spark.backends.spark.session import cores
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.source import Source, frame_source
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import HistoryTask, ScanTask
from redcal_spark.backends.spark.watch import Tell
from redcal_spark.backends.spark.written import Written
from redcal_spark.core.columns import Layout
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.folds import FOLDS
from redcal_spark.core.history import Holdout, Point, added, points, segments
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import (
    gathered_of,
    gathered_parts,
    pack,
    pack_changes,
    unpack,
    unpack_changes,
    unpack_effects,
)
from redcal_spark.core.patch_effects import PatchEffect, added_effects
from redcal_spark.core.patches import Patch
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import ScanResult, SplitResult
from redcal_spark.core.splits import Split
from redcal_spark.core.sums import DecisionSums
from redcal_spark.settings import DRIVER_BUDGET, DriverBudget

log = logging.getLogger(__name__)

TASKS_A_CORE = 4  # of a scan whose tasks have much to tell


class SparkScan:
    """The one scan of a table's rows: their counts, and the active ones in scratch.

    driver_budget: bytes of rows that the driver may hold. What is active in both splits is worked
    on there if it fits; else ReDCal's events come one by one, and other passes are jobs.
    tell: hears while it scans how many rows are done; total: how many there are, if it is known.
    """

    def __init__(
        self,
        rows: DataFrame | Source,
        problem: Problem,
        layout: Layout,
        scratch: Scratch,
        driver_budget: DriverBudget = "auto",
        threads: int | None = None,
        split: Split | None = None,
        tell: Tell = lambda rows: None,
        total: int | None = None,
    ):
        ship_package(scratch.spark)
        self.layout = layout
        self.scratch = scratch
        self.threads = threads
        self.replayed = 0
        scanner = problem.scanner(layout, split)
        self._rules = scanner.rules
        self._grouped = scanner.by_event
        source = (
            rows
            if isinstance(rows, Source)
            else frame_source(rows, columns_read(layout.columns, split))
        )
        self.gathered = ScanResult.nothing(scanner.rules, layout.n_classes)
        statistics = Statistics("scan", len(pack(*gathered_parts(self.gathered))))
        frame = source.frame
        if statistics.bytes >= LARGE:  # they grow with the tasks, whatever the input is split into
            frame = frame.coalesce(TASKS_A_CORE * cores(scratch.spark))
        with scratch.watched(tell, total) as watch:
            reader = watch.rows(source.reader)
            self.written = scratch.write(
                lambda sink: map_in_arrow(
                    frame, ScanTask(scanner, source.names, source.vectors, reader, sink), DDL
                ),
                statistics,
            )
        for data in self.written.manifest.statistics:
            self.gathered.merge(gathered_of(*unpack(data)))
        self._collected: set[str] = set()
        scratch.counters.scratch_bytes += self.bytes
        self.driver_budget = budget_of(driver_budget)

    @property
    def bytes(self) -> int:
        return self.written.manifest.bytes.total()

    @property
    def row_bytes(self) -> int:
        """Of a row at the driver: packed, its actions, and its events."""
        d, losses, models = self.layout.n_classes, self._rules.losses, self._rules.models
        events = len(self._rules.pairs) * losses.event_type.itemsize
        known = models * losses.action_type.itemsize + events
        label = 4 * d if self.layout.label == "vector" else 4
        weight = 8 * len(self.layout.columns.segments)
        weight += 0 if self.layout.columns.weight is None else 8
        return 4 * d * models + label + weight + known * len(losses)

    @property
    def fits_the_driver(self) -> bool:
        """Whether the active rows of both splits do."""
        return self.bytes <= self.driver_budget

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        """Local if all active rows fit the driver's budget, else on Spark.

        ReDCal's rows stay in scratch until their events are chosen.
        """
        if self.fits_the_driver and not self._grouped:
            log.info("handing over: %s bytes of active rows go to the driver", f"{self.bytes:,}")
            return self._at_the_driver(KINDS).engine(problem)
        fit = self.gathered.fit
        stored = Stored(self.scratch, self.written, problem.fitting_rules(self.layout))
        eta = problem.parameters.resolve(fit.rows, self.layout.n_classes).eta
        large = 0 if eta is None else ceil(eta * fit.rows)
        most, mean = self.driver_budget // self.row_bytes, fit.rows / max(1, fit.counted)
        room = Room(most, max(1, large), self.threads, mean)
        totals = fit.totals if watched and not problem.columns.segments else None
        return SparkEngine(stored, fit.rows, room, grouped=self._grouped, totals=totals)

    def patch_effects(self, pair: Fitted) -> list[PatchEffect]:
        if self.written.manifest.bytes["holdout"] <= min(self.driver_budget, DRIVER_BUDGET):
            return self._at_the_driver(("holdout",)).patch_effects(pair)
        task = pair.rules, tuple(pair.log), self.gathered.holdout.totals.heaviest
        frame = self.written.passed(lambda cells: EffectsTask(*task, cells), ("holdout",))
        blocks = (unpack_effects(data) for _, data in self.scratch.collected(frame))
        return added_effects(blocks, pair.log, pair.losses)

    def rows_at_hand(self) -> list[BlockScan] | None:
        if not self.fits_the_driver:
            return None
        return self._at_the_driver(("fit",)).rows_at_hand()

    def _at_the_driver(self, kinds: Sequence[str]) -> LocalScan:
        """The scan with the active rows of some splits, collected; once."""
        for kind in kinds:
            part = self.gathered.fit if kind == "fit" else self.gathered.holdout
            if kind not in self._collected:
                self._collected.add(kind)
                with self.scratch.counters.timed("collect") as made:
                    blocks = blocks_at_driver(self.written, kind, None, self.threads)
                    made.rows = sum(block.rows for block in blocks)
                    made.bytes = self.written.manifest.bytes[kind]
                part.scans = scans_of(blocks, self._rules, self.threads)
        return LocalScan(self.gathered, self.layout, self.threads)

    def halves(self, level: int) -> tuple[Scan, ...]:
        """At the driver, if both fit there; else where the rows are, in blocks of their own."""
        if level == 0 and self.written.manifest.bytes["fit"] <= self.driver_budget:
            return self._here(self.written).halves(level)
        halves = [self._half(fold, level) for fold in FOLDS]
        if sum(half.bytes for half in halves) > self.driver_budget:
            return tuple(halves)
        return tuple(half._here(half.written) for half in halves)

    def _here(self, written: Written) -> LocalScan:
        """The fitting rows at the driver, for a while: nothing is kept of them."""
        fit = self.gathered.fit
        blocks = blocks_at_driver(written, "fit", None, self.threads)
        scans = scans_of(blocks, self._rules, self.threads)
        part = SplitResult(fit.totals, scans, fit.folds)
        return LocalScan(replace(self.gathered, fit=part), self.layout, self.threads)

    def _half(self, fold: int, level: int) -> SparkScan:
        folds, task = self.gathered.fit.folds, (self._rules, fold, level, self._grouped)
        assert folds is not None
        half = copy(self)
        half._collected = set()
        half.written = self.scratch.write(
            lambda sink: self.written.passed(lambda cells: FoldTask(*task, cells, sink)),
            Statistics("sums", 0),
        )
        self.scratch.counters.scratch_bytes += half.bytes
        part = SplitResult(folds.totals(self.gathered.fit.totals, fold, level))
        half.gathered = replace(self.gathered, fit=part)
        return half

    def decisions_after(self, problem: Problem, log: Sequence[Patch]) -> DecisionSums:
        rules = problem.rules(self.layout.binary)
        stored = Stored(self.scratch, self.written, rules)
        stored.pending = list(log)
        arrays = stored.ask("decisions")
        if not arrays:
            return DecisionSums.none(rules, self.layout.n_classes)
        return DecisionSums.from_arrays(arrays, disputed=int(arrays["disputed"].sum()))

    def again(self, problem: Problem) -> None:
        """Their totals would take a job over the rows, which is what a scan is."""
        return None

    def close(self) -> None:
        self.scratch.close()

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        """The one pass after the fit: at the driver if that takes no job, else where rows are."""
        parts = self.gathered.parts
        kinds = [name for name in parts if name != "fit" or seen is None]
        size = sum(self.written.manifest.bytes[kind] for kind in kinds)
        if size <= min(self.driver_budget, DRIVER_BUDGET):
            here = self._at_the_driver(kinds)
            histories = here.histories(pair, seen)
            self.replayed = here.replayed
            return histories
        histories = {} if seen is None else {"fit": seen}
        self.replayed = sum(self.written.manifest.rows[kind] for kind in kinds)
        heaviest = self.gathered.holdout.totals.heaviest
        pairing = Holdout(self.layout.label == "vector", heaviest)
        cut = segments(pair.log, self.gathered.fit.counted)
        patches = tuple(tuple(segment) for segment in cut)
        nothing = Totals.none(pair.rules, self.layout.n_classes)
        statistics = Statistics("changes", len(cut) * len(kinds) * len(pack_changes([nothing])))
        changes: dict[str, list[list[Totals]]] = {name: [] for name in kinds}
        with self.scratch.passing("holdout", size) as watch:
            frame = self.written.passed(
                lambda cells: HistoryTask(pair.rules, patches, pairing, watch.cells(cells)), kinds
            )
            for kind, data in self.scratch.collected(merged(frame, statistics)):
                changes[kind].append(unpack_changes(data))
        for kind in kinds:
            summed, holdout = added(changes[kind], len(cut)), pairing if kind == "holdout" else None
            histories[kind] = points(parts[kind].totals, cut, summed, holdout)
        return histories

"""The Spark engine: blocks in scratch storage, one small statistics row a task.

Only DataFrames, `mapInArrow`, writes and reads: classic Spark, Spark Connect and serverless alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from pyspark.sql import DataFrame

from redcal_spark.algorithms.engine import Region
from redcal_spark.backends.counters import Pass
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.spark.stored_blocks import Keep, Stored
from redcal_spark.backends.spark.tasks import blocks_of
from redcal_spark.backends.threads import ordered
from redcal_spark.core.additive import Array
from redcal_spark.core.blocks import Block
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import BlockScan, Rules, scan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.patches import Patch
from redcal_spark.core.sums import GapSums, Residuals, Sums


class SparkEngine:
    """Every step a job over the blocks in scratch, until what is left fits the driver."""

    def __init__(
        self,
        stored: Stored,
        rows: int,
        counts: list[Ints],
        row_bytes: int,
        driver_budget: int,
        threads: int | None = None,
    ):
        self.rows = rows
        self.totals: Totals | None = None
        self._stored = stored
        self._counts: list[Ints] | None = counts
        self._row_bytes = row_bytes
        self._budget = driver_budget
        self._threads = threads
        self._local: LocalEngine | None = None
        self._event: LocalEngine | None = None  # of the rows of one event, while it is frozen

    def disagreements(self) -> Sequence[Ints]:
        if self._local is not None:
            return self._local.disagreements()
        if self._counts is None:
            self._counts = self._count()
        return self._counts

    def _count(self) -> list[Ints]:
        if self._stored.rewrite_pays:
            return _event_counts(self._stored.rewrite("active"), self._stored.rules)
        counts = _event_counts(self._stored.ask("events"), self._stored.rules)
        # A row may be in an event of several losses, so this is at least what is active.
        if self._fits(sum(int(c.sum()) for c in counts)):
            blocks = self._collect("active")
            scans = scans_of(blocks, self._stored.rules, self._threads)
            self._local = LocalEngine(scans, self.rows, self._stored.rules, self._threads)
        return counts

    def freeze(self, event: Disagreement | None) -> Region:
        if self._local is not None:
            return self._local.freeze(event)
        if event is None:
            return _Everywhere(self)
        assert self._counts is not None
        rows = int(self._counts[event.loss][event.a1, event.a2])
        return self._region(event, rows)

    def _region(self, keep: Keep, rows: int, round: int | None = None) -> Region:
        if self._fits(rows):
            return _HandedOver(self, self._collect(keep))
        scratch = self._stored.scratch
        with scratch.counters.timed("event") as made:
            made.rows, made.bytes = rows, rows * self._row_bytes
            frame = scratch.write(self._stored.kept(keep))
        scratch.counters.scratch_bytes += made.bytes
        return _Frozen(self, Stored(scratch, frame, self._stored.rules, round), frame)

    def _fits(self, rows: int) -> bool:
        return rows * self._row_bytes <= self._budget

    def _collect(self, keep: Keep) -> list[Block]:
        scratch = self._stored.scratch
        with scratch.counters.timed("collect") as made:
            found = scratch.collected(self._stored.kept(keep))
            blocks = blocks_of([data for kind, data in found if kind == "fit"])
            made.rows = sum(block.rows for block in blocks)
            made.bytes = sum(block.nbytes for block in blocks)
        return blocks

    def replay(self, log: Sequence[Patch]) -> Region | None:
        if self._local is not None:
            return self._local.replay(log)
        self._stored.pending += log
        self._counts = None
        if not log or log[-1].kind == "score" or log[-1].round is None:
            return None
        first = next(p for p in reversed(log) if p.kind == "reconcile")
        return self._region("frozen", first.rows, log[-1].round)

    def gaps(self) -> GapSums:
        if self._local is not None:
            return self._local.gaps()
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        return GapSums.from_arrays(self._stored.ask("gaps"))

    def patch(self, patch: Patch) -> None:
        if self._local is not None:
            self._local.patch(patch)
        else:
            self._stored.pending.append(patch)

    def round_closed(self, patches: Sequence[Patch]) -> None:
        """The rows of a region join the others: its patches are replayed on them from now on."""
        self._stored.pending += patches
        self._counts = None
        if self._event is not None:
            self._event.close()
            self._event = None

    def close(self) -> None:
        for local in (self._event, self._local):
            if local is not None:
                local.close()


class _Everywhere:
    """All rows, where they are."""

    def __init__(self, engine: SparkEngine):
        self._engine = engine
        self._stored = engine._stored

    def sums(self) -> Sums:
        return Sums.from_arrays(self._stored.ask("sums"), "sum_")

    def residuals(self, model: int) -> Residuals:
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        return Residuals.from_arrays(self._stored.ask("residuals", model))

    def patch(self, patch: Patch) -> None:
        self._stored.pending.append(patch)

    def close(self) -> None:
        self._engine.round_closed([])


class _Frozen(_Everywhere):
    """The rows of an event, as blocks of their own."""

    def __init__(self, engine: SparkEngine, stored: Stored, written: DataFrame):
        super().__init__(engine)
        self._stored = stored
        self._patches: list[Patch] = []
        self._written = written

    def sums(self) -> Sums:
        return Sums.from_arrays(self._stored.statistics(self._written, Pass("event")), "sum_")

    def patch(self, patch: Patch) -> None:
        super().patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        self._engine.round_closed(self._patches)


class _HandedOver:
    """The rows of an event at the driver; what is found there is replayed on the stored rows."""

    def __init__(self, engine: SparkEngine, blocks: list[Block]):
        self._engine = engine
        self._patches: list[Patch] = []
        rules = engine._stored.rules
        local = LocalEngine(scans_of(blocks, rules, 1), engine.rows, rules, engine._threads)
        self._region = local.freeze(None)
        engine._event = local

    def sums(self) -> Sums:
        return self._region.sums()

    def residuals(self, model: int) -> Residuals:
        return self._region.residuals(model)

    def patch(self, patch: Patch) -> None:
        self._region.patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        self._engine.round_closed(self._patches)


def _event_counts(found: dict[str, Array], rules: Rules) -> list[Ints]:
    none = [np.zeros((x.n_actions, x.n_actions), np.int64) for x in rules.losses.losses]
    return [found.get(f"events.{i}", zero) for i, zero in enumerate(none)]


def scans_of(blocks: Sequence[Block], rules: Rules, threads: int | None) -> list[BlockScan]:
    return list(ordered(partial(scan, rules=rules, everywhere=True), blocks, threads))

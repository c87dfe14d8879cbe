"""The Spark engine: blocks in scratch, and at the driver what it has room for.

Only DataFrames, `mapInArrow`, writes and reads: classic Spark, Spark Connect and serverless alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redcal_spark.algorithms.engine import Region
from redcal_spark.backends.counters import Pass
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.spark.lazy import LazyEngine, Room, blocks_at_driver, scans_of
from redcal_spark.backends.spark.stored_blocks import Stored, added_up
from redcal_spark.backends.spark.tasks import Keep
from redcal_spark.core.additive import Array
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.groups import Grouping
from redcal_spark.core.kernel import Rules, no_events
from redcal_spark.core.metrics import Totals
from redcal_spark.core.patches import Patch
from redcal_spark.core.sums import GapSums, Residuals, Sums


class SparkEngine:
    """The rows of a chosen event come to the driver while it has room; else jobs go over blocks.

    Patches that were found at the driver are pending on the blocks, so that jobs can go on from
    there at any time. grouped: the blocks are grouped by event. totals: of all rows, to be kept up
    to date for those who watch, as long as all patches are made at the driver.
    """

    def __init__(
        self,
        stored: Stored,
        rows: int,
        room: Room,
        *,
        grouped: bool = False,
        totals: Totals | None = None,
    ):
        self.rows = rows
        self._stored = stored
        self._room = room
        self._counts: list[Ints] | None = None
        self._lazy: LazyEngine | None = None
        self._event: LocalEngine | None = None  # of the rows of one event, while it is frozen
        self._regroup_next = not grouped  # the next look at events groups the rows by them
        if grouped:
            self._hand_over(totals)

    @property
    def models(self) -> int:
        return self._stored.rules.models

    @property
    def totals(self) -> Totals | None:
        return None if self._lazy is None else self._lazy.held.totals

    def disagreements(self) -> Sequence[Ints]:
        if self._lazy is None and self._counts is None:
            self._count()
        if self._lazy is not None:
            return self._lazy.disagreements()
        assert self._counts is not None
        return self._counts

    def _count(self) -> None:
        """Count by a pass; or group the rows anew by their events, which counts them, too."""
        if self._room.rows and (self._regroup_next or self._stored.rewrite_pays):
            self._regroup()
            return
        if self._stored.rewrite_pays:
            self._stored.rewrite("active")
            self._counts = self._written_counts()
            return
        self._counts = _event_counts(self._stored.ask("events"), self._stored.rules)
        # A row may be in events of several losses and pairs, so this is at least what is active.
        if 0 < sum(int(c.sum()) for c in self._counts) <= self._room.rows * self._room.weight:
            self._regroup()

    def _regroup(self, totals: Totals | None = None) -> None:
        self._stored.rewrite("active")
        self._regroup_next = False
        self._hand_over(totals)

    def _hand_over(self, totals: Totals | None) -> None:
        """From here on events come to the driver, one by one."""
        self._counts = self._written_counts()
        if self._room.rows:
            self._leave()
            self._lazy = LazyEngine(
                self._stored.written,
                self._stored.rules,
                self.rows,
                self._room,
                totals,
                self._stored.scratch.counters,
            )

    def _written_counts(self) -> list[Ints]:
        grouping = Grouping(self._stored.rules)
        return grouping.by_loss(self._stored.groups.counts.sum(axis=0))

    def _leave(self) -> None:
        if self._lazy is not None:
            self._lazy.close()
            self._lazy = None

    def freeze(self, event: Disagreement | None) -> Region:
        if event is None:
            return _Everywhere(self._stored, self._closed)
        region = self._at_hand(event)
        if region is not None:
            return _Recorded(region, self._patched)
        return self._region(event)

    def _at_hand(self, event: Disagreement) -> Region | None:
        """The event's rows at the driver, if it has room: else without the rows that now agree."""
        if self._lazy is None:
            return None
        region = self._lazy.freeze(event)
        if region is None and self._stored.pending:
            self._regroup(self.totals)
            region = self._lazy.freeze(event)
        if region is None:
            self._leave()
        return region

    def _region(self, keep: Keep, round: int | None = None) -> Region:
        """Rows of an event as blocks of their own; at the driver, if it has room for them."""
        scratch, rules = self._stored.scratch, self._stored.rules
        with scratch.counters.timed("event") as made:
            written = self._stored.keep(keep, made)
            made.rows = written.manifest.rows["fit"]
        if made.rows > self._room.rows:
            return _Frozen(Stored(scratch, written, rules, round), self._closed)
        blocks = blocks_at_driver(written, "fit", None, self._room.threads)
        scans = scans_of(blocks, rules, self._room.threads)
        self._event = LocalEngine(scans, self.rows, rules, self._room.threads, own=True)
        return _Recorded(self._event.freeze(None), self._closed, close=False)

    def replay(self, log: Sequence[Patch]) -> Region | None:
        self._stored.pending += log
        if not log:
            return None
        self._leave()
        self._counts, self._regroup_next = None, True
        if log[-1].kind == "score" or log[-1].round is None:
            return None
        return self._region("frozen", log[-1].round)

    def gaps(self) -> GapSums:
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        return GapSums.from_arrays(self._stored.ask("gaps"))

    def patch(self, patch: Patch) -> None:
        self._stored.pending.append(patch)

    def _patched(self, patches: Sequence[Patch]) -> None:
        """The driver's rows have these patches; the blocks get them when a job goes over them."""
        self._stored.pending += patches

    def _closed(self, patches: Sequence[Patch]) -> None:
        """The rows of a region join the others: its patches are replayed on them from now on."""
        self._stored.pending += patches
        self._counts = None
        if self._event is not None:
            self._event.close()
            self._event = None

    def close(self) -> None:
        self._leave()
        if self._event is not None:
            self._event.close()


class _Everywhere:
    """All rows, where they are. closed: takes patches that the stored rows do not have yet."""

    def __init__(self, stored: Stored, closed: Callable[[Sequence[Patch]], None]):
        self._stored = stored
        self._closed = closed

    def sums(self) -> Sums:
        return Sums.from_arrays(self._stored.ask("sums"), "sum_")

    def residuals(self, model: int) -> Residuals:
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        return Residuals.from_arrays(self._stored.ask("residuals", model))

    def patch(self, patch: Patch) -> None:
        self._stored.pending.append(patch)

    def close(self) -> None:
        self._closed([])


class _Frozen(_Everywhere):
    """The rows of an event, as blocks of their own."""

    def __init__(self, stored: Stored, closed: Callable[[Sequence[Patch]], None]):
        super().__init__(stored, closed)
        self._patches: list[Patch] = []
        statistics = stored.written.manifest.statistics
        self._sums = Sums.from_arrays(added_up(statistics, Pass("")), "sum_")

    def sums(self) -> Sums:
        return self._sums  # before its first patch, as Algorithm 2 wants them

    def patch(self, patch: Patch) -> None:
        super().patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        self._closed(self._patches)


class _Recorded:
    """Rows at the driver, whose patches the stored rows get, too.

    close: they stay at the driver, where their events follow.
    """

    def __init__(
        self, here: Region, closed: Callable[[Sequence[Patch]], None], *, close: bool = True
    ):
        self._closed = closed
        self._patches: list[Patch] = []
        self._here = here
        self._close = close
        self.sums, self.residuals = here.sums, here.residuals

    def patch(self, patch: Patch) -> None:
        self._here.patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        if self._close:
            self._here.close()
        self._closed(self._patches)


def _event_counts(counts: dict[str, Array], rules: Rules) -> list[Ints]:
    return [counts.get(f"events.{i}", zero) for i, zero in enumerate(no_events(rules))]

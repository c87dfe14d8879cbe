"""Blocks in scratch: every question is one pass over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redcal_spark.backends.counters import Pass
from redcal_spark.backends.spark.scratch import Scratch, Statistics, merged
from redcal_spark.backends.spark.tasks import AskTask, BlockState, Keep, KeepTask, Question, add_up
from redcal_spark.backends.spark.watch import Watch
from redcal_spark.backends.spark.written import Written
from redcal_spark.core.additive import Array
from redcal_spark.core.groups import Groups
from redcal_spark.core.kernel import Rules
from redcal_spark.core.packing import unpack
from redcal_spark.core.patches import Patch


class Stored:
    """Blocks in scratch, with patches that were found since and are replayed on every pass."""

    def __init__(self, scratch: Scratch, written: Written, rules: Rules, round: int | None = None):
        self.scratch = scratch
        self.written = written
        self.rules = rules
        self.round = round
        self.pending: list[Patch] = []
        self._quickest: float | None = None  # seconds of a pass with nothing to replay
        self._wasted = 0.0  # seconds spent on replaying since the blocks were written
        self._rewrite_cost: float | None = None

    @property
    def state(self) -> BlockState:
        return BlockState(self.rules, tuple(self.pending), self.round)

    @property
    def groups(self) -> Groups:
        """Of the rows as they were written."""
        return self.written.manifest.groups(self.rules)

    def ask(self, question: Question, model: int = 0) -> dict[str, Array]:
        """One pass: statistics of the rows as patched so far."""
        with self._passing(question) as watch, self.scratch.counters.timed(question) as made:
            frame = self.written.passed(
                lambda cells: AskTask(self.state, question, model, watch.cells(cells))
            )
            total = added_up(
                (data for _, data in self.scratch.collected(merged(frame, self._sums))), made
            )
        self._spent(made.seconds)
        return total

    def _passing(self, name: str) -> Watch:
        return self.scratch.passing(name, self.written.manifest.bytes["fit"])

    @property
    def _sums(self) -> Statistics:
        classes = self.rules.losses.n_classes or 0
        return Statistics("sums", 16 * self.rules.losses.n_cells * (classes + 1))

    def _spent(self, seconds: float) -> None:
        if self._quickest is None or seconds < self._quickest:
            self._quickest = seconds
        self._wasted += seconds - self._quickest

    @property
    def rewrite_pays(self) -> bool:
        """Rent or buy: once replaying has cost as much as a rewrite would, rewrite.

        That is never more than twice as dear as knowing the future.
        """
        cost = self._rewrite_cost or 3.0 * (self._quickest or 0.0)
        return bool(self.pending) and self._wasted > cost

    def keep(self, keep: Keep, made: Pass) -> Written:
        """Write some rows as patched so far; the statistics come with the same committed write."""
        with self._passing("rewrite") as watch:
            written = self.scratch.write(
                lambda sink: self.written.passed(
                    lambda cells: KeepTask(self.state, keep, watch.cells(cells), sink)
                ),
                self._sums,
            )
        made.bytes = written.manifest.bytes.total()
        self.scratch.counters.scratch_bytes += made.bytes
        return written

    def rewrite(self, keep: Keep) -> dict[str, Array]:
        """Go on from rows as patched so far."""
        with self.scratch.counters.timed("rewrite") as made:
            self.written = self.keep(keep, made)
            if keep == "all" and self.pending:
                self.round = self.pending[-1].round  # inside a round its event stays frozen
            self.pending = []
            statistics = added_up(self.written.manifest.statistics, made)
        self._rewrite_cost = made.seconds
        self._wasted, self._quickest = 0.0, None
        return statistics


def added_up(statistics: Iterable[Any], made: Pass) -> dict[str, Array]:
    """Statistics of all tasks, and how much they went over."""
    total: dict[str, Array] = {}
    made.rows = made.bytes = 0
    for data in statistics:
        size, part = unpack(data)
        made.rows, made.bytes = made.rows + size["rows"], made.bytes + size["bytes"]
        add_up(total, part)
    return total

"""Blocks in scratch: every question is one pass over them."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from redcal_spark.backends.counters import Pass
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.tasks import DDL, AskTask, BlockState, KeepTask, Question, add_up
from redcal_spark.core.additive import Array
from redcal_spark.core.events import Disagreement
from redcal_spark.core.kernel import Rules
from redcal_spark.core.packing import unpack
from redcal_spark.core.patches import Patch

Keep = Literal["all", "active", "frozen"] | Disagreement


class Stored:
    """Blocks in scratch, with patches that were found since and are replayed on every pass."""

    def __init__(self, scratch: Scratch, frame: DataFrame, rules: Rules, round: int | None = None):
        self.scratch = scratch
        self.rules = rules
        self.round = round
        self.pending: list[Patch] = []
        self._blocks = frame.where(col("kind") == "fit").select("data")
        self._quickest: float | None = None  # seconds of a pass with nothing to replay
        self._wasted = 0.0  # seconds spent on replaying since the blocks were written
        self._rewrite_cost: float | None = None

    @property
    def state(self) -> BlockState:
        return BlockState(self.rules, tuple(self.pending), self.round)

    def ask(self, question: Question, model: int = 0) -> dict[str, Array]:
        """One pass: statistics of the rows as patched so far."""
        frame = self._blocks.mapInArrow(AskTask(self.state, question, model), DDL)
        with self.scratch.counters.timed(question) as made:
            total = self._added_up(frame, made)
        self._spent(made.seconds)
        return total

    def _added_up(self, frame: DataFrame, made: Pass) -> dict[str, Array]:
        """Statistics of all tasks, and how much they went over."""
        total: dict[str, Array] = {}
        made.rows = made.bytes = 0
        for _, data in self.scratch.collected(frame):
            told, found = unpack(data)
            made.rows, made.bytes = made.rows + told["rows"], made.bytes + told["bytes"]
            add_up(total, found)
        return total

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

    def kept(self, keep: Keep) -> DataFrame:
        """Some rows as patched so far, as blocks and statistics; not computed yet."""
        return self._blocks.mapInArrow(KeepTask(self.state, keep), DDL)

    def rewrite(self, keep: Keep) -> dict[str, Array]:
        """Write the rows as patched so far; the statistics come with the same committed write."""
        with self.scratch.counters.timed("rewrite") as made:
            frame = self.scratch.write(self.kept(keep))
            if keep == "all" and self.pending:
                self.round = self.pending[-1].round  # inside a round its event stays frozen
            self._blocks = frame.where(col("kind") == "fit").select("data")
            self.pending = []
            found = self.statistics(frame, made)
        self.scratch.counters.scratch_bytes += made.bytes or 0
        self._rewrite_cost = made.seconds
        self._wasted, self._quickest = 0.0, None
        return found

    def statistics(self, written: DataFrame, made: Pass) -> dict[str, Array]:
        """Those that were written with blocks."""
        return self._added_up(written.where(col("kind") == "statistics"), made)

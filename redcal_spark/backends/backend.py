"""Backend: what a run does with its rows, in memory or on Spark. The run itself does not differ."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.store import Commit, Store, Table
from redcal_spark.backends.target import Target
from redcal_spark.backends.views import Made
from redcal_spark.config.schema import Config
from redcal_spark.core.arrow import empty_batch
from redcal_spark.core.columns import Layout
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.multiset import CompareTask
from redcal_spark.core.output_columns import Extension
from redcal_spark.core.patch_effects import PatchEffect
from redcal_spark.core.patches import Patch
from redcal_spark.core.problem import Problem
from redcal_spark.core.reading import BadRows
from redcal_spark.core.scan import ScanResult
from redcal_spark.core.splits import Split
from redcal_spark.core.sums import DecisionSums
from redcal_spark.errors import InputError

Progress = Callable[[int], Any]
AtEnd = Callable[[], None]
Listen = Callable[[int | None, int], None]  # the newest version that was read, and new rows


class Scan(Protocol):
    """What the one scan of an input gave, and what goes on from it."""

    gathered: ScanResult
    layout: Layout
    replayed: int  # rows that `histories` went over

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        """What computes on the active fitting rows, where they are.

        watched: the fit starts anew, and totals at the ends of its rounds are of use.
        """

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        """The one pass after the fit, over the active rows of both splits.

        seen: the points of the fitting rows, where they were all measured during the fit.
        """

    def halves(self, level: int) -> tuple[Scan, ...]:
        """The active fitting rows of each fold, from a level on, to be fitted on their own.

        They last as long as the scan, and know of their rows no more than how many there are.
        """

    def decisions_after(self, problem: Problem, log: Sequence[Patch]) -> DecisionSums:
        """What is decided on the active fitting rows after a log."""

    def patch_effects(self, pair: Fitted) -> list[PatchEffect]:
        """What every patch does to the active holdout rows."""

    def rows_at_hand(self) -> list[BlockScan] | None:
        """The active fitting rows as they were read; None: they are too many for one process."""

    def again(self, problem: Problem) -> Scan | None:
        """The rows of a scan that kept them all, scanned for another problem.

        None: they are not held here, and the input must be read again.
        """

    def close(self) -> None: ...


class Stream(Protocol):
    """Rows as they arrive, written once each."""

    checkpoint: str
    identity: dict[str, Any]  # of the source as it was when it was opened

    @property
    def owner(self) -> Any:
        """What the checkpoint belongs to; None if it is new."""

    @property
    def other_model(self) -> str | None:
        """Why the checkpoint is of another model, in words, if it is."""

    def begin(self, commit: Commit, switch: bool) -> int:
        """Make checkpoint and target ready; returns the target's version.

        switch: a checkpoint of another model is taken over.
        """

    def run(
        self, commit: Commit, every: float | None, stop: threading.Event, listen: Listen
    ) -> None:
        """Write what is there; every: and what comes, so many seconds apart, until `stop`."""

    def written(self, run_id: str) -> tuple[int | None, int]:
        """The newest version of the target that a run wrote, if any, and how many rows in all."""


class Backend(Protocol):
    """A store, and what computes on its tables."""

    counters: Counters  # grow with all that is done here

    @property
    def store(self) -> Store: ...

    def first(self, table: Table, columns: list[str]) -> pa.RecordBatch | None:
        """Some rows to look at, if there are any."""

    def check_reading(self, table: Table, columns: list[str]) -> None:
        """Refuse a table that cannot be read as the configuration says."""
        ...

    def id_problems(self, table: Table, id: str) -> list[str]:
        """What is wrong with the ids of a table, in words."""

    def rows_with(
        self, table: Table, id: str, value: pa.Scalar, names: list[str], most: int
    ) -> tuple[pa.Table, int]:
        """The first few rows whose id is this value, and how many there are."""

    def scan(self, table: Table, problem: Problem, split: Split | None, progress: Progress) -> Scan:
        """The one scan of a table."""

    def write_rows(
        self, table: Table, made: Made, commit: Commit, progress: Progress, at_end: AtEnd
    ) -> tuple[int, int]:
        """Write a table's rows as a pair makes them; returns the version and how many rows.

        What a run has written already is not written again.
        at_end: called when all rows were read and before anything is committed; it may raise.
        """

    def check_writer(self, table: Table, target: Target, schema: pa.Schema) -> None:
        """Refuse rows of this schema that the writer which was chosen could not write."""
        ...

    def stream(self, config: Config, pair: Fitted, model: tuple[str, str]) -> Stream:
        """A table's rows as they arrive. model: its digest, and what people call it."""

    def compared(self, table: Table, task: CompareTask, made: Made | None) -> list[pa.RecordBatch]:
        """What a task says of a table's rows. made: of what a pair would write of them."""

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        """The columns of what a pair would write of a table's rows."""

    def only(self, table: Table, names: list[str]) -> Table:
        """Some columns of a table."""

    def labelled(self, table: Table, label: str) -> Table:
        """The rows of a table that have a label."""

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        """The rows of a table whose ids another one has; or has not."""


def check_rows(
    work: Backend, table: Table, target: Target, problem: Problem, layout: Layout
) -> None:
    """What can be seen beforehand of writing a table's rows: columns of the target, and ids."""
    nothing = empty_batch(table.schema)
    names = target.names(problem.columns, problem.losses)
    rules = problem.rules(layout.binary)
    rows = Extension(layout, rules, (), names, target.skip).rows(nothing, BadRows())
    work.store.check_rows(target, rows.schema)
    work.check_writer(table, target, rows.schema)
    if target.mode == "merge":
        assert target.id is not None
        problems = work.id_problems(table, target.id)
        if problems:
            head = "output.mode: merge needs an id on every row, and no id twice:"
            raise InputError("\n  ".join([head, *problems]))

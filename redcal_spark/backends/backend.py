"""Backend: what a run does with its rows, in memory or on Spark. The run itself does not differ."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.inputs import duplicate_ids
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.local.scan import scan_pieces
from redcal_spark.backends.names import CATALOG_NAME, FILE_ENDINGS
from redcal_spark.backends.store import Commit, Store, Table, written_before
from redcal_spark.backends.target import Target
from redcal_spark.backends.threads import ordered
from redcal_spark.backends.views import Made, SomeColumns, WithIds
from redcal_spark.config.schema import Config
from redcal_spark.core.arrow import empty_batch
from redcal_spark.core.columns import Layout, plan
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Holdout, Point, history
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.multiset import CompareTask
from redcal_spark.core.output_columns import extend
from redcal_spark.core.problem import Problem
from redcal_spark.core.reading import BadRows
from redcal_spark.core.roles import Roles
from redcal_spark.core.scan import ScanResult, numbered
from redcal_spark.core.splits import Split
from redcal_spark.errors import ConflictError, InputError, UsageError

log = logging.getLogger(__name__)

Progress = Callable[[int], Any]
TRIES = 5  # of a write that others were quicker than


class Scan(Protocol):
    """What the one scan of an input gave, and what goes on from it."""

    gathered: ScanResult
    layout: Layout
    replayed: int  # rows that `histories` went over

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        """What computes on the active fitting rows, where they are.

        watched: the fit starts anew, and totals at the ends of its rounds are of use.
        """
        ...

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        """The one pass after the fit, over the active rows of both splits.

        seen: the points of the fitting rows, where they were all measured during the fit.
        """
        ...

    def rows_at_hand(self) -> list[BlockScan] | None:
        """The active fitting rows as they were read; None: they are too many for one process."""
        ...

    def again(self, problem: Problem) -> Scan | None:
        """The rows of a scan that kept them all, scanned for another problem.

        None: they are not held here, and the input must be read again.
        """
        ...

    def close(self) -> None: ...


class Stream(Protocol):
    """Rows as they arrive, written once each."""

    checkpoint: str
    identity: dict[str, Any]  # of the source as it was when it was opened
    owner: Any  # what the checkpoint belongs to; None if it is new

    @property
    def other_model(self) -> str | None:
        """Why the checkpoint is of another model, in words, if it is."""
        ...

    def begin(self, commit: Commit, switch: bool) -> int:
        """Make checkpoint and target ready; returns the target's version.

        switch: a checkpoint of another model is taken over.
        """
        ...

    def run(
        self,
        commit: Commit,
        every: float | None,
        stop: threading.Event,
        listen: Callable[[int | None, int], None],
    ) -> None:
        """Write what is there; every: and what comes, so many seconds apart, until `stop`.

        listen: is told the newest version of the source that was read, and how many rows.
        """
        ...

    def written(self, run_id: str) -> tuple[int | None, int]:
        """The newest version of the target that a run wrote, if any, and how many rows in all."""
        ...


class Backend(Protocol):
    """A store, and what computes on its tables."""

    store: Store
    counters: Counters  # grow with all that is done here

    def first(self, table: Table, columns: list[str]) -> pa.RecordBatch | None:
        """Some rows to look at, if there are any."""
        ...

    def id_problems(self, table: Table, id: str) -> list[str]:
        """What is wrong with the ids of a table, in words."""
        ...

    def rows_with(
        self, table: Table, id: str, value: pa.Scalar, names: list[str], most: int
    ) -> tuple[pa.Table, int]:
        """The first few rows whose id is this value, and how many there are."""
        ...

    def scan(
        self,
        table: Table,
        problem: Problem,
        wanted: list[str],
        split: Split | None,
        progress: Progress,
    ) -> Scan:
        """The one scan of a table."""
        ...

    def write_rows(
        self,
        table: Table,
        pair: Fitted,
        target: Target,
        commit: Commit,
        progress: Progress,
        at_end: Callable[[], None],
        roles: Roles,
    ) -> tuple[int, int]:
        """Write a table's rows with their new columns; returns the version and how many rows.

        What a run has written already is not written again. roles: what the rows were to the fit.
        at_end: called when all rows were read and before anything is committed; it may raise.
        """
        ...

    def stream(self, config: Config, pair: Fitted, model: tuple[str, str]) -> Stream:
        """A table's rows as they arrive. model: its digest, and what people call it."""
        ...

    def compared(self, table: Table, task: CompareTask, made: Made | None) -> list[pa.RecordBatch]:
        """What a task says of a table's rows. made: of what a pair would write of them."""
        ...

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        """The columns of what a pair would write of a table's rows."""
        ...

    def only(self, table: Table, names: list[str]) -> Table:
        """Some columns of a table."""
        ...

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        """The rows of a table whose ids another one has; or has not."""
        ...


def check_rows(
    work: Backend, table: Table, target: Target, problem: Problem, layout: Layout
) -> None:
    """What can be seen beforehand of writing a table's rows: columns of the target, and ids."""
    nothing = empty_batch(table.schema)
    names = target.names(problem.columns, problem.losses)
    rules = problem.rules(layout.binary)
    rows = extend(nothing, layout, rules, (), names, BadRows(), skip=target.skip)
    work.store.check_rows(target, rows.schema)
    if target.mode == "merge":
        assert target.id is not None
        told = work.id_problems(table, target.id)
        if told:
            head = "output.mode: merge needs an id on every row, and no id twice:"
            raise InputError("\n  ".join([head, *told]))


class LocalBackend:
    """On this machine, batch by batch."""

    def __init__(self, store: Store, threads: int | None = None):
        self.store = store
        self.threads = threads
        self.counters = Counters()

    def first(self, table: Table, columns: list[str]) -> pa.RecordBatch | None:
        return next((batch for batch in table.batches(columns) if batch.num_rows), None)

    def id_problems(self, table: Table, id: str) -> list[str]:
        return duplicate_ids(table, id)

    def rows_with(
        self, table: Table, id: str, value: pa.Scalar, names: list[str], most: int
    ) -> tuple[pa.Table, int]:
        found, count = [], 0
        for batch in table.batches(names):
            place = batch.schema.get_field_index(id)
            ids = batch.column(place).cast(value.type)  # not every type of text can be compared
            kept = batch.set_column(place, id, ids).filter(pc.equal(ids, value))
            if kept.num_rows and count < most:
                found.append(kept.slice(0, most - count))
            count += kept.num_rows
        schema = pa.schema([table.schema.field(name) for name in names])
        return pa.Table.from_batches(found) if found else schema.empty_table(), count

    def scan(
        self,
        table: Table,
        problem: Problem,
        wanted: list[str],
        split: Split | None,
        progress: Progress,
    ) -> LocalScan:
        pieces = table.pieces(wanted)
        where = table.name
        found = scan_pieces(problem, pieces, table.schema, where, split, progress, self.threads)
        return LocalScan(*found, self.threads)

    def write_rows(
        self,
        table: Table,
        pair: Fitted,
        target: Target,
        commit: Commit,
        progress: Progress,
        at_end: Callable[[], None],
        roles: Roles,
    ) -> tuple[int, int]:
        done = written_before(self.store, target, commit)
        if done is not None:
            return done

        def write() -> tuple[int, int]:
            rows = self._extended(table, pair, target, roles)
            first = next(rows, None)  # its schema is the table's
            if first is None:
                raise InputError(f"{table.name} has no rows")
            self.store.check_rows(target, first.schema)
            written = 0

            def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                nonlocal written
                for batch in batches:
                    written += batch.num_rows
                    progress(batch.num_rows)
                    yield batch
                at_end()

            version = self.store.put(target, first.schema, told(chain([first], rows)), commit)
            if target.mode == "merge":  # most rows may have been there already
                return self.store.written(target.table, commit) or (version, written)
            return version, written

        for left in reversed(range(TRIES)):
            try:
                return write()
            except ConflictError as err:  # of two runs on one target, one is the next version
                if not left:
                    raise
                log.info("%s; trying again", str(err).partition(";")[0])
        raise AssertionError

    def stream(self, config: Config, pair: Fitted, model: tuple[str, str]) -> Stream:
        raise UsageError(
            "--incremental and --follow need engine.name: spark: its Delta source tracks which "
            "rows are new. The local engine applies to the whole table: leave the option out"
        )

    def compared(self, table: Table, task: CompareTask, made: Made | None) -> list[pa.RecordBatch]:
        rows = table.batches() if made is None else self._extended(table, *made)
        found = ordered(lambda batch: list(task([batch])), rows, self.threads)
        return list(chain.from_iterable(found))

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        none = empty_batch(table.schema)
        pair, target, roles = made
        layout = plan(table.schema, pair.columns, table.name, pair.n_classes, None, labels=False)
        names = target.names(pair.columns, pair.losses)
        return pair.apply_batch(none, layout, names, BadRows(), 0, target.skip, roles).schema

    def only(self, table: Table, names: list[str]) -> Table:
        return SomeColumns(table, names)

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        return WithIds(table, other, id, inside)

    def _extended(
        self, table: Table, pair: Fitted, target: Target, roles: Roles
    ) -> Iterator[pa.RecordBatch]:
        layout = plan(table.schema, pair.columns, table.name, pair.n_classes, None, labels=False)
        pair.check_layout(layout)
        names, skip = target.names(pair.columns, pair.losses), target.skip

        def work(item: tuple[int, pa.RecordBatch]) -> tuple[pa.RecordBatch, BadRows]:
            start, batch = item
            problems = BadRows()
            return pair.apply_batch(batch, layout, names, problems, start, skip, roles), problems

        for batch, problems in ordered(work, numbered(table.batches()), self.threads):
            if not skip:
                problems.raise_if_any(table.name)
            yield batch


class LocalScan:
    """What a scan kept, in memory."""

    def __init__(self, gathered: ScanResult, layout: Layout, threads: int | None = None):
        self.gathered = gathered
        self.layout = layout
        self.replayed = 0
        self._threads = threads
        self._spread = partial(ordered, threads=threads)

    def engine(self, problem: Problem, watched: bool = False) -> Engine:
        """Rounds that are watched leave nothing to ask of the rows: those are patched in place."""
        algorithm, fit = problem.parameters.algorithm, self.gathered.fit
        totals = fit.totals if watched and algorithm != "reconcile" else None
        own = totals is not None and algorithm == "redcal"
        rules = problem.fitting_rules(self.layout)
        engine = LocalEngine(fit.scans, fit.rows, rules, self._threads, totals, own)
        if own:
            fit.scans = []
        return engine

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        found = {} if seen is None else {"fit": seen}
        holdout, fitted = Holdout(self.layout.label == "vector"), self.gathered.fit.rows
        for name, part in self.gathered.parts.items():
            if name not in found:
                self.replayed += sum(scan.active.rows for scan in part.scans)
                found[name] = history(
                    *(part.totals, part.scans, pair.rules, pair.log, self._spread),
                    fitted=fitted,
                    holdout=holdout if name == "holdout" else None,
                )
        return found

    def rows_at_hand(self) -> list[BlockScan] | None:
        return self.gathered.fit.scans

    def again(self, problem: Problem) -> LocalScan:
        gathered = problem.scanner(self.layout).again(self.gathered)
        return LocalScan(gathered, self.layout, self._threads)

    def close(self) -> None:
        pass


def choose_engine(config: Config) -> tuple[Literal["local", "spark"], str]:
    """What computes, and why: `auto` computes where the data is."""
    if config.engine.name != "auto":
        return config.engine.name, "set in the configuration"
    if "DATABRICKS_RUNTIME_VERSION" in os.environ or _in_spark():
        return "spark", "a Spark session is active"
    names = [config.input.table, *config.output.tables]
    for name in names:
        in_catalog = CATALOG_NAME.fullmatch(name) and not name.lower().endswith(FILE_ENDINGS)
        if in_catalog and not Path(name).exists():
            return "spark", f"{name} is a catalog name"
    return "local", "all tables are paths, and no Spark session is active"


def _in_spark() -> bool:
    """Whether this process has a Spark session, asked without importing Spark."""
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and spark.SparkSession.getActiveSession() is not None

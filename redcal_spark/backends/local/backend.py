"""The backend without a JVM: scans, passes and writes are done by threads, batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.algorithms.engine import Engine
from redcal_spark.backends.backend import AtEnd, Progress, Stream
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.inputs import columns_read
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.local.join import duplicate_ids
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.retries import retried
from redcal_spark.backends.store import Commit, Table, written_before
from redcal_spark.backends.target import Target
from redcal_spark.backends.threads import ordered
from redcal_spark.backends.views import Made, SomeColumns, WithIds, WithLabel
from redcal_spark.config.schema import Config
from redcal_spark.core.arrow import empty_batch
from redcal_spark.core.columns import Layout, plan
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.folds import FOLDS, of_fold
from redcal_spark.core.history import Holdout, Point, history
from redcal_spark.core.kernel import BlockScan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.multiset import CompareTask
from redcal_spark.core.patch_effects import PatchEffect, added_effects, patch_effects
from redcal_spark.core.patches import Patch
from redcal_spark.core.problem import Problem, way_out
from redcal_spark.core.reading import BadRows
from redcal_spark.core.rows import Rows
from redcal_spark.core.scan import ScanResult, SplitResult, numbered
from redcal_spark.core.splits import Split
from redcal_spark.core.sums import DecisionSums, decision_sums
from redcal_spark.errors import ConflictError, InputError, UsageError

log = logging.getLogger(__name__)

TRIES = 5  # of a write that others were quicker than


class LocalBackend:
    """On this machine, batch by batch."""

    def __init__(self, store: DeltaRsStore, threads: int | None = None):
        self.store = store
        self.threads = threads
        self.counters = Counters()

    def first(self, table: Table, columns: list[str]) -> pa.RecordBatch | None:
        return next((batch for batch in table.batches(columns) if batch.num_rows), None)

    def check_reading(self, table: Table, columns: list[str]) -> None:
        """Whoever reads on this machine reads files itself."""

    def id_problems(self, table: Table, id: str) -> list[str]:
        return duplicate_ids(table, id)

    def rows_with(
        self, table: Table, id: str, value: pa.Scalar, names: list[str], most: int
    ) -> tuple[pa.Table, int]:
        batches, count = [], 0
        for batch in table.batches(names):
            place = batch.schema.get_field_index(id)
            ids = batch.column(place).cast(value.type)  # not every type of text can be compared
            kept = batch.set_column(place, id, ids).filter(pc.equal(ids, value))
            if kept.num_rows and count < most:
                batches.append(kept.slice(0, most - count))
            count += kept.num_rows
        schema = pa.schema([table.schema.field(name) for name in names])
        return pa.Table.from_batches(batches) if batches else schema.empty_table(), count

    def scan(
        self, table: Table, problem: Problem, split: Split | None, progress: Progress
    ) -> LocalScan:
        columns = problem.columns
        pieces = table.pieces(columns_read(columns, split), columns.segments)
        where = table.name
        result = gather_pieces(problem, pieces, table.schema, where, split, progress, self.threads)
        problem.check(result[0], where, split)
        return LocalScan(*result, self.threads)

    def write_rows(
        self, table: Table, made: Made, commit: Commit, progress: Progress, at_end: AtEnd
    ) -> tuple[int, int]:
        target = made[1]
        done = written_before(self.store, target, commit)
        if done is not None:
            return done

        def write() -> tuple[int, int]:
            rows = self._extended(table, made, progress, writing=True)
            first = next(rows, None)  # its schema is the table's
            if first is None:
                raise InputError(f"{table.name} has no rows")
            self.store.check_rows(target, first.schema)
            written = 0

            def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                nonlocal written
                for batch in batches:
                    written += batch.num_rows
                    yield batch
                at_end()

            version = self.store.put(target, first.schema, counted(chain([first], rows)), commit)
            if target.mode == "merge":  # most rows may have been there already
                return self.store.written(target.table, commit) or (version, written)
            return version, written

        return retried(write, _overtaken, tries=TRIES)

    def check_writer(self, table: Table, target: Target, schema: pa.Schema) -> None:
        """There is one writer here, whichever Spark's would be."""

    def stream(self, config: Config, pair: Fitted, model: tuple[str, str]) -> Stream:
        raise UsageError(
            "--incremental and --follow need engine.name: spark: its Delta source tracks which "
            "rows are new. The local engine applies to the whole table: leave the option out"
        )

    def compared(self, table: Table, task: CompareTask, made: Made | None) -> list[pa.RecordBatch]:
        rows = table.batches() if made is None else self._extended(table, made)
        answers = ordered(lambda batch: list(task([batch])), rows, self.threads)
        return list(chain.from_iterable(answers))

    def schema_made(self, table: Table, made: Made) -> pa.Schema:
        none = empty_batch(table.schema)
        pair, target, roles = made
        layout = plan(table.schema, pair.columns, table.name, pair.n_classes, None, labels=False)
        names = target.names(pair.columns, pair.losses)
        return pair.apply_batch(none, layout, names, BadRows(), 0, target.skip, roles).schema

    def only(self, table: Table, names: list[str]) -> Table:
        return SomeColumns(table, names)

    def labelled(self, table: Table, label: str) -> Table:
        return WithLabel(table, label)

    def with_ids(self, table: Table, other: Table, id: str, inside: bool) -> Table:
        return WithIds(table, other, id, inside)

    def _extended(
        self,
        table: Table,
        made: Made,
        progress: Progress = lambda _: None,
        writing: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows as they are written. writing: those that a merge only looks at, too."""
        pair, target, roles = made
        layout = plan(table.schema, pair.columns, table.name, pair.n_classes, None, labels=False)
        pair.check_layout(layout)
        named = target.names_to_write if writing else target.names
        names, skip = named(pair.columns, pair.losses), target.skip
        wanted = names.read(table.schema.names, roles, table.name)

        def work(item: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch, BadRows]:
            start, batch = item
            problems = BadRows()
            rows = pair.apply_batch(batch, layout, names, problems, start, skip, roles)
            return batch.num_rows, rows, problems

        for count, batch, problems in ordered(work, numbered(table.batches(wanted)), self.threads):
            if not skip:
                problems.raise_if_any(table.name, way_out(problems))
            progress(count)
            yield batch


def _overtaken(err: Exception) -> bool:
    """Whether of two runs on one target the other was quicker: this one is the next version."""
    if isinstance(err, ConflictError):
        log.info("%s; trying again", str(err).partition(";")[0])
    return isinstance(err, ConflictError)


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
        given, fit = problem.parameters, self.gathered.fit
        watched = watched and not problem.columns.segments  # of which regions know nothing
        totals = fit.totals if watched and not given.reconciles_scores else None
        own = totals is not None and not given.calibrates_everywhere
        rules = problem.fitting_rules(self.layout)
        engine = LocalEngine(fit.scans, fit.rows, rules, self._threads, totals, own)
        if own:
            fit.scans = []
        return engine

    def histories(self, pair: Fitted, seen: list[Point] | None) -> dict[str, list[Point]]:
        histories = {} if seen is None else {"fit": seen}
        fitted, heaviest = self.gathered.fit.counted, self.gathered.holdout.totals.heaviest
        holdout = Holdout(self.layout.label == "vector", heaviest)
        for name, part in self.gathered.parts.items():
            if name not in histories:
                self.replayed += sum(scan.active.rows for scan in part.scans)
                histories[name] = history(
                    *(part.totals, part.scans, pair.rules, pair.log, self._spread),
                    fitted=fitted,
                    holdout=holdout if name == "holdout" else None,
                )
        return histories

    def halves(self, level: int) -> tuple[LocalScan, ...]:
        fit = self.gathered.fit
        assert fit.folds is not None
        scans = [
            [of_fold(scan, fold, level) for scan in fit.scans if scan.active.rows] for fold in FOLDS
        ]
        totals = [fit.folds.totals(fit.totals, fold, level) for fold in FOLDS]
        return tuple(self.half(*each) for each in zip(totals, scans, strict=True))

    def half(self, totals: Totals, scans: list[BlockScan]) -> LocalScan:
        """Some of the fitting rows, of which these are active."""
        gathered = replace(self.gathered, fit=SplitResult(totals, scans))
        return LocalScan(gathered, self.layout, self._threads)

    def decisions_after(self, problem: Problem, log: Sequence[Patch]) -> DecisionSums:
        rules = problem.rules(self.layout.binary)

        def decided(scan: BlockScan) -> DecisionSums:
            return decision_sums(Rows(scan.active, rules, scan.own_classified()), log)

        nothing = DecisionSums.none(rules, self.layout.n_classes)
        return sum(self._spread(decided, self.gathered.fit.scans), nothing)

    def patch_effects(self, pair: Fitted) -> list[PatchEffect]:
        heaviest = self.gathered.holdout.totals.heaviest

        def effects(scan: BlockScan) -> list[PatchEffect]:
            known = scan.own_classified()
            return patch_effects(scan.active, pair.rules, pair.log, heaviest, known)

        blocks = self._spread(effects, self.gathered.holdout.scans)
        return added_effects(blocks, pair.log, pair.losses)

    def rows_at_hand(self) -> list[BlockScan] | None:
        return self.gathered.fit.scans

    def again(self, problem: Problem) -> LocalScan:
        gathered = problem.scanner(self.layout).again(self.gathered)
        return LocalScan(gathered, self.layout, self._threads)

    def close(self) -> None:
        pass

"""Runs: one claimed execution of a job, from the scan to its tables and its row in the ledger."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from redcal_spark.backends.backend import Scan
from redcal_spark.backends.local.folders import partials
from redcal_spark.backends.names import Place
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import target_of
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics, Totals
from redcal_spark.core.patches import Patch, PatchLog
from redcal_spark.core.problem import Problem
from redcal_spark.core.roles import Roles
from redcal_spark.errors import RedcalError, ScratchError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.guard import Histories, counted, verdict
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.tune import chosen_line, tune
from redcal_spark.runs import signals
from redcal_spark.runs.claim import Claim
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import Ledger, RunRow
from redcal_spark.runs.outcome import Outcome, counts_of, ledger_cells, weight_counts
from redcal_spark.runs.patch_writer import Progress
from redcal_spark.runs.tables import (
    HISTORY,
    METRICS,
    history_table,
    measured,
    measured_in,
    metrics_table,
)
from redcal_spark.runs.turns import in_turn


class Run:
    """A claimed run. Work is done within `working`, and `end` is the last of it.

    new_ledger: there was none before the claim. written: tables, and the versions of them that
    this run wrote.
    """

    def __init__(self, job: Job, claim: Claim, new_ledger: bool):
        self.job = job
        self.claim = claim
        self.identity = json.loads(claim.row.inputs)  # of the input
        self.written: dict[str, int] = {}
        self._new_ledger = new_ledger
        self._counters = job.work.counters
        self._timings: dict[str, float] = {}
        self._measured: str | None = None  # what the metrics table says of what the run took
        self._seen: list[Point] = []  # of the fitting rows, at the ends of rounds
        self._steps = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The heart beats while the run goes on; the ledger says of a failure, which is raised.

        An input that cannot be used leaves nothing behind where nothing was before.
        """
        self.job.listener.run(self.claim.row.run_id)
        self._counters.clear()
        self._counters.heard = self.job.listener.passing
        with self.claim:
            try:
                yield
            except BaseException as err:
                wrong_use = isinstance(err, RedcalError) and err.exit_code == 2
                try:
                    row = self._failed(_in_words(err))
                    if wrong_use and self._new_ledger and not self.written:
                        self.job.ledger.forget(row)
                except Exception as second:  # the first one is what must be mended
                    self.job.listener.note(f"the failure could not be recorded: {second}")
                raise

    def _failed(self, reason: str) -> RunRow:
        """Record it, if need be without what failed: a signal may have ended Spark, too."""
        try:
            return self.claim.end("failed", error=reason, **self._spent())
        except Exception:
            runs = self.job.tables.runs
            other = self.job.store.spare(runs)
            if other is None:
                raise
            self.claim.write_to(Ledger(other, runs, self.job.config.hidden))
            return self.claim.end("failed", error=reason, **self._spent())

    def end(self, status: str, **cells: Any) -> RunRow:
        """The row of the ledger that vouches for all tables of the run."""
        outputs = json.dumps(self.written)
        row = self.claim.end(status, outputs=outputs, **cells, **self._spent())
        self._tidy()
        return row

    def _tidy(self) -> None:
        """Remove what late tasks of runs that ended have left beside the table of rows."""
        place = Place(self.job.tables.table).absolute
        if place.is_here and (left := partials(Path(place.name))):
            ended = {row.run_id for row in self.job.ledger.rows() if row.status != "running"}
            for run_id in ended & left.keys():
                shutil.rmtree(left[run_id], ignore_errors=True)

    # --- fit ------------------------------------------------------------------------------------

    def fit(self) -> Outcome:
        """Scan, fit, look at holdout rows, certify; and write the rows, if that is the command."""
        models = self.job.config.input.n_models
        progress = Progress(self.job.store, self.job.tables.patches, self.claim, models)
        if self.claim.resumed is not None:
            self.job.listener.note(
                f"continuing run {self.claim.row.run_id} after {len(progress.log):,} patches"
            )
        try:
            return self._fit(progress)
        except ScratchError as err:  # the patches that were found before it stand
            self.job.listener.note(f"{err}; {self.job.input.name} is scanned again")
            return self._fit(progress)

    def _fit(self, progress: Progress) -> Outcome:
        scan = self._scan()
        try:
            pair = self._fit_scanned(scan, progress)
            pair, histories = self._holdout_pass(scan, pair)
        finally:
            scan.close()  # the rest needs no scratch, and the disk may need the room
        return self._finish(scan, pair, histories, progress)

    def _scan(self) -> Scan:
        with self._timed("scan"), self._counters.timed("scan") as made:
            scan = self.job.scan()
            made.rows, made.bytes = scan.gathered.rows, self._counters.scratch_bytes or None
        self._counters.rows_scanned += scan.gathered.rows
        return scan

    def _fit_scanned(self, scan: Scan, progress: Progress) -> ReconciledPair:
        problem, listener = self._tuned(scan, progress), self.job.listener

        def on_patch(patch: Patch, zero_calibrations: int) -> None:
            progress.patch(patch, zero_calibrations)
            self._steps = patch.step + 1
            listener.patch(patch)

        def on_round(first: Patch, totals: Totals | None) -> None:
            self._round(first, totals, scan.layout.binary)

        listener.fit(problem.losses)
        self._seen = [Point(0, 0, scan.gathered.fit.totals)]
        with self.phase("fit"):
            return fit_scanned(
                problem, scan, progress.log, on_patch, on_round, progress.zero_calibrations
            )

    def _tuned(self, scan: Scan, progress: Progress) -> Problem:
        """What is to be fitted. With `eta: auto` the numbers are chosen first, once a run."""
        job, problem = self.job, self.job.problem
        if not problem.parameters.tunes:
            return problem
        if progress.tuned is None:
            with self.phase("tune"):
                progress.choose(tune(problem, scan, job.listener.candidate))
        assert progress.tuned is not None
        chosen = problem.chosen(progress.tuned)
        for note in (chosen_line(progress.tuned, chosen), *chosen.doubts(scan.gathered)):
            job.listener.note(note)
        return chosen

    def _round(self, first: Patch, totals: Totals | None, binary: bool) -> None:
        metrics = None
        if totals is not None:
            metrics = Metrics(totals, self.job.problem.losses, binary)
            self._seen.append(Point(self._steps, len(self._seen), totals))
        self.job.listener.round(first, metrics)

    def _holdout_pass(self, scan: Scan, pair: ReconciledPair) -> tuple[ReconciledPair, Histories]:
        """The one pass after the fit; what the guard keeps, and its certificate."""
        job = self.job
        with self.phase("holdout"), self._counters.timed("holdout") as made:
            histories = scan.histories(pair, self._all_seen(pair.log))
            made.rows = scan.replayed
            guard, delta = job.config.reconcile.guard, job.delta
            pair, histories = verdict(pair, histories, guard, job.listener.note, delta)
            return pair, counted(scan, pair, histories)

    def _all_seen(self, log: PatchLog) -> list[Point] | None:
        """The points of the fitting rows, if all were taken: rounds only, each measured."""
        rounds_only = all(patch.round is not None for patch in log)
        return self._seen if rounds_only and len(self._seen) == 1 + log.rounds else None

    def _finish(
        self,
        scan: Scan,
        pair: ReconciledPair,
        histories: Histories,
        progress: Progress,
    ) -> Outcome:
        """Write all tables; the ledger comes last."""
        job, tables, gathered = self.job, self.job.tables, scan.gathered
        with self.phase("write"):
            columns = pair.columns.segments
            table = history_table(self.claim.row.run_id, pair.losses, histories, columns)
            commit = self._commit()
            with ThreadPoolExecutor(1) as aside:  # in a catalog each of them takes a second
                patches = aside.submit(progress.finish)
                self.written[tables.history] = job.store.write(
                    tables.history, HISTORY, table.to_batches(), "append", commit
                )
                self.written[tables.patches] = patches.result()
        if self.claim.row.command == "run":
            self._write_rows(pair, Roles(scan.layout, job.split), gathered.rows)
        job.check_unchanged(self.identity)
        counts = counts_of(gathered, pair)
        self.write_metrics(pair, counts | weight_counts(gathered), histories)
        row = self.end(pair.status, **counts, **ledger_cells(pair, histories))
        return Outcome(row, pair, histories)

    # --- apply ----------------------------------------------------------------------------------

    def apply(self, pair: ReconciledPair, roles: Roles) -> Outcome:
        """Write the input's rows with a pair's scores and actions."""
        rows = self._write_rows(pair, roles)
        self.write_metrics(pair, {} if rows is None else {"rows": rows})
        return Outcome(self.end(pair.status, rows=rows), pair)

    def _write_rows(
        self, pair: ReconciledPair, roles: Roles, known: int | None = None
    ) -> int | None:
        """How many rows the target got; where it gets only some of them, how many were read.

        A source that changed stops the write. roles: what the rows were to the fit. known: how
        many rows the input has.
        """
        job, read = self.job, 0

        def advance(rows: int) -> None:
            nonlocal read
            read += rows
            job.listener.advance(rows)

        with (
            self.phase("apply", job.input.count()),
            self._counters.timed("apply") as made,
            job.blaming_changes(self.identity),
            in_turn(job),
        ):
            self.written[job.tables.table], written = job.work.write_rows(
                job.input,
                (pair, target_of(job.config), roles),
                self._commit(),
                advance,
                lambda: job.check_unchanged(self.identity),
            )
            made.rows = known or read or written  # a MERGE tells what it changed
            self._counters.rows_scanned += made.rows
            self._counters.rows_written += written
        if job.config.output.rows == "all":
            return written
        return read or job.input.count()  # nothing is read where a resumed run had written them

    # --- what it took ---------------------------------------------------------------------------

    def write_metrics(
        self,
        pair: ReconciledPair,
        counts: Mapping[str, int],
        histories: Histories | None = None,
    ) -> None:
        """histories: none for a run that only applied a model."""
        store, name, commit = self.job.store, self.job.tables.metrics, self._commit()
        row, taken = self.claim.row, measured(self._timings, self._counters)
        table = metrics_table(row, pair, counts, taken, histories or {})
        self.written[name] = store.write(name, METRICS, table.to_batches(), "append", commit)
        there = store.read(name, {"run_id": row.run_id}) if commit.again else None
        if there is not None and there.num_rows:  # it may have been written before the run died
            taken = measured_in(there)
        self._measured = json.dumps(taken)

    def _commit(self) -> Commit:
        """What a write says of itself. The run must still be ours when we write."""
        self.claim.check()
        return replace(self.claim.row.commit, again=self.claim.resumed is not None)

    @contextmanager
    def phase(self, name: str, rows: int | None = None) -> Iterator[None]:
        """A phase that the listener hears of and the ledger has the time of."""
        with self.job.listener.during(name, rows), self._timed(name):
            yield

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._timings[name] = self._timings.get(name, 0.0) + time.perf_counter() - start

    def _spent(self) -> dict[str, str]:
        """What the run took so far, for the ledger."""
        seconds = {name: round(seconds, 3) for name, seconds in self._timings.items()}
        counters = json.dumps(self._counters.to_json())
        spent = {"counters": counters, "timings": json.dumps(seconds)}
        return spent if self._measured is None else spent | {"measured": self._measured}


def _in_words(err: BaseException) -> str:
    """Why a run failed, for the ledger."""
    if isinstance(err, KeyboardInterrupt):
        return signals.in_words(err)
    return str(err) if isinstance(err, RedcalError) else f"{type(err).__name__}: {err}"

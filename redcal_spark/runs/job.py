"""Runs: what a scheduled job does, from configuration to tables and ledger."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from redcal_spark.backends.backend import Backend, Scan, check_rows
from redcal_spark.backends.inputs import columns_read, open_input, pinned, split_of
from redcal_spark.backends.store import Commit, Table
from redcal_spark.backends.target import RUN_ID, target_of
from redcal_spark.certificate.certify import DELTA
from redcal_spark.config.schema import Config
from redcal_spark.core.columns import Columns, Layout, plan
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics, Totals
from redcal_spark.core.patches import Patch, PatchLog
from redcal_spark.core.problem import Problem
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.core.splits import check_split
from redcal_spark.errors import InputError, RedcalError, RunError, ScratchError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.reconciler import Reconciler
from redcal_spark.model.verdict import verdict
from redcal_spark.runs import earlier, signals
from redcal_spark.runs.accounts import counted, counts_told, found, metrics_run
from redcal_spark.runs.claim import Claim, take
from redcal_spark.runs.ledger import Ledger, RunRow, config_digest, fingerprint
from redcal_spark.runs.metrics_table import METRICS, measured, measured_in, metrics_table
from redcal_spark.runs.outcome import Listener, Outcome
from redcal_spark.runs.patch_writer import Progress
from redcal_spark.runs.tables import HISTORY, history_table
from redcal_spark.settings import of_a_job


class Job:
    """One configuration, and where its tables and its computing are."""

    def __init__(self, config: Config, work: Backend, listener: Listener | None = None):
        self.config = config
        self.work = work
        self.store = store = work.store
        self.listener = listener or Listener()
        self.tables = config.output.tables
        self.ledger = Ledger(store, self.tables.runs, config.hidden)
        self.split = split_of(config.input)
        self.skip = config.input.on_bad_rows == "skip"
        self.given = config.input  # a resumed run pins its versions
        self.lease = timedelta(seconds=config.engine.lease)
        self._new_ledger = False
        self._written: dict[str, int] = {}  # tables and the versions of them that this run wrote
        self._timings: dict[str, float] = {}
        self._measured: str | None = None  # what the metrics table says of what the run took
        self._binary = False
        self._seen: list[Point] = []  # of the fitting rows, at the ends of rounds
        self._steps = 0

    # --- what is there --------------------------------------------------------------------------

    @cached_property
    def _opened(self) -> tuple[Table, Columns]:
        return open_input(self.store, self.given)

    @property
    def input(self) -> Table:
        return self._opened[0]

    def read_instead(self, table: Table, columns: Columns) -> None:
        """Takes a table for the input: one that it was, or what is left of it."""
        self.__dict__["_opened"] = table, columns

    @cached_property
    def reconciler(self) -> Reconciler:
        given, parameters, columns = self.config.input, self.config.reconcile, self._opened[1]
        losses = {
            name: {"costs": loss.costs, "actions": loss.actions}
            for name, loss in self.config.losses.items()
        }
        with _noted(self.listener), of_a_job():
            return Reconciler(
                losses=losses,
                **parameters.model_dump(exclude={"guard"}),
                model_1=columns.model_1,
                model_2=columns.model_2,
                label=columns.label,
                id=columns.id,
                classes=columns.classes,
                on_bad_rows=given.on_bad_rows,
                threads=self.config.engine.threads,
            )

    @cached_property
    def digest(self) -> str:
        """Of the configuration, with variables resolved and defaults filled in."""
        tree = self.config.model_dump(mode="json")
        output = tree["output"] | self.tables._asdict()
        del output["report"]  # the rows are the same, whoever reads of them
        if not output["normalise"]:  # as before there was such a key
            del output["normalise"]
        if exact(self.config.reconcile.delta) == DELTA:  # as it was before there was a choice
            del tree["reconcile"]["delta"]
        return config_digest(tree | {"output": output})

    def _wanted(self, problem: Problem) -> list[str]:
        """The columns that fitting reads."""
        return columns_read(problem.columns, self.split)

    def check_input(self, *, labels: bool = True) -> Layout:
        """What can be seen of the input before computing: tables, columns, types."""
        with _noted(self.listener):
            return self._layout(labels)

    def check(self, *, ids: bool = False, rows: bool = True, labels: bool = True) -> Layout:
        """Everything that can be seen before computing: the input, and where results would go.

        rows: they will be written. labels: they will be needed.
        """
        layout = self.check_input(labels=labels)
        problems = self._target_problems()
        if rows:
            problems += [
                f"{self.input.name}: {problem}"
                for problem in self.store.check_schema(self.input.schema)
            ]
        if problems:
            raise UsageError("\n".join(problems))
        if rows:
            made = self.reconciler
            target = target_of(self.config)
            names = target.names(made.columns, made.losses)
            names.check(self.input.schema.names, self.skip, self.input.name)
            check_rows(self.work, self.input, target, made.problem, layout)
        if ids:
            if self.config.input.id is None:
                raise UsageError("check --ids: input.id is not set")
            told = self.work.id_problems(self.input, self.config.input.id)
            if told:
                raise InputError("\n".join(told))
        return layout

    def _target_problems(self) -> list[str]:
        return [
            problem
            for key, name in self.tables._asdict().items()
            if (problem := self.store.check_target(name, f"output.{key}")) is not None
        ]

    def _layout(self, labels: bool) -> Layout:
        schema, made = self.input.schema, self.reconciler
        if self.split is not None and labels:
            check_split(self.split, schema, self.input.name)
        there = set(schema.names)
        present = [name for name in self._wanted(made.problem) if name in there]
        first = self.work.first(self.input, present)
        if first is None:
            raise InputError(f"{self.input.name} has no rows")
        return plan(schema, made.columns, self.input.name, made.problem.n_classes, first, labels)

    # --- the parts of a run ---------------------------------------------------------------------

    def scan(self) -> Scan:
        """The one scan: validated, counted, active rows kept."""
        identity = self.input.identity()
        try:
            found = self.scanned(self.input, self.reconciler.problem)
        except InputError:
            self._unchanged(identity)  # if it changed, that is the reason
            raise
        self._unchanged(identity)
        for told in self.reconciler.problem.doubts(found.gathered):
            self.listener.note(told)
        return found

    def scanned(self, table: Table, problem: Problem, *, tell: bool = True) -> Scan:
        """A scan of a table that has the columns which the problem names.

        tell: what is odd about the scores. Patched ones may well not sum to 1.
        """
        listener = self.listener if tell else Listener()
        with self._phase("scan", table.count()), _noted(listener):
            return self.work.scan(table, problem, self.split, self.listener.advance)

    def run(self, *, force: bool = False, wait: bool = False) -> Outcome:
        """Fit, apply, holdout: the main job."""
        return self._run("run", force, wait)

    def fit(self, *, force: bool = False, wait: bool = False) -> Outcome:
        """Fit and certify; the log is written, the rows are not."""
        return self._run("fit", force, wait)

    def resume(self, run_id: str | None = None, *, wait: bool = False) -> Outcome:
        """Go on with a run that did not finish, on the input that it started with."""
        row = earlier.unfinished(self.ledger, self.digest, run_id)
        if run_id is None and row.command == "run":
            self._check_not_overtaken(row)
        self.listener.note(f"resuming run {row.run_id} ({row.command}), {row.status}")
        self.given = pinned(self.config.input, json.loads(row.inputs))
        self.__dict__.pop("_opened", None)  # it may have been looked at already
        if (found := self.input.identity()) != json.loads(row.inputs):
            raise RunError(
                f"run {row.run_id} cannot be resumed: {self.input.name} has changed since "
                f"({earlier.changes(json.loads(row.inputs), found)}); start a new one with: "
                "redcal run"
            )
        return self._run(row.command, False, wait, row.fingerprint)

    def _check_not_overtaken(self, row: RunRow) -> None:
        """A run that died may be older than what the target has by now."""
        last = self.store.last_writer(self.tables.table)
        since = [r for r in self.ledger.rows() if r.run_id == last]
        if self.config.output.mode != "append" and since and since[-1].started_at > row.started_at:
            raise UsageError(
                f"run {row.run_id} is older than run {last}, whose rows {self.tables.table} has: "
                f"they would be replaced. To do so: redcal resume --run {row.run_id}"
            )

    def _run(self, command: str, force: bool, wait: bool, mark: str | None = None) -> Outcome:
        apply = command == "run"
        self.check(rows=apply)
        identity = self.input.identity()
        mark = mark or fingerprint(self.digest, identity, command)
        claim = self._claimed(self._new_row(mark, command, identity), force, wait, apply)
        if isinstance(claim, Outcome):
            return claim
        with self._working(claim):
            progress = Progress(self.store, self.tables.patches, claim)
            if claim.resumed is not None:
                self.listener.note(
                    f"continuing run {claim.row.run_id} after {len(progress.log):,} patches"
                )
            try:
                return self._computed(claim, progress, identity, apply)
            except ScratchError as err:  # the patches that were found before it stand
                self.listener.note(f"{err}; {self.input.name} is scanned again")
                return self._computed(claim, progress, identity, apply)

    def _computed(self, claim: Claim, progress: Progress, identity: Any, apply: bool) -> Outcome:
        counters = self.work.counters
        with counters.timed("scan") as made:
            scanned = self.scan()
            made.rows, made.bytes = scanned.gathered.rows, counters.scratch_bytes or None
        counters.rows_scanned += scanned.gathered.rows
        try:
            return self._finish(claim, progress, scanned, identity, apply)
        finally:
            scanned.close()

    def _new_row(self, mark: str, command: str, identity: Any, **given: Any) -> RunRow:
        return RunRow.new(
            fingerprint=mark,
            config_digest=self.digest,
            command=command,
            config=json.dumps(self.config.recorded()),
            inputs=json.dumps(identity),
            **given,
        )

    def _claimed(self, fresh: RunRow, force: bool, wait: bool, apply: bool) -> Claim | Outcome:
        """The run, to work on; or what there is to say if someone did or does it."""
        waiting = False
        while True:
            if not force and (done := self._done(fresh.fingerprint, apply)) is not None:
                return Outcome(done, unchanged=True)
            self._new_ledger = not self.ledger.exists
            taken = take(self.ledger, fresh, self.lease, force)
            if isinstance(taken, Claim) and (force or self._done(fresh.fingerprint, apply) is None):
                return taken
            if isinstance(taken, Claim):  # someone finished it between our look and our claim
                taken.withdraw()
                continue
            if not wait:
                return Outcome(taken.row, held=str(taken))
            if not waiting:
                self.listener.note(f"{taken}; waiting for it")
            waiting = True
            time.sleep(min(2.0, self.lease.total_seconds() / 4))

    @contextmanager
    def _working(self, claim: Claim) -> Iterator[None]:
        """The heart beats while the run goes on; a failure is told in the ledger, and raised.

        An input that cannot be used leaves nothing behind where nothing was before.
        """
        self.listener.run(claim.row.run_id)
        self.work.counters.clear()
        with claim:
            try:
                yield
            except BaseException as err:
                told = _in_words(err)
                wrong_use = isinstance(err, RedcalError) and err.exit_code == 2
                try:
                    row = self._failed(claim, told)
                    if wrong_use and self._new_ledger and not self._written:
                        self.ledger.forget(row)
                except Exception as second:  # the first one is what must be mended
                    self.listener.note(f"the failure could not be recorded: {second}")
                raise

    def _failed(self, claim: Claim, told: str) -> RunRow:
        """Record it, if need be without what failed: a signal may have ended Spark, too."""
        try:
            return claim.end("failed", error=told, **self._spent())
        except Exception:
            other = self.store.spare(self.tables.runs)
            if other is None:
                raise
            claim.write_to(Ledger(other, self.tables.runs, self.config.hidden))
            return claim.end("failed", error=told, **self._spent())

    def _finish(
        self, claim: Claim, progress: Progress, scanned: Scan, identity: Any, apply: bool
    ) -> Outcome:
        gathered = scanned.gathered

        def on_patch(patch: Patch, zero_calibrations: int) -> None:
            progress.patch(patch, zero_calibrations)
            self._patch(patch)

        with self._phase("fit"):
            self._binary = scanned.layout.binary
            self._seen = [Point(0, 0, gathered.fit.totals)]
            pair = self.reconciler.fit_gathered(
                gathered,
                scanned.layout,
                log=progress.log,
                on_patch=on_patch,
                on_round=self._round,
                engine=scanned.engine(self.reconciler.problem, watched=not progress.log),
                zero_calibrations=progress.zero_calibrations,
            )
        with self._phase("holdout"), self.work.counters.timed("holdout") as made:
            points = scanned.histories(pair, self._all_seen(pair.log))
            made.rows = scanned.replayed
            guard = self.config.reconcile.guard
            pair, histories = verdict(
                pair, points, guard, self.listener.note, self.reconciler.delta
            )
        scanned.close()  # the rest needs no scratch, and the disk may need the room
        with self._phase("write"):
            self._written[self.tables.patches] = progress.finish()
            table = history_table(claim.row.run_id, pair.losses, histories)
            self._written[self.tables.history] = self.store.write(
                self.tables.history, HISTORY, table.to_batches(), "append", self._commit(claim)
            )
        if apply:
            roles = Roles(scanned.layout, self.split)
            version, _ = self._write_rows(pair, claim, identity, roles, gathered.rows)
            self._written[self.tables.table] = version
        self._unchanged(identity)
        outcome = Outcome(claim.row, pair, histories)
        self._write_metrics(claim, pair, counted(gathered, pair), histories)
        outcome.row = claim.end(
            pair.status,
            outputs=json.dumps(self._written),
            **found(outcome, gathered),
            **self._spent(),
        )
        return outcome

    def _write_metrics(
        self,
        claim: Claim,
        pair: ReconciledPair,
        counts: dict[str, int],
        histories: dict[str, list[Point]],
    ) -> None:
        name, commit = self.tables.metrics, self._commit(claim)
        taken = measured(self._timings, self.work.counters)
        table = metrics_table(
            metrics_run(claim.row, pair), counts_told(counts, pair), taken, histories, pair.losses
        )
        self._written[name] = self.store.write(name, METRICS, table.to_batches(), "append", commit)
        there = self.store.read(name, {"run_id": claim.row.run_id}) if commit.again else None
        if there is not None and there.num_rows:  # it may have been written before the run died
            taken = measured_in(there)
        self._measured = json.dumps(taken)

    def _commit(self, claim: Claim) -> Commit:
        """What a write says of itself. The run must still be ours when we write."""
        claim.check()
        return replace(claim.row.commit, again=claim.resumed is not None)

    def roles_of(self, fitted: RunRow | None) -> Roles:
        """What the input's rows were to a run that was fitted; unknown, if it read other rows.

        fitted: None, if nobody knows which run the model is of.
        """
        if fitted is None or not earlier.fitted_on(
            fitted, self.config, self.digest, self.input.identity()
        ):
            return UNKNOWN
        return Roles(self.check_input(), self.split)

    def apply(
        self,
        pair: ReconciledPair,
        command: str = "apply",
        *,
        fitted: RunRow | None = None,
        wait: bool = False,
    ) -> Outcome:
        """Write the input's rows, labelled or not, with a fitted pair's scores and actions.

        fitted: the run that the pair is of, if it is known.
        """
        self.check(labels=False)
        identity = self.input.identity()
        roles = self.roles_of(fitted)  # a file that changes from here on voids the run
        mark = fingerprint(self.digest, identity, command, pair.to_json())
        counted = {"patches": len(pair.log), "rounds": pair.log.rounds}
        known = None if fitted is None else json.dumps({"model_of": fitted.run_id})
        fresh = self._new_row(mark, command, identity, progress=known, **counted)
        claim = self._claimed(fresh, True, wait, True)
        if isinstance(claim, Outcome):
            return claim
        with self._working(claim):
            self._written[self.tables.table], rows = self._write_rows(pair, claim, identity, roles)
            self._write_metrics(claim, replace(pair, certificate=None), {"rows": rows}, {})
            row = claim.end(
                pair.status,
                rows=rows,
                outputs=json.dumps(self._written),
                **self._spent(),
            )
        return Outcome(row, pair)

    def _write_rows(
        self,
        pair: ReconciledPair,
        claim: Claim,
        identity: Any,
        roles: Roles,
        known: int | None = None,
    ) -> tuple[int, int]:
        """The version written, and how many rows it has. A source that changed stops the write.

        roles: what the rows were to the fit. known: how many rows the input has.
        """
        counters = self.work.counters
        with self._phase("apply", self.input.count()), counters.timed("apply") as made:
            try:
                version, written = self.work.write_rows(
                    self.input,
                    (pair, target_of(self.config), roles),
                    self._commit(claim),
                    self.listener.advance,
                    lambda: self._unchanged(identity),
                )
                made.rows = written if known is None else known  # a MERGE tells what it changed
                counters.rows_scanned += made.rows
                return version, written
            except InputError:
                self._unchanged(identity)  # if it changed, that is the reason
                raise

    def _unchanged(self, identity: Any) -> None:
        if self.input.identity() != identity:
            raise RunError(
                f"{self.input.name} changed during the run, so the run is void: start it again"
            )

    def _done(self, mark: str, apply: bool) -> RunRow | None:
        """A finished run with this fingerprint whose rows are still there."""
        for row in reversed(self.ledger.rows(fingerprint=mark)):
            if row.finished and self._tables_stand(row) and (not apply or self._rows_stand(row)):
                return row
        return None

    def _tables_stand(self, row: RunRow) -> bool:
        """Whether there still are the tables that a run wrote; the target is looked at closely."""
        wrote = json.loads(row.outputs or "{}").keys() - {self.tables.table}
        return all(map(self.store.exists, wrote))

    def _rows_stand(self, row: RunRow) -> bool:
        """Whether the rows that a run wrote are what a reader of the target finds."""
        table = self.tables.table
        if self.config.output.mode == "append":  # beside those of other runs
            if self.store.written(table, row.commit) is not None:
                return True
            # a table forgets its history after a while, but not its rows
            if not self.store.exists(table):
                return False
            there = self.store.open(table)
            of_run = self.store.of_run(there, row.run_id)
            return RUN_ID in there.schema.names and self.work.first(of_run, [RUN_ID]) is not None
        return self.store.last_writer(self.tables.table) == row.run_id

    # --- what was done --------------------------------------------------------------------------

    def find(self, run_id: str | None = None) -> RunRow:
        """A run by its id, or the last one of this configuration that has a log."""
        patches = earlier.patches_of(self.config.recorded())
        return earlier.with_a_log(self.ledger, patches, self.digest, run_id)

    def pair_of(self, row: RunRow) -> ReconciledPair:
        """The model of a run, from ledger and patches."""
        return earlier.pair_of(self.store, self.tables.patches, row)

    # --- telling --------------------------------------------------------------------------------

    def _patch(self, patch: Patch) -> None:
        self._steps = patch.step + 1
        self.listener.patch(patch)

    def _round(self, first: Patch, totals: Totals | None) -> None:
        metrics = None
        if totals is not None:
            metrics = Metrics(totals, self.reconciler.losses, self._binary)
            self._seen.append(Point(self._steps, len(self._seen), totals))
        self.listener.round(first, metrics)

    def _all_seen(self, log: PatchLog) -> list[Point] | None:
        """The points of the fitting rows, if all were taken: rounds only, each measured."""
        rounds_only = all(patch.round is not None for patch in log)
        return self._seen if rounds_only and len(self._seen) == 1 + log.rounds else None

    @contextmanager
    def _phase(self, name: str, rows: int | None = None) -> Iterator[None]:
        self.listener.phase(name, rows)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.listener.done()
            self._timings[name] = self._timings.get(name, 0.0) + time.perf_counter() - start

    def _spent(self) -> dict[str, str]:
        """What the run took so far, for the ledger."""
        seconds = {name: round(seconds, 3) for name, seconds in self._timings.items()}
        counters = self.work.counters.to_json()
        found = {"counters": json.dumps(counters), "timings": json.dumps(seconds)}
        return found if self._measured is None else found | {"measured": self._measured}


def _in_words(err: BaseException) -> str:
    """Why a run failed, for the ledger."""
    if isinstance(err, KeyboardInterrupt):
        return signals.in_words(err)
    return str(err) if isinstance(err, RedcalError) else f"{type(err).__name__}: {err}"


@contextmanager
def _noted(listener: Listener) -> Iterator[None]:
    """Warnings of ours become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        listener.note(str(warning.message))

"""Jobs: one configuration, its tables, what can be checked of it, and its finished runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any

import pyarrow as pa

from redcal_spark.backends.backend import Backend, Scan, check_rows
from redcal_spark.backends.delta_types import unstorable
from redcal_spark.backends.inputs import columns_read, open_input, pinned, split_of
from redcal_spark.backends.store import Table
from redcal_spark.backends.target import RUN_ID, target_of
from redcal_spark.certificate.certify import DELTA
from redcal_spark.config.schema import Config
from redcal_spark.config.tables import sibling
from redcal_spark.core.columns import Columns, Layout, plan
from redcal_spark.core.fixed_point import exact
from redcal_spark.core.folds import check_id
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import Problem, checked
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.core.splits import Split, check_split
from redcal_spark.errors import InputError, RunError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.ledger import Ledger, RunRow, config_digest
from redcal_spark.runs.listener import Listener
from redcal_spark.runs.tables import pair_of
from redcal_spark.settings import TUNE_ROWS, of_a_job


class Job:
    """One configuration, and where its tables and its computing are.

    opened: a table in place of the input, and its columns.
    """

    def __init__(
        self,
        config: Config,
        work: Backend,
        listener: Listener | None = None,
        opened: tuple[Table, Columns] | None = None,
    ):
        self.config = config
        self.work = work
        self.store = store = work.store
        self.listener = listener or Listener()
        self.tables = config.output.tables
        self.ledger = Ledger(store, self.tables.runs, config.hidden)
        self.split = split_of(config.input)
        self.skip = config.input.on_bad_rows == "skip"
        self.lease = timedelta(seconds=config.engine.lease)
        self._instead = opened

    def reading(self, table: Table, columns: Columns) -> Job:
        """The same job on another table: one that its input was, or what is left of it."""
        return Job(self.config, self.work, self.listener, (table, columns))

    def as_of(self, identity: Any) -> Job:
        """The same job on its input in the versions that a run read."""
        return self.reading(*open_input(self.store, pinned(self.config.input, identity)))

    # --- what is there --------------------------------------------------------------------------

    @cached_property
    def _opened(self) -> tuple[Table, Columns]:
        return self._instead or open_input(self.store, self.config.input)

    @property
    def input(self) -> Table:
        return self._opened[0]

    @cached_property
    def problem(self) -> Problem:
        """What the configuration asks of its input."""
        given, reading = self.config.reconcile, self.config.input
        losses = {
            name: {"costs": loss.costs, "actions": loss.actions}
            for name, loss in self.config.losses.items()
        }
        with _noted(self.listener), of_a_job():
            problem = Problem(
                Parameters(**given.model_dump(exclude={"guard", "delta", "tune_rows"})),
                LossFamily.of(losses),
                self._opened[1],
                reading.on_bad_rows,
                missing_model=reading.missing_model,
                tune_rows=given.tune_rows,
            )
            return checked(problem)

    @property
    def delta(self) -> Fraction:
        """With what probability any statement about holdout rows may be false."""
        return exact(self.config.reconcile.delta)

    @cached_property
    def digest(self) -> str:
        """Of the configuration, with variables resolved and defaults filled in."""
        tree = self.config.model_dump(mode="json", exclude={"storage_options"})
        output = tree["output"] | self.tables._asdict()
        del output["report"]  # the rows are the same, whoever reads of them
        del output["writer"]  # nor whoever writes them
        del output["mlflow"]  # nor who is told
        # as before there were such keys
        known = {"normalise": False, "tie": "off", "columns": None, "rows": "all"}
        for key, usual in known.items():
            if output[key] == usual:
                del output[key]
        if tree["input"]["weight"] is None:
            del tree["input"]["weight"], tree["input"]["weight_unit"]
        if tree["input"]["segments"] is None:
            del tree["input"]["segments"]
        for key, default in (("models", None), ("missing_model", "error")):
            if tree["input"][key] == default:
                del tree["input"][key]
        if self.delta == DELTA:  # as it was before there was a choice
            del tree["reconcile"]["delta"]
        if self.config.reconcile.eta != "auto" or self.config.reconcile.tune_rows == TUNE_ROWS:
            del tree["reconcile"]["tune_rows"]
        return config_digest(tree | {"output": output})

    # --- before computing -----------------------------------------------------------------------

    def check_input(self, *, labels: bool = True, problem: Problem | None = None) -> Layout:
        """What can be seen of the input before computing: tables, columns, types."""
        with _noted(self.listener):
            table, problem = self.input, problem or self.problem
            if self.split is not None and labels:
                check_split(self.split, table.schema, table.name)
            there = set(table.schema.names)
            wanted = columns_read(problem.columns, self.split)
            present = [name for name in wanted if name in there]
            first = self.work.first(table, present)
            if first is None:
                raise InputError(f"{table.name} has no rows")
            known = problem.n_classes
            self.work.check_reading(table, present)
            if problem.parameters.tunes and labels:
                check_id(table.schema, problem.columns.id, table.name)
            return plan(table.schema, problem.columns, table.name, known, first, labels)

    def check(self, *, ids: bool = False, rows: bool = True, labels: bool = True) -> Layout:
        """Everything that can be seen before computing: the input, and where results would go.

        rows: they will be written. labels: they will be needed.
        """
        layout = self.check_input(labels=labels)
        self.check_targets(rows=rows)
        if rows:
            target = target_of(self.config)
            names = target.names(self.problem.columns, self.problem.losses)
            names.check(self.input.schema.names, self.skip, self.input.name)
            check_rows(self.work, self.input, target, self.problem, layout)
        if ids:
            if self.config.input.id is None:
                raise UsageError("check --ids: input.id is not set")
            problems = self.work.id_problems(self.input, self.config.input.id)
            if problems:
                raise InputError("\n".join(problems))
        return layout

    def check_targets(self, *, rows: bool) -> None:
        """Refuse tables that cannot be written; rows: and columns of the input that cannot."""
        problems = [
            problem
            for key, name in self.tables._asdict().items()
            if (problem := self.store.check_target(name, f"output.{key}")) is not None
        ]
        if rows:
            schema, carried = self.input.schema, self.config.output.columns
            kept = [field for field in schema if carried is None or field.name in carried]
            unfit = unstorable(pa.schema(kept))
            problems += [f"{self.input.name}: {problem}" for problem in unfit]
        if problems:
            raise UsageError("\n".join(problems))

    # --- the one scan ---------------------------------------------------------------------------

    def scan(self, problem: Problem | None = None) -> Scan:
        """The one scan of the input: validated, counted, active rows kept."""
        problem = problem or self.problem
        identity = self.input.identity()
        with self.blaming_changes(identity):
            scan = self.scan_table(self.input, problem)
        self.check_unchanged(identity)
        for doubt in problem.doubts(scan.gathered):
            self.listener.note(doubt)
        return scan

    def scan_table(self, table: Table, problem: Problem, split: Split | None = None) -> Scan:
        """A scan of a table that has the columns which the problem names.

        split: in place of the configuration's.
        """
        with self.listener.during("scan", table.count()), _noted(self.listener):
            return self.work.scan(table, problem, split or self.split, self.listener.advance)

    def check_unchanged(self, identity: Any) -> None:
        """The input must still be what it was when a run began."""
        if self.input.identity() != identity:
            raise RunError(
                f"{self.input.name} changed during the run, so the run is void: start it again"
            )

    @contextmanager
    def blaming_changes(self, identity: Any) -> Iterator[None]:
        """If the input cannot be used and changed meanwhile, that is the reason."""
        try:
            yield
        except InputError:
            self.check_unchanged(identity)
            raise

    # --- finished runs --------------------------------------------------------------------------

    def finished(self, mark: str, apply: bool) -> RunRow | None:
        """A finished run with this fingerprint whose tables, and rows if any, are still there."""
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
        if self.config.output.mode != "append":
            return self.store.last_writer(table) == row.run_id
        if self.store.written(table, row.commit) is not None:
            return True
        # a table forgets its history after a while, but not its rows
        if not self.store.exists(table):
            return False
        there = self.store.open(table)
        of_run = self.store.of_run(there, row.run_id)
        return RUN_ID in there.schema.names and self.work.first(of_run, [RUN_ID]) is not None

    def find(self, run_id: str | None = None) -> RunRow:
        """A run by its id, the `latest` of all, or the last of this configuration that has a log.

        Other targets may share the ledger: the table of patches is the one that has the logs.
        """
        patches = patches_of(self.config.recorded())
        rows = all_rows = [
            row
            for row in self.ledger.rows()
            if row.model is not None and patches_of(json.loads(row.config)) == patches
        ]
        if run_id is not None and run_id != "latest":
            rows = [row for row in rows if row.run_id == run_id]
            if not rows:
                raise UsageError(f"no run {run_id!r} with a log in {self.ledger.table}")
        elif run_id is None:
            rows = [row for row in rows if row.config_digest == self.digest]
        if not rows:
            raise UsageError(
                f"no finished run of this configuration in {self.ledger.table}; start one with: "
                "redcal fit -c FILE; a model of another target is taken by redcal export there and "
                "--model FILE here"
            )
        if run_id is None:
            self._note_later(all_rows[all_rows.index(rows[-1]) + 1 :])
        return rows[-1]

    def _note_later(self, rows: list[RunRow]) -> None:
        """Say so if another configuration, as by `--set`, has written to the target since."""
        table = self.tables.table
        wrote = [row.run_id for row in rows if table in json.loads(row.outputs or "{}")]
        if wrote:
            self.listener.note(
                f"{table} was written later by run {wrote[-1]}, with other settings; "
                f"--run {wrote[-1]} shows that one"
            )

    def pair_of(self, row: RunRow) -> ReconciledPair:
        """The model of a run, from ledger and patches."""
        return pair_of(self.store, self.tables.patches, row)

    def roles_of(self, fitted: RunRow | None, identity: Any) -> Roles:
        """What the rows of an input were to a run that was fitted; unknown, if it read others.

        fitted: None, if nobody knows which run the model is of.
        """
        if fitted is None or not self._fitted_on(fitted, identity):
            return UNKNOWN
        return Roles(self.check_input(), self.split)

    def _fitted_on(self, row: RunRow, identity: Any) -> bool:
        """Whether a run was fitted on these very rows, read and split as the configuration says.

        A variable may stand for another value by now; the digest knows, as it is of the values.
        """
        if json.loads(row.inputs) != identity:
            return False
        if row.config_digest == self.digest:
            return True
        ours, theirs = (
            {key: value for key, value in tree["input"].items() if key != "version"}
            for tree in (self.config.recorded(), json.loads(row.config))
        )
        return ours == theirs and "${" not in json.dumps(ours)


def patches_of(recorded: dict[str, Any]) -> str:
    """The table of patches in a configuration as it was written."""
    output = recorded["output"]
    return str(output.get("patches") or sibling(output["table"], "patches"))


@contextmanager
def _noted(listener: Listener) -> Iterator[None]:
    """Warnings of ours become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        listener.note(str(warning.message))

"""A run made once more, in memory: everything that it must have written, from its input."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import Any

from redcal_spark.backends.inputs import open_input, pinned
from redcal_spark.backends.store import Table
from redcal_spark.certificate.patch_checks import recheck
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.columns import Columns
from redcal_spark.core.history import Point
from redcal_spark.core.roles import Roles
from redcal_spark.core.scan import ScanResult
from redcal_spark.errors import InputError, JoinWarning, RedcalError, RunError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.verdict import verdict
from redcal_spark.runs.accounts import counted, found
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow, fingerprint
from redcal_spark.runs.outcome import Listener, Outcome


@dataclass(frozen=True)
class Source:
    """The rows that a run read.

    table: its input as it was; or what is left of it in the rows that were written. why: its input
    is gone, and how.
    """

    table: Table
    identity: Any
    why: str | None = None


@dataclass(frozen=True)
class Redone:
    """A fit made again. whole: before the guard looked at it. pair: what was kept of it.

    rechecked: contradictions between log and rows; None: the rows are too many to look at.
    """

    whole: ReconciledPair
    pair: ReconciledPair
    histories: dict[str, list[Point]]
    gathered: ScanResult
    rechecked: list[str] | None
    roles: Roles

    @property
    def counts(self) -> dict[str, int]:
        return counted(self.gathered, self.pair)

    def ledger(self, row: RunRow) -> dict[str, Any]:
        """The cells of the ledger that follow from the input."""
        outcome = Outcome(row, self.pair, self.histories)
        return {"status": self.pair.status, **found(outcome, self.gathered)}


def job_of(job: Job, row: RunRow) -> Job:
    """The job that made a run: this one, or one of the configuration that the ledger recorded."""
    other = None if row.config_digest == job.digest else recorded_job(job, row)
    if other is not None and other.digest == row.config_digest:
        return other
    return Job(job.config, job.work, Listener())


def recorded_job(job: Job, row: RunRow) -> Job | None:
    """The job of the configuration in the ledger, if it is one that can be used here."""
    tree = plain(row.config)
    if not isinstance(tree, dict):
        return None
    try:
        config = config_from_tree(tree, name=f"the configuration of run {row.run_id}")
    except RedcalError:
        return None
    return Job(config, job.work, Listener())


def source_of(job: Job, row: RunRow) -> Source | str:
    """The input of a run as it was, which the job reads from now on; or why there is none.

    If the ledger's own word of it was changed, the fingerprint tells whether today's is the one.
    """
    then = plain(row.inputs)
    why = "the ledger does not say what it was"
    for given in ("then", "now"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JoinWarning)  # told by the run itself
                chosen = pinned(job.config.input, then) if given == "then" else job.config.input
                table, columns = open_input(job.store, chosen)
                identity = table.identity()
        except (InputError, RunError) as err:
            why = str(err)
            continue
        except (LookupError, TypeError, ValueError, AttributeError):  # no identity of ours
            continue
        mark = fingerprint(row.config_digest, identity, row.command)
        if identity == then or mark == row.fingerprint:
            job.read_instead(table, columns)
            return Source(table, identity)
        why = f"{table.name} is no longer what it was"
    return why


def columns_of(job: Job, row: RunRow) -> Columns:
    """What is where in the rows of a run, by its model; by the configuration if it has none."""
    found = (plain(row.model) or {}).get("columns")
    given = job.config.input
    names: list[Any] = []
    for model in (1, 2):
        told = found.get(f"model_{model}") if isinstance(found, dict) else None
        own = told or given.score_columns(model)
        plain_list = [own] if isinstance(own, str) else list(own)
        names.append(plain_list[0] if len(plain_list) == 1 else tuple(plain_list))
    return Columns(names[0], names[1], given.label, given.id, given.classes)


def redo(job: Job, table: Table) -> Redone:
    """Fit again, and certify."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JoinWarning)
        scanned = job.scanned(table, job.reconciler.problem, tell=False)
    try:
        whole = job.reconciler.fit_gathered(
            scanned.gathered, scanned.layout, engine=scanned.engine(job.reconciler.problem)
        )
        points = scanned.histories(whole, None)
        rows = scanned.rows_at_hand()
        told = None if rows is None else list(recheck(whole, rows))
        guard, delta = job.config.reconcile.guard, job.reconciler.delta
        pair, kept = verdict(whole, points, guard, lambda _: None, delta)
        roles = Roles(scanned.layout, job.split)
        return Redone(whole, pair, kept, scanned.gathered, told, roles)
    finally:
        scanned.close()


def plain(text: str | None) -> Any:
    """JSON of the ledger; None if it is none any more."""
    try:
        return json.loads(text or "null")
    except (TypeError, ValueError, RecursionError):
        return None

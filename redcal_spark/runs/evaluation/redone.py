"""A run made once more, in memory: everything that it must have written, from its input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from redcal_spark.backends.inputs import columns_for
from redcal_spark.backends.store import Table
from redcal_spark.certificate.patch_checks import recheck
from redcal_spark.config.load import config_from_tree
from redcal_spark.core.columns import Columns
from redcal_spark.core.history import Point
from redcal_spark.core.roles import Roles
from redcal_spark.core.scan import ScanResult
from redcal_spark.errors import InputError, RedcalError, RunError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.guard import counted, verdict
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.tune import tuned
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow, fingerprint
from redcal_spark.runs.outcome import counts_of, ledger_cells, weight_counts


@dataclass(frozen=True)
class Source:
    """The rows that a run read.

    job: what made it, reading its input as it was; or what is left of that in the rows that were
    written. why: its input is gone, and how.
    """

    job: Job
    identity: Any
    why: str | None = None

    @property
    def table(self) -> Table:
        return self.job.input


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
        """All that the metrics count."""
        return counts_of(self.gathered, self.pair) | weight_counts(self.gathered)

    @property
    def ledger(self) -> dict[str, Any]:
        """The cells of the ledger that follow from the input."""
        cells = ledger_cells(self.pair, self.histories)
        return {"status": self.pair.status, **counts_of(self.gathered, self.pair), **cells}


def job_of(job: Job, row: RunRow) -> Job:
    """The job that made a run: this one, or one of the configuration that the ledger recorded."""
    other = None if row.config_digest == job.digest else recorded_job(job, row)
    if other is not None and other.digest == row.config_digest:
        return other
    return Job(job.config, job.work)


def recorded_job(job: Job, row: RunRow) -> Job | None:
    """The job of the configuration in the ledger, if it is one that can be used here."""
    tree = plain(row.config)
    if not isinstance(tree, dict):
        return None
    try:
        config = config_from_tree(tree, name=f"the configuration of run {row.run_id}")
    except RedcalError:
        return None
    return Job(config, job.work)


def source_of(job: Job, row: RunRow) -> Source | str:
    """The input of a run as it was; or why there is none.

    If the ledger's own word of it was changed, the fingerprint tells whether today's is the one.
    """
    then = plain(row.inputs)
    why = "the ledger does not say what it was"
    for given in ("then", "now"):
        try:
            source = job.as_of(then) if given == "then" else Job(job.config, job.work)
            identity = source.input.identity()
        except (InputError, RunError) as err:
            why = str(err)
            continue
        except (LookupError, TypeError, ValueError, AttributeError):  # no identity of ours
            continue
        mark = fingerprint(row.config_digest, identity, row.command)
        if identity == then or mark == row.fingerprint:
            return Source(source, identity)
        why = f"{source.input.name} is no longer what it was"
    return why


def columns_of(job: Job, row: RunRow) -> Columns:
    """What is where in the rows of a run, by its model; by the configuration if it has none."""
    recorded = (plain(row.model) or {}).get("columns")
    given = job.config.input
    known = recorded if isinstance(recorded, dict) else {}
    models = known.get("models") or [known.get(f"model_{i}") for i in (1, 2)]
    names: list[Any] = []
    for model in range(1, given.n_models + 1):
        own = models[model - 1] if model <= len(models) else None
        own = own or given.score_columns(model)
        plain_list = [own] if isinstance(own, str) else list(own)
        names.append(plain_list[0] if len(plain_list) == 1 else tuple(plain_list))
    return columns_for(given, tuple(names))


def redo(job: Job) -> Redone:
    """Fit again, and certify."""
    scan = job.scan_table(job.input, job.problem)
    try:
        whole = fit_scanned(tuned(job.problem, scan), scan)
        points = scan.histories(whole, None)
        rows = scan.rows_at_hand()
        rechecked = None if rows is None else list(recheck(whole, rows))
        guard, delta = job.config.reconcile.guard, job.delta
        pair, kept = verdict(whole, points, guard, lambda _: None, delta)
        kept = counted(scan, pair, kept)
        roles = Roles(scan.layout, job.split)
        return Redone(whole, pair, kept, scan.gathered, rechecked, roles)
    finally:
        scan.close()


def plain(text: str | None) -> Any:
    """JSON of the ledger; None if it is none any more."""
    try:
        return json.loads(text or "null")
    except (TypeError, ValueError, RecursionError):
        return None

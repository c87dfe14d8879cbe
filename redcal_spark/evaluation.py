"""The evaluation: everything measured anew from the rows that were written, and certified."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass, replace

from redcal_spark.certificate import Certificate, certify
from redcal_spark.columns import Columns, ScoreColumns
from redcal_spark.errors import UsageError
from redcal_spark.ledger import RunRow
from redcal_spark.metrics import Metrics, Totals
from redcal_spark.output import OutputNames
from redcal_spark.recheck import recheck
from redcal_spark.runs import Job
from redcal_spark.store.base import Table
from redcal_spark.work import Scanned


@dataclass(frozen=True)
class Evaluation:
    """Before and after, per split; and what the rows say of the run that wrote them.

    certificate: every check once more, on the rows as they were written. None: the run that is
    told by `row` was fitted on other rows than the table has, or no run is known.
    """

    metrics: dict[str, tuple[Metrics, Metrics]]
    row: RunRow | None = None
    certificate: Certificate | None = None


def evaluate(job: Job) -> Evaluation:
    """Measure the written rows, by the scores that they came with and by the reconciled ones."""
    written = _written(job)
    before, losses = job.reconciler.columns, job.reconciler.losses
    names = OutputNames(before, losses, job.config.output.suffix)
    after = replace(
        before,
        model_1=_same_form(before.model_1, names.of_model(1)),
        model_2=_same_form(before.model_2, names.of_model(2)),
    )
    reconciled = _scan(job, written, after, tell=False)
    reconciled.close()
    totals = {name: part.totals for name, part in reconciled.gathered.parts.items()}
    given = _scan(job, written, before)
    try:
        metrics = {
            name: (
                Metrics(part.totals, losses, given.layout.binary),
                Metrics(totals[name], losses, given.layout.binary),
            )
            for name, part in given.gathered.parts.items()
        }
        row = _writer(job)
        if row is None or row.fit_rows != given.gathered.fit.rows:
            return Evaluation(metrics, row)
        return Evaluation(metrics, row, _certificate(job, row, given, totals))
    finally:
        given.close()


def _written(job: Job) -> Table:
    """The rows to measure: of an appended table those of the last run."""
    if not job.store.exists(job.tables.table):
        raise UsageError(
            f"nothing to evaluate: no table {job.tables.table} yet; write it with: "
            "redcal run -c FILE"
        )
    written = job.store.open(job.tables.table)
    if job.config.output.mode != "append":
        return written
    rows = [row for row in job.ledger.rows() if job.tables.table in json.loads(row.outputs or "{}")]
    if not rows:
        raise UsageError(f"no finished run in {job.tables.runs} wrote {written.name}")
    return job.store.of_run(written, rows[-1].run_id)


def _writer(job: Job) -> RunRow | None:
    """The run whose log made the rows: the one that wrote them, or that was applied last."""
    fitted = [row for row in job.ledger.rows() if row.model is not None]
    last = job.store.last_writer(job.tables.table)
    own = [row for row in fitted if row.run_id == last]
    ours = [row for row in fitted if row.config_digest == job.digest]
    return next(reversed(own or ours), None)


def _scan(job: Job, table: Table, columns: Columns, tell: bool = True) -> Scanned:
    reader = copy(job.reconciler)
    reader.columns = columns
    return job.scanned(table, reader, tell=tell)


def _certificate(job: Job, row: RunRow, given: Scanned, totals: dict[str, Totals]) -> Certificate:
    """From a replay of the log on the rows' first scores, and from their last ones."""
    pair = job.pair_of(row)
    rows = given.rows_at_hand()
    points = given.histories(pair, None)
    return certify(
        pair,
        points["fit"],
        points.get("judge", ()),
        replayed=totals["fit"],
        judge_replayed=totals.get("judge"),
        rechecked=None if rows is None else recheck(pair, rows),
        delta=job.reconciler.delta,
        candidates=1 if pair.certificate is None else pair.certificate.candidates,
    )


def _same_form(source: ScoreColumns, names: list[str]) -> ScoreColumns:
    return names[0] if isinstance(source, str) else tuple(names)

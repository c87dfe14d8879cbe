"""Runs that died: whether anybody needs them still, and what finishes them."""

from __future__ import annotations

from redcal_spark.runs.claim import is_dead
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow

DIED = "its process died"


def same_run(job: Job, row: RunRow) -> RunRow | None:
    """A finished run that did what this one would do, if its tables still stand."""
    if row.command == "stream":  # all streams of a checkpoint have one fingerprint
        return None
    return job.finished(row.fingerprint, row.command != "fit")


def overtaking(job: Job, row: RunRow) -> RunRow | None:
    """The newer run whose rows the target has: those of this one would replace them."""
    if row.command not in ("run", "apply") or job.config.output.mode == "append":
        return None
    last = job.store.last_writer(job.tables.table)
    wrote = [each for each in job.ledger.rows() if each.run_id == last]
    return wrote[-1] if wrote and wrote[-1].started_at > row.started_at else None


def is_needless(job: Job, row: RunRow) -> bool:
    """Whether a run died and nothing would be missing without it."""
    if not is_dead(row, job.lease):
        return False
    return same_run(job, row) is not None or overtaking(job, row) is not None


def way_out(job: Job, row: RunRow) -> str:
    """What is to be done about a dead run."""
    if (done := same_run(job, row)) is not None:
        return f"run {done.run_id} did the same; nothing is to be done"
    if (newer := overtaking(job, row)) is not None:
        table = job.tables.table
        return f"a newer run, {newer.run_id}, has written {table}; nothing is to be done"
    again = "the same command continues it"
    if row.command == "apply" and job.config.output.mode != "append":
        return "the same command does it again"
    if row.command not in ("run", "fit"):
        return again
    return f"while the input is the same, {again}, else redcal resume --run {row.run_id}"


def finishing(row: RunRow) -> str:
    """What finishes a dead run, in a few words."""
    if row.command in ("run", "fit"):
        return f"redcal resume --run {row.run_id} finishes it"
    return "the same command finishes it"


def put_away(job: Job, row: RunRow, why: str) -> bool:
    """Mark a dead run as failed, unless someone has taken it up meanwhile. Whether it was."""
    return job.ledger.replace(row.ended("failed", error=why, previous_claim=row.claim))

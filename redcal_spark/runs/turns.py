"""Turns: runs that write one target, one after another, where its log may lose a commit.

Spark's Delta commits to S3 without a condition: of two writers at the same time one may undo what
the other has committed, and neither learns of it. A claim on the target, in a small table beside
it that only conditional commits change, keeps our own runs apart, whichever ledgers they use.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redcal_spark.config.addresses import canonical
from redcal_spark.config.tables import sibling
from redcal_spark.errors import RedcalError
from redcal_spark.runs.claim import Claim, HeldByAnother, take
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import Ledger, RunRow, digest

PAUSE = 1.0  # seconds between looks at whether the other one is done


@contextmanager
def in_turn(job: Job) -> Iterator[None]:
    """While this lasts no other run of ours writes the target; waits for one that does."""
    target = job.tables.table
    if not job.store.loses_commits(target):
        yield
        return
    claim = _taken(job, Ledger(job.store, sibling(target, "turns"), job.config.hidden))
    try:
        with claim:
            yield
    finally:
        with suppress(RedcalError):  # who cannot say that it is over is found to be gone
            claim.withdraw()


def _taken(job: Job, turns: Ledger) -> Claim:
    mark = digest({"target": canonical(job.tables.table)})
    waiting = False
    while True:
        fresh = RunRow.new(fingerprint=mark, config_digest=job.digest, command="write")
        taken = take(turns, fresh, job.lease)
        if not isinstance(taken, HeldByAnother):
            return taken
        if not waiting:
            job.listener.note(
                f"{job.tables.table} is being written by {taken.row.holder}; waiting for its turn"
            )
        waiting = True
        time.sleep(min(PAUSE, job.lease.total_seconds() / 4))

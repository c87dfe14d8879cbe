"""Claims: one process at a time works on a run, and the run of a dead one is taken over.

A claim is a row of the ledger with status `running`, a token and a heartbeat. It is made by a MERGE
that inserts only where no run with this fingerprint is running, and every later change is a MERGE
that matches the token: a process that was taken for dead finds that its token is no longer there,
and stops before it writes.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redcal_spark.backends.processes import start_of
from redcal_spark.errors import RedcalError, RunError
from redcal_spark.runs.ledger import Ledger, RunRow
from redcal_spark.runs.signals import in_words

log = logging.getLogger(__name__)

TRIES = 20  # of a claim that lost a race

_at_work: set[str] = set()  # the tokens of this process's own claims


@dataclass(frozen=True)
class HeldByAnother:
    """Another process works on the run."""

    row: RunRow

    def __str__(self) -> str:
        row = self.row
        return f"run {row.run_id} is already in progress: held by {row.holder}, {row.last_heard}"


def take(
    ledger: Ledger, fresh: RunRow, lease: timedelta, force: bool = False
) -> Claim | HeldByAnother:
    """Claim a run: a new one, or the unfinished one with the same fingerprint.

    force: a new one in any case, unless someone is at work.
    """
    for _ in range(TRIES):
        rows = ledger.rows()
        known = [r for r in rows if r.fingerprint == fresh.fingerprint and r.pruned_at is None]
        running = [row for row in known if row.status == "running"]
        for row in running:
            if is_held(row, lease):
                return HeldByAnother(row)
        unfinished = running or [row for row in known[-1:] if row.status == "failed"]
        if force:
            for row in running:
                ledger.replace(row.ended("failed", error="abandoned", previous_claim=row.claim))
            unfinished = []
        if unfinished:
            old = unfinished[-1]
            row = _held(replace(old, status="running", finished_at=None, error=None), old.claim)
            if _put_down(ledger, row, ledger.replace):
                return Claim(ledger, row, lease, resumed=old)
        else:
            row = _held(_after(fresh, rows), None)
            if _put_down(ledger, row, ledger.insert):
                return Claim(ledger, row, lease)
        time.sleep(0.05)
    raise RunError(
        f"{ledger.table}: commit conflict: too many processes claim a run at once; try again"
    )


def _put_down(ledger: Ledger, row: RunRow, put: Callable[[RunRow], bool]) -> bool:
    """Write a claim. If a signal comes meanwhile it may be there."""
    try:
        return put(row)
    except KeyboardInterrupt as err:
        Claim(ledger, row, timedelta()).interrupted(err)
        raise


def _after(fresh: RunRow, rows: list[RunRow]) -> RunRow:
    """The newest run is the last of the ledger, also when the clock was set back since another."""
    if not rows or rows[-1].started_at < fresh.started_at:
        return fresh
    return replace(fresh, started_at=rows[-1].started_at + timedelta(microseconds=1))


def is_held(row: RunRow, lease: timedelta) -> bool:
    """Whether someone works on a running run: heard of within the lease, and not seen dead here."""
    if row.heartbeat is None or datetime.now(UTC) - row.heartbeat > lease:
        return False
    host, _, process = (row.holder or "").partition(" process ")
    if host != socket.gethostname():
        return True
    pid, _, started = process.partition(" of ")
    if not pid.isdigit() or start_of(int(pid)) != started:
        return False
    # a process that could not write how its run ended still knows that it did
    return int(pid) != os.getpid() or row.claim in _at_work


def is_dead(row: RunRow, lease: timedelta) -> bool:
    """Whether a run is written down as running, though nobody works on it."""
    return row.status == "running" and not is_held(row, lease)


def _held(row: RunRow, previous: str | None) -> RunRow:
    pid, token = os.getpid(), secrets.token_hex(8)
    _at_work.add(token)
    return replace(
        row,
        holder=f"{socket.gethostname()} process {pid} of {start_of(pid)}",
        heartbeat=datetime.now(UTC),
        claim=token,
        previous_claim=previous,
    )


class Claim:
    """A run that this process works on. As a context, its heart beats.

    resumed: the row of the run as it was found, if it is not new.
    """

    def __init__(
        self, ledger: Ledger, row: RunRow, lease: timedelta, resumed: RunRow | None = None
    ):
        self.row = row
        self.resumed = resumed
        self._ledger = ledger
        self._lease = lease
        self._heard = time.monotonic()  # when the ledger last heard of us
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="redcal-heartbeat", daemon=True)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        _at_work.discard(str(self.row.claim))

    def check(self) -> None:
        """Before a write: the run must still be ours. Nobody takes it over within the lease.

        Two clocks are asked: one may be set back, the other stands still while a machine sleeps.
        """
        with self._lock:
            assert self.row.heartbeat is not None
            passed = datetime.now(UTC) - self.row.heartbeat
            silent = timedelta(seconds=time.monotonic() - self._heard)
            if passed < timedelta(0) or max(passed, silent) > self._lease / 2:
                self.update()

    def update(self, **changes: Any) -> RunRow:
        """Change the run's row, if it is still ours."""
        return self._put(lambda row: replace(row, **changes))

    def end(self, status: str, **changes: Any) -> RunRow:
        self._stopped.set()
        row = self._put(lambda row: row.ended(status, **changes))
        _at_work.discard(str(row.claim))
        return row

    def interrupted(self, err: KeyboardInterrupt) -> None:
        """A signal came before the work began: nobody else would say so."""
        with suppress(Exception):  # Spark may have ended, too; the row then is that of a dead run
            self.end("failed", error=in_words(err))

    def write_to(self, ledger: Ledger) -> None:
        """The same ledger by another way."""
        self._ledger = ledger

    def withdraw(self) -> None:
        """The run need not be made: leave no trace of it."""
        self._ledger.withdraw(self.row)
        _at_work.discard(str(self.row.claim))

    def _put(self, change: Callable[[RunRow], RunRow]) -> RunRow:
        with self._lock:
            row = change(
                replace(self.row, heartbeat=datetime.now(UTC), previous_claim=self.row.claim)
            )
            if not self._ledger.replace(row):
                raise RunError(
                    f"run {self.row.run_id}: lease expired: another process took it over after "
                    f"{self._lease.total_seconds():g} s without a heartbeat (engine.lease)"
                )
            self.row, self._heard = row, time.monotonic()
            return row

    def _beat(self) -> None:
        while not self._stopped.wait(self._lease.total_seconds() / 4):
            try:
                self._put(lambda row: row)
            except RedcalError as err:  # the next write will tell, if it is for good
                log.warning("heartbeat of run %s: %s", self.row.run_id, err)

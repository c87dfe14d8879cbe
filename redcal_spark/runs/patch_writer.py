"""Patches of a run are written as they are found, so that another process can go on.

A few seconds' work is lost at most when a run dies. A resumed run replays what is there and finds
the rest, patch by patch the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace

from redcal_spark.backends.store import Store
from redcal_spark.core.patches import Patch, PatchLog
from redcal_spark.core.tuned import Tuned
from redcal_spark.errors import RunError
from redcal_spark.runs.claim import Claim
from redcal_spark.runs.tables import PATCHES, log_of, patches_table

EVERY = 2.0  # seconds between writes, at least
SHARE = 5  # of a run's time, writing takes one such part at most
TUNED = "tuned"  # key of what `eta: auto` chose
FILES = 20  # small files that a run may leave


class Progress:
    """The patches of a claimed run, in the table and on their way there.

    Beside the patches a resumed run must know how many calibrations had ended on a patch of zero:
    they leave no trace in the log. The number goes into the ledger before the patches go into
    their table, with the number before, so that whichever of them are there, theirs is known. The
    last patches come without: the ledger's end follows. If it does not, they are found again, and
    must be those that are there.
    """

    def __init__(self, store: Store, table: str, claim: Claim, models: int):
        self._store = store
        self._models = models
        self._table = table
        self._claim = claim
        self._patches: list[Patch] = []
        self._there: list[Patch] = []  # in the table, when the run was taken over
        self.zero_calibrations = 0  # when the last patch was found
        self.tuned: Tuned | None = None  # with `eta: auto`
        if claim.resumed is not None:
            self._read(claim.resumed.progress)
        self._saved = len(self._patches), self.zero_calibrations
        self._waiting: list[Patch] = []
        self._writes = 0
        self._due = time.monotonic() + EVERY

    @property
    def log(self) -> PatchLog:
        """All that were found so far, written or not."""
        return PatchLog(self._patches)

    def _read(self, known: str | None) -> None:
        recorded = json.loads(known or "{}")
        if (tuned := recorded.pop(TUNED, None)) is not None:
            self.tuned = Tuned.from_json(tuned)
        table = self._store.read(self._table, {"run_id": self._claim.row.run_id})
        self._there = [] if table is None else list(log_of(table, self._models))
        zero = {int(k): int(v) for k, v in recorded.items()} or {0: 0}
        number = min(len(self._there), max(zero))
        if self._there and number not in zero:
            raise self._distrusted(f"the ledger records {sorted(zero)}")
        self._patches = self._there[:number]
        self.zero_calibrations = zero.get(number, 0)

    def _distrusted(self, why: str) -> RunError:
        return RunError(
            f"run {self._claim.row.run_id} cannot be resumed: {self._table} has "
            f"{len(self._there)} of its patches, {why}; run again with --force"
        )

    def choose(self, tuned: Tuned) -> None:
        """eta was chosen: who goes on with the run need not do it again."""
        self.tuned = tuned
        self._record({})

    def _record(self, zero: Mapping[int, int]) -> None:
        tuned = {} if self.tuned is None else {TUNED: self.tuned.to_json()}
        self._claim.update(progress=json.dumps({**zero, **tuned}))

    def patch(self, patch: Patch, zero_calibrations: int) -> None:
        """A patch was found, after so many calibrations that ended on zero."""
        number = len(self._patches)
        self._patches.append(patch)
        self.zero_calibrations = zero_calibrations
        if number < len(self._there):
            if self._there[number] != patch:
                raise self._distrusted(f"but number {number} is not what its input gives")
            self._saved = number + 1, zero_calibrations
            return
        if not self._waiting:  # a scan may have taken longer than that
            self._due = max(self._due, time.monotonic() + EVERY)
        self._waiting.append(patch)
        if time.monotonic() >= self._due:
            self.save()

    def save(self, *, last: bool = False) -> int:
        """Write what is waiting; returns the version of the table that has it all.

        last: the end of the run follows, which says all that the ledger must know.
        """
        start = time.monotonic()
        (before, zero_before), now = self._saved, self._saved[0] + len(self._waiting)
        if self._waiting and not last:  # also tells whether the run is still ours
            self._record({before: zero_before, now: self.zero_calibrations})
        else:
            self._claim.check()
        row = self._claim.row
        batches = patches_table(row.run_id, PatchLog(self._waiting)).to_batches()
        commit = replace(row.commit, phase=now, again=self._claim.resumed is not None)
        version = self._store.write(self._table, PATCHES, batches, "append", commit)
        self._saved, self._waiting = (now, self.zero_calibrations), []
        self._writes += 1
        self._due = time.monotonic() + max(EVERY, SHARE * (time.monotonic() - start))
        return version

    def finish(self) -> int:
        """Write the last; small files are put together if there are many. Returns the version."""
        if len(self._patches) < len(self._there):
            raise self._distrusted(f"but its input gives {len(self._patches)}")
        version = self.save(last=True)
        if self._writes > FILES:
            self._store.compact(self._table, replace(self._claim.row.commit, phase=-1))
        return version

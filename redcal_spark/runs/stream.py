"""Streams: a fitted pair applied to rows as they arrive, with claim and ledger as any run."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redcal_spark.backends.backend import Stream
from redcal_spark.errors import RedcalError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.claim import Claim
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import digest
from redcal_spark.runs.outcome import Outcome

log = logging.getLogger(__name__)

RECORD = 60.0  # seconds between two notes in the ledger of how far a stream is


class StreamJob(Job):
    """A job that can also follow its input."""

    def stream(
        self,
        pair: ReconciledPair,
        called: str,
        stop: threading.Event,
        *,
        every: float | None = None,
        switch: bool = False,
        wait: bool = False,
    ) -> Outcome:
        """Write the rows that came since the last time, each once.

        called: what people call the model. every: keep looking, so many seconds apart, until
        `stop`. switch: a checkpoint of another model goes on with this one.
        """
        if problems := self._target_problems():
            raise UsageError("\n".join(problems))
        # by the oldest form: a checkpoint of an earlier release is of the same model
        stream = self.work.stream(self.config, pair, (digest(pair.to_json(1)), called))
        if stream.other_model is not None and not switch:
            raise UsageError(stream.other_model)
        mark = digest({"checkpoint": stream.checkpoint})  # one at a time works on it
        self._check_rows_stand(mark, stream)
        counted = {"patches": len(pair.log), "rounds": pair.log.rounds}
        fresh = self._new_row(mark, "stream", stream.identity, **counted)
        claim = self._claimed(fresh, True, wait, True)
        if isinstance(claim, Outcome):
            return claim
        told, counters = _Progress(self, claim, stream), self.work.counters
        with self._working(claim):
            with self._phase("apply"), counters.timed("apply") as made:
                self._written[self.tables.table] = stream.begin(claim.row.commit, switch)
                self._settle_dead(mark, claim, stream)
                try:
                    stream.run(claim.row.commit, every, stop, told)
                except BaseException:
                    with suppress(RedcalError):  # the first one is what must be mended
                        claim.update(**told.so_far()[1])
                    raise
                version, done = told.so_far()
                made.rows = counters.rows_scanned
            self._written = {} if version is None else {self.tables.table: version}
            if version is not None:
                self._write_metrics(
                    claim, replace(pair, certificate=None), {"rows": done["rows"]}, {}
                )
            outputs = json.dumps(self._written)
            row = claim.end(pair.status, outputs=outputs, **self._spent(), **done)
        return Outcome(row, pair)

    def _check_rows_stand(self, mark: str, stream: Stream) -> None:
        """Rows that were written through a checkpoint must still be where it says."""
        table = self.tables.table
        there = self.store.exists(table)
        for row in self.ledger.rows(fingerprint=mark):
            # a stream that was killed could not say; the target can, if there is one
            rows = stream.written(row.run_id)[1] if row.rows is None and there else row.rows
            if rows == 0:
                continue
            run = f"run {row.run_id} {'wrote' if rows else 'may have written'} rows"
            if stream.owner is None and self.config.output.mode == "append" and there:
                raise UsageError(
                    f"output.checkpoint: {stream.checkpoint} is missing, and {run} with it. "
                    f"Without its offset all rows would be appended to {table} again. Restore it, "
                    "or name another output.table"
                )
            if stream.owner is not None and not there:
                raise UsageError(
                    f"output.table: {table} is missing, and {run} to it. The offset in "
                    f"{stream.checkpoint} counts them as done: name another output.checkpoint to "
                    "start again"
                )

    def _settle_dead(self, mark: str, claim: Claim, stream: Stream) -> None:
        """Put down what streams before this one wrote that were killed and could not say so.

        Their rows stay, and readers follow the ledger's rows with outputs.
        """
        for row in self.ledger.rows(fingerprint=mark):
            if row.rows is None and row.run_id != claim.row.run_id:
                version, rows = stream.written(row.run_id)
                outputs = json.dumps({self.tables.table: version}) if rows else None
                found = replace(row, rows=rows, outputs=outputs, previous_claim=row.claim)
                self.ledger.replace(found)


class _Progress:
    """Hears how far a stream is, and notes it in the ledger."""

    def __init__(self, job: Job, claim: Claim, stream: Stream):
        self._job, self._claim, self._stream = job, claim, stream
        self._source = stream.identity
        self._noted = self._source, time.monotonic()

    def __call__(self, version: int | None, rows: int) -> None:
        self._claim.check()
        if version is not None:
            self._source = self._source | {"version": version}
        if rows:
            counters = self._job.work.counters
            counters.jobs += 1
            counters.rows_scanned += rows
            self._job.listener.advance(rows)
            log.info("a batch of %s rows, up to version %s", f"{rows:,}", self._source["version"])
        known, when = self._noted
        if self._source != known and time.monotonic() - when > RECORD:
            self._claim.update(inputs=json.dumps(self._source))
            self._noted = self._source, time.monotonic()

    def so_far(self) -> tuple[int | None, dict[str, Any]]:
        """The last version of the target, if there is one, and what goes into the ledger."""
        version, rows = self._stream.written(self._claim.row.run_id)
        return version, {"rows": rows, "inputs": json.dumps(self._source)}

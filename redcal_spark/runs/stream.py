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
from redcal_spark.model.model_file import replay_version
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import digest
from redcal_spark.runs.outcome import Outcome
from redcal_spark.runs.run import Run
from redcal_spark.runs.start import claimed, new_row
from redcal_spark.runs.turns import in_turn

log = logging.getLogger(__name__)

RECORD = 60.0  # seconds between two notes in the ledger of how far a stream is


def stream(
    job: Job,
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
    job.check_targets(rows=False)
    # by the oldest form: a checkpoint of an earlier release is of the same model
    known_by = digest(pair.to_json(replay_version(pair)))
    stream = job.work.stream(job.config, pair, (known_by, called))
    if stream.other_model is not None and not switch:
        raise UsageError(stream.other_model)
    mark = digest({"checkpoint": stream.checkpoint})  # one at a time works on it
    _check_rows_stand(job, mark, stream)
    run = claimed(job, new_row(job, mark, "stream", stream.identity, pair), wait=wait)
    if isinstance(run, Outcome):
        return run
    table, commit, counters = job.tables.table, run.claim.row.commit, job.work.counters
    progress = _Progress(run, stream)
    with run.working():
        with run.phase("apply"), counters.timed("apply") as made, in_turn(job):
            run.written[table] = stream.begin(commit, switch)
            _settle_dead(job, mark, run.claim.row.run_id, stream)
            try:
                stream.run(commit, every, stop, progress)
            except BaseException:
                with suppress(RedcalError):  # the first one is what must be mended
                    run.claim.update(**progress.so_far()[1])
                raise
            version, cells = progress.so_far()
            made.rows = counters.rows_scanned
        run.written = {} if version is None else {table: version}
        if version is not None:
            run.write_metrics(pair, {"rows": cells["rows"]})
        return Outcome(run.end(pair.status, **cells), pair)


def _check_rows_stand(job: Job, mark: str, stream: Stream) -> None:
    """Rows that were written through a checkpoint must still be where it says."""
    table = job.tables.table
    there = job.store.exists(table)
    for row in job.ledger.rows(fingerprint=mark):
        # a stream that was killed could not say; the target can, if there is one
        rows = stream.written(row.run_id)[1] if row.rows is None and there else row.rows
        if rows == 0:
            continue
        run = f"run {row.run_id} {'wrote' if rows else 'may have written'} rows"
        if stream.owner is None and job.config.output.mode == "append" and there:
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


def _settle_dead(job: Job, mark: str, run_id: str, stream: Stream) -> None:
    """Put down what streams before this one wrote that were killed and could not say so.

    Their rows stay, and readers follow the ledger's rows with outputs.
    """
    for row in job.ledger.rows(fingerprint=mark):
        if row.rows is None and row.run_id != run_id:
            version, rows = stream.written(row.run_id)
            outputs = json.dumps({job.tables.table: version}) if rows else None
            job.ledger.replace(replace(row, rows=rows, outputs=outputs, previous_claim=row.claim))


class _Progress:
    """Hears how far a stream is, and notes it in the ledger."""

    def __init__(self, run: Run, stream: Stream):
        self._job, self._claim, self._stream = run.job, run.claim, stream
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

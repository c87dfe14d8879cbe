"""How a run starts: whether it is needed, who works on it, and what it goes on with."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from redcal_spark.errors import InputError, RunError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.claim import Claim, is_dead, take
from redcal_spark.runs.dead import overtaking, put_away, same_run
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import UNFINISHED, Ledger, RunRow, fingerprint
from redcal_spark.runs.other_settings import of_another_fit
from redcal_spark.runs.outcome import Outcome
from redcal_spark.runs.run import Run


def run(job: Job, *, force: bool = False, wait: bool = False) -> Outcome:
    """Fit, apply, certify: the main job."""
    return _fit(job, "run", force, wait)


def fit(job: Job, *, force: bool = False, wait: bool = False) -> Outcome:
    """Fit and certify; the log is written, the rows are not."""
    return _fit(job, "fit", force, wait)


def resume(job: Job, run_id: str | None = None, *, wait: bool = False) -> Outcome:
    """Go on with a run that did not finish, on the input that it started with."""
    row = _to_resume(job, run_id)
    if isinstance(row, Outcome):
        return row
    if run_id is None and row.command == "run":
        _check_not_overtaken(job, row)
    job.listener.note(f"resuming run {row.run_id} ({row.command}), {row.status}")
    then = json.loads(row.inputs)
    job = job.as_of(then)
    if (identity := job.input.identity()) != then:
        raise RunError(
            f"run {row.run_id} cannot be resumed: {job.input.name} has changed since "
            f"({_changes(then, identity)}); start a new one with: redcal run"
        )
    return _fit(job, row.command, False, wait, row.fingerprint)


def apply(
    job: Job,
    pair: ReconciledPair,
    *,
    fitted: RunRow | None = None,
    force: bool = False,
    wait: bool = False,
) -> Outcome:
    """Write the input's rows, labelled or not, with a fitted pair's scores and actions.

    fitted: the run that the pair is of, if it is known. force: append rows that were appended.
    """
    _check_fits(job, pair)
    job.check(labels=False)
    if fitted is not None and (other := of_another_fit(job.config, fitted)) is not None:
        job.listener.note(other)
    identity = job.input.identity()
    roles = job.roles_of(fitted, identity)  # a file that changes from here on voids the run
    mark = fingerprint(job.digest, identity, "apply", pair.to_json())
    row = new_row(job, mark, "apply", identity, pair)
    if fitted is not None:
        row = replace(row, progress=json.dumps({"model_of": fitted.run_id}))
    # rows that replace others may be written again, and are where someone changed them
    run = claimed(job, row, force=force or job.config.output.mode != "append", wait=wait)
    if isinstance(run, Outcome):
        return run
    with run.working():
        return run.apply(pair, roles)


def _check_fits(job: Job, pair: ReconciledPair) -> None:
    """A model knows its columns by their names, whatever the configuration calls them."""
    ours, theirs = job.problem.columns.n_models, pair.columns.n_models
    if ours != theirs:
        raise UsageError(f"the model is of {theirs} models, the configuration of {ours}")
    there = set(job.input.schema.names)
    missing = [name for name in pair.columns.names(label=False) if name not in there]
    if missing:
        raise InputError(
            f"{job.input.name} lacks columns of the model: {', '.join(map(repr, missing))}. It was "
            f"fitted on columns of these names: give them to the new ones, in the files themselves"
        )


def claimed(
    job: Job, fresh: RunRow, *, force: bool = True, wait: bool = False, apply: bool = True
) -> Run | Outcome:
    """The run, to work on; or what there is to say if someone did or does it."""
    waiting = False
    while True:
        if not force and (done := job.finished(fresh.fingerprint, apply)) is not None:
            return Outcome(done, unchanged=True)
        new_ledger = not job.ledger.exists
        taken = take(job.ledger, fresh, job.lease, force)
        if isinstance(taken, Claim):
            try:
                if force or job.finished(fresh.fingerprint, apply) is None:
                    return Run(job, taken, new_ledger)
            except KeyboardInterrupt as err:
                taken.interrupted(err)
                raise
            taken.withdraw()  # someone finished it between our look and our claim
            continue
        if not wait:
            return Outcome(taken.row, held=str(taken))
        if not waiting:
            job.listener.note(f"{taken}; waiting for it")
        waiting = True
        time.sleep(min(2.0, job.lease.total_seconds() / 4))


def _fit(job: Job, command: str, force: bool, wait: bool, mark: str | None = None) -> Outcome:
    apply = command == "run"
    job.check(rows=apply)
    identity = job.input.identity()
    mark = mark or fingerprint(job.digest, identity, command)
    row = new_row(job, mark, command, identity)
    run = claimed(job, row, force=force, wait=wait, apply=apply)
    if isinstance(run, Outcome):
        return run
    with run.working():
        return run.fit()


def new_row(
    job: Job, mark: str, command: str, identity: Any, pair: ReconciledPair | None = None
) -> RunRow:
    """The row of a run that starts now. pair: the model that it applies."""
    return RunRow.new(
        fingerprint=mark,
        config_digest=job.digest,
        command=command,
        config=json.dumps(job.config.recorded()),
        inputs=json.dumps(identity),
        patches=None if pair is None else len(pair.log),
        rounds=None if pair is None else pair.log.rounds,
    )


def _check_not_overtaken(job: Job, row: RunRow) -> None:
    """A run that died may be older than what the target has by now."""
    if (newer := overtaking(job, row)) is not None:
        raise UsageError(
            f"run {row.run_id} is older than run {newer.run_id}, whose rows {job.tables.table} "
            f"has: they would be replaced. To do so: redcal resume --run {row.run_id}"
        )


def _to_resume(job: Job, run_id: str | None) -> RunRow | Outcome:
    """The newest unfinished run that is needed, or the one of this id.

    A forced run that died is not: what it would do was done before. It must not hide others.
    """
    nothing: Outcome | None = None
    for row in reversed(_unfinished(job.ledger, job.digest, run_id)):
        done = same_run(job, row)
        if done is None or (row.status == "running" and not is_dead(row, job.lease)):
            return row
        if run_id is None and row.status == "failed":
            continue
        why = f"not needed: run {done.run_id} did the same"
        text = f"run {row.run_id} is {why}"
        if row.status == "running" and put_away(job, row, why):
            text += "; it is marked as failed"
        job.listener.note(text)
        nothing = nothing or Outcome(done, unchanged=True)
    if nothing is None:
        raise UsageError(f"nothing to resume: no unfinished run in {job.ledger.table}")
    return nothing


def _unfinished(ledger: Ledger, digest: str, run_id: str | None) -> list[RunRow]:
    """Runs to go on with: one by its id, or those of a configuration, the newest last."""
    rows = [row for row in ledger.rows() if row.command in ("run", "fit")]
    if run_id is not None:
        rows = [row for row in rows if row.run_id == run_id]
        if not rows:
            raise UsageError(f"no run {run_id!r} in {ledger.table}")
        rows[-1].check_kept()
        if rows[-1].status not in UNFINISHED:
            raise UsageError(f"run {run_id} is finished: {rows[-1].status}")
    rows = [row for row in rows if row.status in UNFINISHED and row.pruned_at is None]
    if rows and all(row.config_digest != digest for row in rows):
        raise UsageError(
            f"run {rows[-1].run_id} was started with another configuration; resume it with that one"
        )
    rows = [row for row in rows if row.config_digest == digest]
    if not rows:
        raise UsageError(f"nothing to resume: no unfinished run in {ledger.table}")
    return rows


def _changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two identities of an input, in words."""
    changed = {key: new.get(key) for key, was in old.items() if was != new.get(key)}
    texts = [f"{key} was {old[key]}, is {now}" for key, now in changed.items()]
    return "; ".join(texts)[:300] or "it has other parts"

"""Which model a run applied: the ledger does not say, but its fingerprint does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redcal_spark.core.roles import Roles
from redcal_spark.errors import RedcalError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.evaluation.redone import plain
from redcal_spark.runs.job import Job, patches_of
from redcal_spark.runs.ledger import RunRow, fingerprint


@dataclass(frozen=True)
class Applied:
    """The model of a run that applied one, and the run that fitted it, where they are known.

    sure: the fingerprint says so; else it is only like it.
    """

    pair: ReconciledPair | None = None
    row: RunRow | None = None
    sure: bool = False


def applied_by(job: Job, row: RunRow, given: ReconciledPair | None) -> Applied:
    """given: from a file, perhaps the one."""
    identity = plain(row.inputs)
    if given is not None and _is(row, identity, given):
        return Applied(given, None, True)
    known = list(_candidates(job, row))
    for fitted, pair in known:
        if _is(row, identity, pair):
            return Applied(pair, fitted, True)
    if row.command == "stream" and given is not None and _like(row, given):
        return Applied(given)
    for fitted, pair in known:
        if pair is not None and _like(row, pair) and fitted.started_at <= row.started_at:
            return Applied(pair if row.command == "stream" else None, fitted)
    return Applied()


def roles_applied(job: Job, row: RunRow) -> Roles:
    """What the rows were to the fit of the model, as far as the run that applied it could know."""
    progress = plain(row.progress)
    run_id = progress.get("model_of") if isinstance(progress, dict) else None
    fitted = next((one for one in job.ledger.rows() if one.run_id == run_id), None)
    return job.roles_of(fitted, plain(row.inputs))


def _candidates(job: Job, row: RunRow) -> Iterator[tuple[RunRow, ReconciledPair | None]]:
    """Fitted runs of this ledger, the newest first."""
    patches = patches_of(job.config.recorded())
    for fitted in reversed(job.ledger.rows()):
        config: Any = plain(fitted.config)
        if fitted.model is None or fitted.pruned_at is not None or not isinstance(config, dict):
            continue
        try:
            if patches_of(config) == patches:
                yield fitted, job.pair_of(fitted)
        except (RedcalError, LookupError, TypeError, ValueError):
            yield fitted, None  # something of it was changed


def _is(row: RunRow, identity: Any, pair: ReconciledPair | None) -> bool:
    if pair is None or row.command != "apply":
        return False
    return fingerprint(row.config_digest, identity, "apply", pair.to_json()) == row.fingerprint


def _like(row: RunRow, pair: ReconciledPair) -> bool:
    return (len(pair.log), pair.log.rounds) == (row.patches, row.rounds)

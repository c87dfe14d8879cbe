"""Earlier runs: which one is meant, whether it can be used, and what it found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from redcal_spark.backends.store import Store
from redcal_spark.certificate.certify import Certificate
from redcal_spark.config.schema import Config
from redcal_spark.config.section import sibling
from redcal_spark.core.patches import PatchLog
from redcal_spark.errors import RunError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.ledger import UNFINISHED, Ledger, RunRow
from redcal_spark.runs.tables import log_of


def with_a_log(ledger: Ledger, patches: str, digest: str, run_id: str | None) -> RunRow:
    """A run by its id, the `latest` of all, or the last one of a configuration.

    patches: the table that has the logs, as written; other targets may share the ledger.
    """
    rows = [
        row
        for row in ledger.rows()
        if row.model is not None and patches_of(json.loads(row.config)) == patches
    ]
    if run_id is not None and run_id != "latest":
        rows = [row for row in rows if row.run_id == run_id]
        if not rows:
            raise UsageError(f"no run {run_id!r} with a log in {ledger.table}")
        return rows[-1]
    if run_id is None:
        rows = [row for row in rows if row.config_digest == digest]
    if not rows:
        raise UsageError(
            f"no finished run of this configuration in {ledger.table}; "
            "start one with: redcal fit -c FILE"
        )
    return rows[-1]


def patches_of(recorded: dict[str, Any]) -> str:
    """The table of patches in a configuration as it was written."""
    output = recorded["output"]
    return str(output.get("patches") or sibling(output["table"], "patches"))


def unfinished(ledger: Ledger, digest: str, run_id: str | None) -> RunRow:
    """A run to go on with: by its id, or the last one of a configuration."""
    rows = [row for row in ledger.rows() if row.command in ("run", "fit")]
    if run_id is not None:
        rows = [row for row in rows if row.run_id == run_id]
        if not rows:
            raise UsageError(f"no run {run_id!r} in {ledger.table}")
        check_kept(rows[-1])
        if rows[-1].status not in UNFINISHED:
            raise UsageError(f"run {run_id} is finished: {rows[-1].status}")
    rows = [row for row in rows if row.status in UNFINISHED and row.pruned_at is None]
    if rows and all(row.config_digest != digest for row in rows):
        raise UsageError(
            f"run {rows[-1].run_id} is of another configuration than this one; it cannot be "
            "resumed with it"
        )
    rows = [row for row in rows if row.config_digest == digest]
    if not rows:
        raise UsageError(f"nothing to resume: no unfinished run in {ledger.table}")
    return rows[-1]


def pair_of(store: Store, patches: str, row: RunRow) -> ReconciledPair:
    """The model of a run, from ledger and patches."""
    check_kept(row)
    assert row.model is not None
    table = store.read(patches, {"run_id": row.run_id})
    log = PatchLog() if table is None else log_of(table)
    if row.status == "cut":  # the run made more than the guard kept
        log = PatchLog(log[: row.patches])
    if len(log) != (row.patches or 0):
        raise RunError(f"{patches} has {len(log)} of the {row.patches} patches of run {row.run_id}")
    pair = ReconciledPair.from_json(json.loads(row.model) | {"log": log.to_json()})
    if row.certificate is None:
        return pair
    return replace(pair, certificate=Certificate.from_json(json.loads(row.certificate)))


def fitted_on(row: RunRow, config: Config, digest: str, identity: dict[str, Any]) -> bool:
    """Whether a run was fitted on these very rows, read and split as a configuration says.

    A variable may stand for another value by now; the digest knows, as it is of the values.
    """
    if json.loads(row.inputs) != identity:
        return False
    if row.config_digest == digest:
        return True
    ours, theirs = (
        {key: value for key, value in tree["input"].items() if key != "version"}
        for tree in (config.recorded(), json.loads(row.config))
    )
    return ours == theirs and "${" not in json.dumps(ours)


def check_kept(row: RunRow) -> None:
    """Refuse a run that was pruned."""
    if row.pruned_at is not None:
        raise UsageError(
            f"run {row.run_id} was pruned at {row.pruned_at:%Y-%m-%d %H:%M:%S} UTC: its patches, "
            "history and metrics are gone (redcal runs --prune)"
        )


def changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two identities of an input, in words."""
    changed = {key: new.get(key) for key, was in old.items() if was != new.get(key)}
    texts = [f"{key} was {old[key]}, is {now}" for key, now in changed.items()]
    return "; ".join(texts)[:300] or "it has other parts"

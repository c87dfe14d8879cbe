"""Housekeeping: runs of the past leave the ledger's row behind, and nothing else.

The rows of old runs in patches, history and metrics are removed. Files that someone asked for with
`-o` are theirs, and stay. The target is never touched: its own versions are kept and dropped by
Delta.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redcal_spark.backends.store import Commit
from redcal_spark.core.number_text import plural
from redcal_spark.errors import UsageError
from redcal_spark.runs.claim import is_dead
from redcal_spark.runs.dead import DIED, finishing, is_needless
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow

UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@dataclass
class Pruned:
    """What was removed, or would be.

    kept: runs that were old enough and stay, and why. rows: by table. files: written of these runs
    with `-o`; they stay.
    """

    dry: bool
    runs: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry,
            "pruned": self.runs,
            "kept": self.kept,
            "rows": self.rows,
            "files_that_stay": self.files,
        }


def age(text: str) -> timedelta:
    """How long ago, as `30d`; also weeks and hours."""
    match = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 30d, 12h or 8w, got {text!r}")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def prune(job: Job, keep: int | None, older_than: timedelta | None, dry: bool) -> Pruned:
    """Remove what old runs of this target left: all but the newest `keep`, or those this old."""
    if (keep is None) == (older_than is None):
        raise UsageError("select runs with --keep N or --older-than 30d, one of them")
    target = job.config.recorded()["output"]["table"]
    ours = [row for row in job.ledger.rows() if _target(row.config) == target]
    left = [row for row in ours if row.pruned_at is None]
    if older_than is None:
        assert keep is not None
        old = left[: max(0, len(left) - keep)]
    else:
        before = datetime.now(UTC) - older_than
        old = [row for row in left if (row.finished_at or row.started_at) < before]
    pruned = Pruned(dry)
    needed = _needed(job, left)
    for row in old:
        if row.run_id in needed:
            pruned.kept[row.run_id] = needed[row.run_id]
        elif dry or _marked(job, row):
            pruned.runs.append(row.run_id)
        else:
            pruned.kept[row.run_id] = "another process is working on it"
    # also of those that an earlier attempt marked and then died
    gone = [row.run_id for row in ours if row.pruned_at is not None] + pruned.runs
    for row in ours:
        if row.run_id in pruned.runs:
            pruned.files += _exports_of(row)
    for name in (job.tables.patches, job.tables.history, job.tables.metrics):
        pruned.rows[name] = (
            _count(job, name, gone)
            if dry
            else job.store.delete(name, "run_id", gone, _commit("prune"))
        )
    return pruned


def _target(config: str) -> str:
    return str(json.loads(config)["output"]["table"])


def _needed(job: Job, rows: list[RunRow]) -> dict[str, str]:
    """Runs that stay whatever their age."""
    table = job.tables.table
    running = [r for r in rows if r.status == "running" and not is_needless(job, r)]
    needed = {
        row.run_id: f"it died; {finishing(row)}" if is_dead(row, job.lease) else "it is running"
        for row in running
    }
    wrote = [row for row in rows if table in json.loads(row.outputs or "{}")]
    fitted = [row for row in rows if row.model is not None]
    for row in fitted[-1:]:
        needed[row.run_id] = "it is the newest model"
    for user in [*wrote[-1:], *running]:
        if user.command in ("apply", "stream"):  # it does not say whose model: keep any like it
            for row in fitted:
                if (row.patches, row.rounds) == (user.patches, user.rounds):
                    needed[row.run_id] = f"{table} may hold scores of its model"
    for run_id in [row.run_id for row in wrote[-1:]] + [job.store.last_writer(table)]:
        if run_id is not None:
            needed[run_id] = f"{table} holds its rows"
    return needed


def _marked(job: Job, row: RunRow) -> bool:
    """Say in the ledger that a run is pruned, unless someone has taken it up meanwhile."""
    if row.status == "running":  # it died, and must not look like one at work
        row = row.ended("failed", error=DIED)
    return job.ledger.replace(replace(row, pruned_at=datetime.now(UTC), previous_claim=row.claim))


def _count(job: Job, name: str, runs: list[str]) -> int:
    table = job.store.read(name)
    there = [] if table is None else table["run_id"].to_pylist()
    return sum(run in set(runs) for run in there)


def _commit(command: str) -> Commit:
    return Commit(f"{command}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", command)


def prune_lines(pruned: Pruned) -> list[str]:
    """For people."""
    did = "would be pruned" if pruned.dry else "pruned"
    runs = plural(len(pruned.runs), "run")
    lines = [f"{runs} {did}{': ' if pruned.runs else ''}{', '.join(pruned.runs)}"]
    lines += [f"  {run_id} kept: {why}" for run_id, why in pruned.kept.items()]
    lines += [f"  {count:,} rows of {name}" for name, count in pruned.rows.items() if count]
    lines += [f"  {name} kept: it was written with -o" for name in pruned.files]
    if any(pruned.rows.values()) and not pruned.dry:
        lines.append("older versions of these tables still hold the rows; VACUUM frees the space")
    return lines


# --- exports --------------------------------------------------------------------------------------


def record_export(job: Job, row: RunRow, path: str) -> None:
    """Remember that a file was made of a run.

    A pipe or a device is none: to read it back would wait for ever.
    """
    if not Path(path).is_file():
        return
    known = json.loads(row.exports or "{}")
    known[str(Path(path).absolute())] = _digest(Path(path))
    job.ledger.replace(replace(row, exports=json.dumps(known), previous_claim=row.claim))


def _exports_of(row: RunRow) -> list[str]:
    """The files of a run that are still what was written."""
    known = json.loads(row.exports or "{}")
    return [name for name, digest in known.items() if _holds(Path(name), digest)]


def _holds(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and _digest(path) == digest
    except OSError:
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- few files ------------------------------------------------------------------------------------


def compact(job: Job) -> dict[str, tuple[int, int]]:
    """Put small files together, of all tables but the target; how many there were, and are."""
    tables = job.tables
    return {
        name: job.store.compact(name, _commit("compact"))
        for name in (tables.patches, tables.history, tables.metrics, tables.runs)
    }

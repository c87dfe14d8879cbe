"""The ledger: one row a run. A row with output versions vouches for whole tables."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from redcal_spark import __version__
from redcal_spark.backends.comments import schema_of
from redcal_spark.backends.store import Commit, Store
from redcal_spark.config.redaction import Redaction
from redcal_spark.errors import RunError, UsageError
from redcal_spark.model.model_file import SCHEMA_VERSION
from redcal_spark.runs import words_of_0_1

RUNS_SCHEMA_VERSION = 4
FINISHED = ("converged", "capped", "stalled", "cut")
UNFINISHED = ("running", "failed")

# Columns that ledgers of 0.1 have not got: null there.
ADDED = ("measured", "digests", "holdout_rows")

# Texts that may hold what `${NAME}` in the configuration stands for; `config` is as written.
JSON_TEXTS = ("inputs", "model", "outputs", "metrics", "certificate", "audits", "exports")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of the ledger; its fields are the columns of the table, which COLUMNS describes."""

    run_id: str
    fingerprint: str
    config_digest: str
    command: str
    status: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished_at: datetime | None = None
    holder: str | None = None
    heartbeat: datetime | None = None
    claim: str | None = None
    previous_claim: str | None = None
    rows: int | None = None
    fit_rows: int | None = None
    holdout_rows: int | None = None
    unlabelled_rows: int | None = None
    bad_rows: int | None = None
    patches: int | None = None
    rounds: int | None = None
    progress: str | None = None
    beta: float | None = None
    config: str = "{}"
    inputs: str = "{}"
    model: str | None = None
    outputs: str | None = None
    metrics: str | None = None
    certificate: str | None = None
    audits: str | None = None
    counters: str | None = None
    timings: str | None = None
    error: str | None = None
    package_version: str = __version__
    exports: str | None = None
    pruned_at: datetime | None = None
    measured: str | None = None
    digests: str | None = None

    @property
    def commit(self) -> Commit:
        return Commit(self.run_id, self.fingerprint)

    @property
    def last_heard(self) -> str:
        if self.heartbeat is None:
            return "no heartbeat yet"
        return f"last heartbeat at {self.heartbeat:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def finished(self) -> bool:
        return self.status in FINISHED and self.outputs is not None and self.pruned_at is None

    def check_kept(self) -> None:
        """Refuse a run that was pruned."""
        if self.pruned_at is not None:
            raise UsageError(
                f"run {self.run_id} was pruned at {self.pruned_at:%Y-%m-%d %H:%M:%S} UTC: its "
                "patches, history and metrics are gone (redcal prune)"
            )

    @classmethod
    def new(cls, **given: Any) -> RunRow:
        """A run that starts now. Ids sort by time, to the second."""
        now = datetime.now(UTC)
        return cls(run_id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", started_at=now, **given)

    def ended(self, status: str, **changes: Any) -> RunRow:
        """The run, over; not before it started, though the clock may have been set back."""
        now = max(datetime.now(UTC), self.started_at)
        return replace(self, status=status, finished_at=now, **changes)


TYPES = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "datetime": pa.timestamp("us", "UTC"),
}
# The words are those of docs/reference/outputs.md.
COLUMNS = {
    "run_id": "begins with the time at which it was called for",
    "fingerprint": "digest of configuration, losses and input versions",
    "config_digest": "digest of the configuration",
    "command": "run, fit, apply or a stream",
    "status": "running, failed, converged, capped, stalled, cut",
    "started_at": "when it began",
    "finished_at": "when it ended; null while it runs",
    "holder": "machine and process that work on it, or did last",
    "heartbeat": "its last sign of life",
    "claim": "its token: a process with another one may not change the row",
    "previous_claim": "the token before: a row with another claim is not replaced",
    "rows": "rows read; of an apply with rows: all, rows written",
    "fit_rows": "fitting rows",
    "holdout_rows": "holdout rows",
    "unlabelled_rows": "rows without a label",
    "bad_rows": "rows that were skipped",
    "patches": "patches of its log",
    "rounds": "rounds",
    "progress": "JSON: what a resumed run must know beside its patches",
    "beta": "the tolerance that auto stood for",
    "config": "JSON, as written: variables are not resolved",
    "inputs": "JSON: Delta versions, or files",
    "model": "JSON: the model without its log",
    "outputs": "JSON: the version of each table; null until all are written",
    "metrics": "JSON: before and after, both splits",
    "certificate": "JSON: every statement, its bound and what was measured",
    "audits": "JSON: per split, the audit before and after",
    "counters": "JSON: jobs, rows scanned, rows written, bytes of scratch, passes",
    "timings": "JSON: seconds per phase",
    "error": "why it failed",
    "package_version": "the version of redcal_spark that wrote it",
    "exports": "JSON: files made of this run, with a digest of each",
    "pruned_at": "when its patches, history and metrics were removed",
    "measured": "JSON: what metrics says of times and counters, which nobody can measure again",
    "digests": "JSON: a digest of every other column of this row, as it was written",
}
SCHEMA = schema_of(
    "The ledger of redcal: one row per run",
    [
        (each.name, TYPES[str(each.type).removesuffix(" | None")], COLUMNS[each.name])
        for each in fields(RunRow)
    ],
)


class Ledger:
    """The runs table of a configuration. What that hides is not in the table, but in its rows."""

    def __init__(self, store: Store, table: str, hidden: Redaction | None = None):
        self._store = store
        self._hidden = hidden or Redaction()
        self.table = table

    @property
    def exists(self) -> bool:
        return self._store.exists(self.table)

    def insert(self, row: RunRow) -> bool:
        """Add a run, unless one with this fingerprint is running. Whether it was added.

        A MERGE, not an append: of two appends from one version both would succeed.
        """
        same = {"fingerprint": "fingerprint", "status": "status"}
        added = self._store.merge(self.table, self._stored(row), same, row.commit, update=False)
        return bool(added or self.rows(run_id=row.run_id))

    def replace(self, row: RunRow) -> bool:
        """Bring a run's row up to date, if its claim is still the one we know. Whether it was."""
        same = {"run_id": "run_id", "claim": "previous_claim"}
        changed = self._store.merge(self.table, self._stored(row), same, row.commit, insert=False)
        if changed == 1:
            return True
        return [stored.claim for stored in self.rows(run_id=row.run_id)] == [row.claim]

    def withdraw(self, row: RunRow) -> None:
        """Remove a run that need not be made."""
        self._store.delete(self.table, "run_id", [row.run_id], row.commit)

    def forget(self, row: RunRow) -> None:
        """Remove a ledger that this run made, if it holds nothing else."""
        if [known.run_id for known in self.rows()] == [row.run_id]:
            self._store.drop(self.table)

    def rows(self, **equal: str) -> list[RunRow]:
        """Runs, oldest first."""
        stored = self._store.read(self.table, equal)
        names = SCHEMA.names
        there = [] if stored is None else [name for name in names if name in stored.column_names]
        missing = [] if stored is None else sorted({*names} - {*there} - {*ADDED})
        if missing:
            raise RunError(
                f"{self.table}: a ledger of another release: it has no column {missing[0]!r}; "
                "name a new one with output.runs"
            )
        runs = (RunRow(**self._read(row)) for row in _of_today(stored, names))
        return sorted(runs, key=lambda row: (row.started_at, row.run_id))

    def _stored(self, row: RunRow) -> pa.Table:
        hide = self._hidden
        new: dict[str, Any] = {
            name: hide.stored_json(text)
            for name in JSON_TEXTS
            if (text := getattr(row, name)) is not None
        }
        # an error may spell a value in its own way, and nobody needs it back
        error = None if row.error is None else hide.text(row.error)
        stored = replace(row, **new, error=error, digests=None)
        sealed = replace(stored, digests=json.dumps(cell_digests(asdict(stored))))
        return pa.Table.from_pylist([vars(sealed)], schema=SCHEMA)

    def as_stored(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The rows as the table has them, variables unresolved; of a run one, if all is well."""
        stored = self._store.read(self.table, {} if run_id is None else {"run_id": run_id})
        return [dict.fromkeys(ADDED) | row for row in _of_today(stored)]

    def _read(self, row: dict[str, Any]) -> dict[str, Any]:
        read = {k: self._hidden.read_json(row[k]) for k in JSON_TEXTS if row.get(k) is not None}
        return row | read


def _of_today(stored: pa.Table | None, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows as stored, in the words of today. names: only these columns, where they are there."""
    rows = [] if stored is None else map(words_of_0_1.ledger_row, stored.to_pylist())
    return [
        row if names is None else {name: row[name] for name in names if name in row} for row in rows
    ]


def cell_digests(row: Mapping[str, Any]) -> dict[str, str]:
    """What every cell of a ledger's row held, so that a change shows and can be named."""
    return {name: digest(_plain(row[name]))[:16] for name in SCHEMA.names if name != "digests"}


def _plain(value: Any) -> Any:
    if hasattr(value, "astimezone"):  # a moment, whatever zone a store reads it in
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return value


def digest(data: Any) -> str:
    """A stable name for plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def config_digest(resolved: Mapping[str, Any]) -> str:
    """Of all that decides the result; which engine computes it does not.

    Mappings are sorted, but the order of the losses breaks ties.
    """
    resolved = words_of_0_1.as_digested(resolved)
    decides = {key: value for key, value in resolved.items() if key != "engine"}
    return digest(decides | {"losses": list(resolved.get("losses", {}).items())})


def fingerprint(config: str, inputs: Mapping[str, Any], command: str, model: Any = None) -> str:
    """The name of a run by what goes into it: the same again has nothing left to do.

    config: its digest. model: where it is given and not fitted.
    """
    return digest(
        {
            "config": config,
            "inputs": inputs,
            "command": command,
            "model": model,
            "schema_versions": [RUNS_SCHEMA_VERSION, SCHEMA_VERSION],
        }
    )

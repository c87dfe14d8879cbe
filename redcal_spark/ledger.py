"""The ledger: one row a run. A row with output versions vouches for whole tables."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from redcal_spark import __version__
from redcal_spark.pair import SCHEMA_VERSION
from redcal_spark.store.base import Commit, Store

RUNS_SCHEMA_VERSION = 1
FINISHED = ("converged", "capped", "stalled", "cut")

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("fingerprint", pa.string()),
        ("config_digest", pa.string()),
        ("command", pa.string()),
        ("status", pa.string()),  # running, failed, or how the algorithm ended
        ("started_at", TIME),
        ("finished_at", TIME),
        ("rows", pa.int64()),
        ("fit_rows", pa.int64()),
        ("judge_rows", pa.int64()),
        ("unlabelled_rows", pa.int64()),
        ("bad_rows", pa.int64()),
        ("patches", pa.int64()),
        ("rounds", pa.int64()),
        ("beta", pa.float64()),
        ("config", pa.string()),  # JSON, as written: variables are not resolved
        ("inputs", pa.string()),  # JSON: Delta versions, or files
        ("model", pa.string()),  # JSON: the model but for its log, which is in `patches`
        ("outputs", pa.string()),  # JSON: table -> version; null until all of them are written
        ("metrics", pa.string()),  # JSON: before and after, both splits
        ("timings", pa.string()),  # JSON: seconds per phase
        ("error", pa.string()),
        ("package_version", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of the ledger."""

    run_id: str
    fingerprint: str
    config_digest: str
    command: str
    status: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished_at: datetime | None = None
    rows: int | None = None
    fit_rows: int | None = None
    judge_rows: int | None = None
    unlabelled_rows: int | None = None
    bad_rows: int | None = None
    patches: int | None = None
    rounds: int | None = None
    beta: float | None = None
    config: str = "{}"
    inputs: str = "{}"
    model: str | None = None
    outputs: str | None = None
    metrics: str | None = None
    timings: str | None = None
    error: str | None = None
    package_version: str = __version__

    @property
    def commit(self) -> Commit:
        return Commit(self.run_id, self.fingerprint)

    @property
    def finished(self) -> bool:
        return self.status in FINISHED and self.outputs is not None

    def to_table(self) -> pa.Table:
        return pa.Table.from_pylist(
            [{f.name: getattr(self, f.name) for f in fields(self)}], schema=SCHEMA
        )

    @classmethod
    def new(cls, **given: Any) -> RunRow:
        """A run that starts now. Ids sort by time, to the second."""
        now = datetime.now(UTC)
        return cls(run_id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", started_at=now, **given)

    def ended(self, status: str, **changes: Any) -> RunRow:
        return replace(self, status=status, finished_at=datetime.now(UTC), **changes)


class Ledger:
    """The runs table of a configuration."""

    def __init__(self, store: Store, table: str):
        self._store = store
        self.table = table

    def put(self, row: RunRow) -> None:
        """Insert a run, or bring its row up to date."""
        self._store.upsert(self.table, row.to_table(), "run_id", row.commit)

    def rows(self, **equal: str) -> list[RunRow]:
        """Runs, oldest first."""
        found = self._store.read(self.table, equal)
        names = [f.name for f in fields(RunRow)]
        known = [] if found is None else found.select(names).to_pylist()
        runs = (RunRow(**row) for row in known)
        return sorted(runs, key=lambda row: (row.started_at, row.run_id))


def digest(data: Any) -> str:
    """A stable name for plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def config_digest(resolved: Mapping[str, Any]) -> str:
    """Of all that decides the result; which engine computes it does not.

    Mappings are sorted, but the order of the losses breaks ties.
    """
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

"""What a run may ask of a store, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import pyarrow as pa

from redcal_spark.errors import InputError

Mode = Literal["overwrite", "append"]


class Table(Protocol):
    """An input as it stood when it was opened."""

    name: str

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, in batches, in an order that does not change."""
        ...

    def count(self) -> int | None:
        """The number of rows, where that is cheap to know."""
        ...

    def identity(self) -> dict[str, Any]:
        """What the rows are: a Delta version, or the files. Taken again, it tells of changes."""
        ...


@dataclass(frozen=True)
class Commit:
    """What a write says of itself in the table's own history.

    phase: numbers the writes of a run to one table, so that a repeat is known as one.
    """

    run_id: str
    fingerprint: str
    phase: int = 0

    def metadata(self) -> dict[str, str]:
        return {"redcal_run_id": self.run_id, "redcal_fingerprint": self.fingerprint}

    @property
    def user_metadata(self) -> str:
        """Under the one key of a commit that both delta-rs and Spark can write and read."""
        return json.dumps(self.metadata())


def run_of(user_metadata: str | None) -> str | None:
    """The run that wrote a commit, if one of ours did."""
    try:
        found = json.loads(user_metadata or "null")
    except ValueError:
        return None
    return found.get("redcal_run_id") if isinstance(found, dict) else None


def version_at(name: str, versions: Iterable[tuple[int, datetime]], time: str) -> int:
    """The newest version that was there at a time; without a zone, in UTC.

    By the times in the log: those of the log's files are changed by a copy.
    """
    asked = datetime.fromisoformat(time)
    if asked.tzinfo is None:
        asked = asked.replace(tzinfo=UTC)
    first = None
    for version, made in sorted(versions, reverse=True):
        first = made
        if made <= asked:
            return version
    told = "" if first is None else f"; its first version is of {first:%Y-%m-%dT%H:%M:%S}Z"
    raise InputError(f"{name}: has no version as old as {time}{told}")


class Store(Protocol):
    """Reads tables of any supported form, writes Delta tables."""

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> Table:
        """An input. `fractions`: CSV columns of fractions, though they may look like integers."""
        ...

    def join(self, main: Any, sides: Any, id: str, policy: Literal["error", "inner"]) -> Table:
        """A table with the scores of others beside its rows, joined on the id."""
        ...

    def check_target(self, name: str, key: str) -> str | None:
        """Why this table could not be written, if that can be seen beforehand."""
        ...

    def check_schema(self, schema: pa.Schema) -> list[str]:
        """Why rows of this schema could not be written."""
        ...

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        """Write one version, whole or not at all; returns its number."""
        ...

    def upsert(self, name: str, rows: pa.Table, key: str, commit: Commit) -> None:
        """Insert rows, or replace those with the same key."""
        ...

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        """All rows (of a small table) whose columns equal the values; None if there is no table."""
        ...

    def last_writer(self, name: str) -> str | None:
        """The run that wrote the newest version, if a run of ours did."""
        ...

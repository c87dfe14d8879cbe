"""What a run may ask of a store, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

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
    """What a write says of itself in the table's own history."""

    run_id: str
    fingerprint: str

    def metadata(self) -> dict[str, str]:
        return {"redcal_run_id": self.run_id, "redcal_fingerprint": self.fingerprint}


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

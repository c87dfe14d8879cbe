"""What a run may ask of a store, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import pyarrow as pa

from redcal_spark.backends.target import Existing, Target
from redcal_spark.core.scan import BatchGroup
from redcal_spark.errors import InputError, RunError

Mode = Literal["overwrite", "append"]


class Table(Protocol):
    """An input as it stood when it was opened."""

    name: str

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, in batches, in an order that does not change."""

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        """The same rows in pieces that threads can read at the same time.

        repeated: columns that have few values, and may come as dictionaries of these.
        """

    def count(self) -> int | None:
        """The number of rows, where that is cheap to know."""

    def identity(self) -> dict[str, Any]:
        """What the rows are: a Delta version, or the files. Taken again, it tells of changes."""


@dataclass(frozen=True)
class Commit:
    """What a write says of itself in the table's own history.

    phase: numbers the writes of a run to one table, growing, so that a repeat is known as one.
    again: the run is resumed and may have made this write already: look first.
    """

    run_id: str
    fingerprint: str
    phase: int = 0
    again: bool = False

    def metadata(self) -> dict[str, str | int]:
        run = {"redcal_run_id": self.run_id, "redcal_fingerprint": self.fingerprint}
        return {**run, "redcal_phase": self.phase}

    @property
    def user_metadata(self) -> str:
        """Under the one key of a commit that both delta-rs and Spark can write and read."""
        return json.dumps(self.metadata())

    def wrote(self, user_metadata: str | None) -> bool:
        """Whether an entry of a table's history is of this write."""
        return _written_by(user_metadata) == (self.run_id, self.phase)


# Commits that leave the rows as they are; of other operations nobody can tell.
HOUSEKEEPING = (
    "VACUUM START",
    "VACUUM END",
    "OPTIMIZE",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD FEATURE",
    "UPGRADE PROTOCOL",
    "CLUSTER BY",
    "ADD CONSTRAINT",
    "DROP CONSTRAINT",
    "CHANGE COLUMN",
    "COMPUTE STATISTICS",
)
ENTRY = ("version", "operation", "userMetadata", "operationMetrics")  # of a table's history
RECENT = 100  # versions that are looked at, from the newest back


def writer_of(history: Iterable[Mapping[str, Any]]) -> str | None:
    """The run that the rows are from, by a table's history, newest first; None: not of ours."""
    for entry in history:
        if (run := run_of(entry.get("userMetadata"))) is not None:
            return run
        if entry.get("operation") not in HOUSEKEEPING:
            return None
    return None


def run_of(user_metadata: str | None) -> str | None:
    """The run that wrote a commit, if one of ours did."""
    return _written_by(user_metadata)[0]


def _written_by(user_metadata: str | None) -> tuple[str | None, int | None]:
    try:
        said = json.loads(user_metadata or "null")
    except (TypeError, ValueError):  # others write there what they like
        return None, None
    if not isinstance(said, dict):
        return None, None
    return said.get("redcal_run_id"), said.get("redcal_phase")


def rows_of(metrics: Mapping[str, Any] | None) -> int:
    """How many rows a commit brought, as Spark or delta-rs counted; of a MERGE, those changed."""
    for names in (
        ("numTargetRowsUpdated", "numTargetRowsInserted"),
        ("num_target_rows_updated", "num_target_rows_inserted"),
        ("numOutputRows",),
        ("num_added_rows",),
    ):
        if metrics and names[0] in metrics:
            return sum(int(metrics.get(name, 0)) for name in names)
    return 0


def vacuumed(name: str, version: int, newest: int) -> RunError:
    """For a version that is in the log but whose files are gone."""
    return RunError(
        f"{name}: version {version} can no longer be read: its files are gone, perhaps removed by "
        f"VACUUM. Start on the newest version, {newest}, with: redcal run. To avoid this, keep old "
        "files longer than the longest run (delta.deletedFileRetentionDuration)"
    )


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
    oldest = "" if first is None else f"; its first version is of {first:%Y-%m-%dT%H:%M:%S}Z"
    raise InputError(f"{name}: has no version as old as {time}{oldest}")


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

    def join(self, main: Any, sides: Any, id: str, policy: Literal["error", "inner"]) -> Table:
        """A table with the scores of others beside its rows, joined on the id."""

    def spare(self, name: str) -> Store | None:
        """A store that can write a small table when this one no longer can, if there is one."""

    def check_target(self, name: str, key: str) -> str | None:
        """Why this table could not be written, if that can be seen beforehand."""

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        """Write one version, whole or not at all; returns its number."""

    def existing(self, name: str) -> Existing | None:
        """What a table looks like that rows will be put into; None if there is none."""

    def check_rows(self, target: Target, schema: pa.Schema) -> None:
        """Refuse rows of this schema that the target could not take."""

    def written(
        self, name: str, commit: Commit, among: int | None = None
    ) -> tuple[int, int] | None:
        """The version that this write made and of how many rows, if the table's history has it.

        among: so many of the newest versions are looked at; by default all.
        """

    def of_run(self, table: Any, run_id: str) -> Table:
        """The rows of one run in a table that runs append to."""

    def merge(
        self,
        name: str,
        rows: pa.Table,
        same: Mapping[str, str],
        commit: Commit,
        *,
        insert: bool = True,
        update: bool = True,
    ) -> int:
        """Replace the rows of a small table that match, insert the others; or one of the two.

        Returns how many rows it changed, as far as that is known for certain: 0 may be more.

        same: rows match where these columns of the table equal these columns of the new rows.
        Conflicts with other writers are tried again, with the table as it is then.
        """

    def delete(self, name: str, key: str, values: Sequence[str], commit: Commit) -> int:
        """Remove the rows whose column `key` has one of the values, in one commit; how many?

        Nothing is written where there are none. Older versions still have them.
        """

    def compact(self, name: str, commit: Commit) -> tuple[int, int]:
        """Put small files together; returns how many files there were, and are."""

    def exists(self, name: str) -> bool:
        """Whether there is such a Delta table."""

    def drop(self, name: str) -> None:
        """Remove a table that this process made, with the folders it made for it."""

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        """All rows (of a small table) whose columns equal the values; None if there is no table."""

    def last_writer(self, name: str) -> str | None:
        """The run that wrote the newest version, if a run of ours did."""

    def loses_commits(self, name: str) -> bool:
        """Whether one writer of a table may undo the commit of another, so that runs take turns."""


def written_before(store: Store, target: Target, commit: Commit) -> tuple[int, int] | None:
    """The version and the rows of this write, if it was made already.

    Overwriting twice does no harm, so that only a resumed run looks; to merge or append twice does.
    """
    if not commit.again and target.mode == "overwrite":
        return None
    return store.written(target.table, commit)


def just_written(store: Store, name: str, commit: Commit) -> tuple[int, int]:
    """The version, and of how many rows."""
    done = store.written(name, commit, RECENT)
    if done is None:
        raise RunError(f"{name}: the version just written is not in its history")
    return done

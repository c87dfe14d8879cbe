"""Tables of a few rows without a JVM: looked up, merged into, compacted, dropped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from redcal_spark.backends.delta_protocol import known_log, not_written, unwritable
from redcal_spark.backends.local.commits import commits
from redcal_spark.backends.local.delta_read import DeltaRsTable, quoted
from redcal_spark.backends.local.delta_write import again, made_whole, once
from redcal_spark.backends.local.errors import delta_table, is_delta, unreadable
from redcal_spark.backends.local.folders import make_folder, remove_empty
from redcal_spark.backends.location import Location, failed
from redcal_spark.backends.object_stores import Options
from redcal_spark.backends.store import ENTRY, RECENT, Commit, writer_of
from redcal_spark.config.addresses import scheme_of
from redcal_spark.errors import InputError, RunError


class LocalSmallTables:
    """What a store does with its ledger and with tables that runs write beside the rows."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = dict(options or {})  # of object stores
        self._made: dict[str, list[Path]] = {}  # folders made for tables, innermost first

    def at(self, name: str) -> Location:
        return Location(name, self.options)

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
        if not insert and not self.exists(name):
            return 0
        place = self.at(name)
        made = [] if place.is_address else make_folder(Path(name))

        def merge() -> None:
            if not self.exists(name) and made_whole(place, rows, commit):
                self._made[name] = made
                return
            table = for_writing(place)
            old = {field.name for field in table.schema().fields}
            merging = table.merge(
                rows,
                merge_schema=not {*rows.column_names} <= old,  # a ledger of an earlier release
                predicate=" and ".join(f"target.{t} = source.{s}" for t, s in same.items()),
                source_alias="source",
                target_alias="target",
                commit_properties=once(commit),
            )
            if update:
                merging = merging.when_matched_update_all()
            if insert:
                merging = merging.when_not_matched_insert_all()
            merging.execute()

        try:
            again(name, merge)
        except RunError:
            remove_empty(made)
            raise
        return 0  # who wants to know looks: that takes milliseconds here

    def delete(self, name: str, key: str, values: Sequence[str], commit: Commit) -> int:
        if not values or not self.exists(name):
            return 0
        listed = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
        condition = f"{quoted(key)} in ({listed})"
        wanted, place = pa.array(values, pa.string()), self.at(name)

        def delete() -> int:
            table = for_writing(place)
            there = (batch[key] for batch in DeltaRsTable(place, table).batches([key]))
            count = sum(int(pc.is_in(part, wanted).true_count) for part in there)
            if count:
                table.delete(condition, commit_properties=once(commit))
            return count

        return again(name, delete)

    def compact(self, name: str, commit: Commit) -> tuple[int, int]:
        if not self.exists(name):
            return 0, 0

        place = self.at(name)

        def compact() -> tuple[int, int]:
            table = for_writing(place)
            before = len(table.file_uris())
            table.optimize.compact(commit_properties=once(commit))
            return before, len(delta_table(place).file_uris())

        return again(name, compact)

    def exists(self, name: str) -> bool:
        with answering(name):
            return is_delta(self.at(name))

    def drop(self, name: str) -> None:
        place = self.at(name)
        if place.is_address:
            with answering(name):
                place.remove()
            return
        shutil.rmtree(name, ignore_errors=True)
        remove_empty(self._made.pop(name, []))

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        place = self.at(name)
        table = table_at(place)
        if table is None:
            return None
        try:
            opened = DeltaRsTable(place, table)
            rows = pa.Table.from_batches(opened.batches(), opened.schema)
        except InputError as err:
            raise RunError(str(err)) from err
        for column, value in (equal or {}).items():
            if column not in rows.column_names:
                has = ", ".join(rows.column_names)
                raise RunError(f"{name}: is another kind of table: no column {column!r}, but {has}")
            rows = rows.filter(pc.equal(rows[column], value))
        return rows

    def history(self, name: str, limit: int | None = None) -> list[dict[str, Any]] | None:
        """What commits say of themselves, newest first; None: there is no log that can be read."""
        if not self.exists(name):
            return None
        place = self.at(name)
        try:
            entries = commits(place, limit)
        except (OSError, ValueError) as err:
            if place.is_address:  # it may be there all the same
                raise failed(RunError, f"{name}: cannot be read", err) from err
            return None
        return [{key: entry.get(key) for key in ENTRY} for entry in entries]

    def last_writer(self, name: str) -> str | None:
        entries = self.history(name, RECENT)
        return None if entries is None else writer_of(entries)

    def loses_commits(self, name: str) -> bool:
        """Our own commits are conditional; those of a Spark that writes there, too, may not be."""
        return scheme_of(name) == "s3"


@contextmanager
def answering(name: str) -> Iterator[None]:
    """A store that does not answer says neither that a table is there nor that it is not."""
    try:
        yield
    except (DeltaError, OSError) as err:
        raise failed(RunError, f"{name}: cannot be read", err) from err


def table_at(place: Location) -> DeltaTable | None:
    with unreadable(place.name, RunError, "cannot be read"), known_log(place.name):
        return delta_table(place) if is_delta(place) else None


def for_writing(place: Location) -> DeltaTable:
    """A table that is about to be changed, unless it asks for more than delta-rs can do."""
    table = delta_table(place)
    why = unwritable(table)
    if why is not None:
        raise RunError(not_written(place.name, why))
    return table

"""Tables of a few rows without a JVM: looked up, merged into, compacted, dropped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from redcal_spark.backends.delta_protocol import known_log, not_written, unwritable
from redcal_spark.backends.local.commits import commits
from redcal_spark.backends.local.delta_read import DeltaRsTable, quoted
from redcal_spark.backends.local.delta_write import again, made_whole, once
from redcal_spark.backends.local.errors import is_delta, unreadable
from redcal_spark.backends.local.folders import make_folder, remove_empty
from redcal_spark.backends.store import ENTRY, RECENT, Commit, writer_of
from redcal_spark.errors import InputError, RunError


class LocalSmallTables:
    """What a store does with its ledger and with tables that runs write beside the rows."""

    def __init__(self) -> None:
        self._made: dict[str, list[Path]] = {}  # folders made for tables, innermost first

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
        made = make_folder(Path(name))

        def merge() -> None:
            if not self.exists(name) and made_whole(Path(name), rows, commit):
                self._made[name] = made
                return
            table = for_writing(name)
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
        wanted = pa.array(values, pa.string())

        def delete() -> int:
            table = for_writing(name)
            there = (batch[key] for batch in DeltaRsTable(name, table).batches([key]))
            count = sum(int(pc.is_in(part, wanted).true_count) for part in there)
            if count:
                table.delete(condition, commit_properties=once(commit))
            return count

        return again(name, delete)

    def compact(self, name: str, commit: Commit) -> tuple[int, int]:
        if not self.exists(name):
            return 0, 0

        def compact() -> tuple[int, int]:
            table = for_writing(name)
            before = len(table.file_uris())
            table.optimize.compact(commit_properties=once(commit))
            return before, len(DeltaTable(name).file_uris())

        return again(name, compact)

    def exists(self, name: str) -> bool:
        return is_delta(name)

    def drop(self, name: str) -> None:
        shutil.rmtree(name, ignore_errors=True)
        remove_empty(self._made.pop(name, []))

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        table = table_at(name)
        if table is None:
            return None
        try:
            opened = DeltaRsTable(name, table)
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
        if not is_delta(name):
            return None
        try:
            entries = commits(name, limit)
        except (OSError, ValueError):
            return None
        return [{key: entry.get(key) for key in ENTRY} for entry in entries]

    def last_writer(self, name: str) -> str | None:
        entries = self.history(name, RECENT)
        return None if entries is None else writer_of(entries)


def table_at(name: str) -> DeltaTable | None:
    if not is_delta(name):
        return None
    with unreadable(name, RunError, "cannot be read"), known_log(name):
        return DeltaTable(name)


def for_writing(name: str) -> DeltaTable:
    """A table that is about to be changed, unless it asks for more than delta-rs can do."""
    table = DeltaTable(name)
    why = unwritable(table)
    if why is not None:
        raise RunError(not_written(name, why))
    return table

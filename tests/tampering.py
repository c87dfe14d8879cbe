"""Changes to tables that a run wrote, as someone makes them who is not us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

# What rows of each table are told by.
KEYS = {
    "rows": ("case",),
    "rows_patches": ("step",),
    "rows_history": ("split", "step", "model", "loss"),
    "rows_metrics": ("kind", "name", "number", "split", "stage", "model", "loss"),
    "rows_runs": ("run_id",),
}


@dataclass(frozen=True)
class Tampered:
    """What was done, and how an evaluation must name it. column: None for whole rows."""

    table: str
    problem: str
    row: dict[str, Any]
    column: str | None = None

    def named_in(self, told: Any) -> bool:
        """Whether the JSON of an evaluation says so."""
        findings = [
            finding
            for checked in told["checked"]
            if checked["table"] is not None and checked["table"].endswith(self.table)
            for finding in checked["findings"]
        ]
        return any(
            (one["problem"], one["column"], one["row"]) == (self.problem, self.column, self.row)
            for one in findings
        )


def read(path: str) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()


def write(path: str, table: pa.Table) -> None:
    write_deltalake(path, table, mode="overwrite")


def key(name: str, row: dict[str, Any]) -> dict[str, Any]:
    return {column: row[column] for column in KEYS[name] if row[column] is not None}


def other(value: Any, kind: pa.DataType) -> Any:
    """Another value of the same type; the smallest change that there is, for numbers."""
    if pa.types.is_list(kind):
        return [*value[:-1], other(value[-1], kind.value_type)] if value else [1]
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_integer(kind):
        return 1 if value is None else value + 1
    if pa.types.is_floating(kind):
        return 1.0 if value is None else value * (1 + 2**-50) or 2**-60
    if pa.types.is_decimal(kind):
        return value + Decimal(1)
    if pa.types.is_timestamp(kind):
        return MOMENT if value is None else value + timedelta(microseconds=1)
    assert pa.types.is_string(kind), kind
    return "x" if value is None else json_or_text(value)


def json_or_text(value: str) -> str:
    """One sign is another one: of JSON the first digit, so that it stays JSON."""
    if value[:1] not in "{[":
        return f"{value}x"
    place = next((i for i, sign in enumerate(value) if sign.isdigit()), None)
    if place is None:
        return '{"x": 1}'
    return f"{value[:place]}{(int(value[place]) + 1) % 10}{value[place + 1 :]}"


MOMENT = pa.scalar(0, pa.timestamp("us", "UTC")).as_py()


def change(path: str, name: str, column: str, place: int) -> Tampered:
    """One cell of one row."""
    table = read(path)
    rows = table.to_pylist()
    named = key(name, rows[place])
    rows[place] = rows[place] | {
        column: other(rows[place][column], table.schema.field(column).type)
    }
    write(path, pa.Table.from_pylist(rows, table.schema))
    return Tampered(name, "changed", named, column)


def remove(path: str, name: str, place: int) -> Tampered:
    table = read(path)
    rows = table.to_pylist()
    write(path, pa.Table.from_pylist(rows[:place] + rows[place + 1 :], table.schema))
    return Tampered(name, "missing", key(name, rows[place]))


def double(path: str, name: str, place: int) -> Tampered:
    table = read(path)
    rows = table.to_pylist()
    write(path, pa.Table.from_pylist([*rows, rows[place]], table.schema))
    return Tampered(name, "repeated", key(name, rows[place]))


def every_change(path: str, name: str) -> Iterator[tuple[str, str | None]]:
    """Every way to change a table: its columns, and `remove` and `double`."""
    yield "remove", None
    yield "double", None
    for column in read(path).column_names:
        yield "change", column


def tamper(path: str, name: str, how: str, column: str | None, place: int) -> Tampered:
    if how == "remove":
        return remove(path, name, place)
    if how == "double":
        return double(path, name, place)
    assert column is not None
    return change(path, name, column, place)


def every_column(folder: str, name: str, step: int = 2) -> Iterator[Tampered]:
    """A cell of every column, each in a row of its own; one more row removed, another doubled."""
    columns = read(f"{folder}/{name}").column_names
    for place, column in enumerate(columns):
        yield change(f"{folder}/{name}", name, column, step * place)
    yield remove(f"{folder}/{name}", name, step * len(columns))
    yield double(f"{folder}/{name}", name, step * len(columns))

"""The rows that all shapes hold, as plain Arrow: what every reading of a shape is compared with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = 240
DAY = dt.date(2024, 1, 1)
SOME = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

Change = Callable[[pa.Table], pa.Table]


def base(seed: int = 11) -> pa.Table:
    """Two noisy views of one truth, an outcome, and a segment of two letters."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, ROWS)
    p1, p2 = (1 / (1 + np.exp(-truth - rng.normal(s, 0.9, ROWS))) for s in (0.7, -0.7))
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-truth))).astype(np.int32)
    case = np.arange(ROWS, dtype=np.int64)
    segment = pa.array([None if c % 41 == 0 else "ab"[c % 2] for c in case.tolist()])
    return pa.table({"case": case, "y": y, "p1": p1, "p2": p2, "segment": segment})


def same(rows: pa.Table) -> pa.Table:
    return rows


def where(keep: Callable[[int], bool]) -> Change:
    """Only the rows of some cases."""
    return lambda rows: rows.filter(pa.array([keep(c) for c in rows["case"].to_pylist()]))


def renamed(**names: str) -> Change:
    """old=new"""
    return lambda rows: rows.rename_columns([names.get(name, name) for name in rows.column_names])


def named(names: dict[str, str]) -> Change:
    return renamed(**names)


def cast(**kinds: pa.DataType) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        for name, kind in kinds.items():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, rows[name].cast(kind))
        return rows

    return change


def each(name: str, kind: pa.DataType, value: Callable[[int], Any]) -> Change:
    """One more column, made of the case."""
    return lambda rows: rows.append_column(
        name, pa.array([value(c) for c in rows["case"].to_pylist()], kind)
    )


def changed(name: str, value: Callable[[pa.Table], pa.Array]) -> Change:
    """A column anew, where it stands or at the end."""

    def change(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        if place < 0:
            return rows.append_column(name, value(rows))
        return rows.set_column(place, name, value(rows))

    return change


def then(*changes: Change) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        for one in changes:
            rows = one(rows)
        return rows

    return change


def opposite(name: str) -> Callable[[pa.Table], pa.Array]:
    return lambda rows: pc.subtract(pa.scalar(1, pa.int32()), rows[name])


def known_from(name: str, first: int) -> Callable[[pa.Table], pa.Array]:
    """The column where the case is at least this, else null."""
    return lambda rows: pc.if_else(
        pc.greater_equal(rows["case"], first), rows[name], pa.scalar(None, rows[name].type)
    )


def day(case: int) -> dt.date:
    return DAY + dt.timedelta(days=case % 3)


def moment(case: int) -> dt.datetime:
    return dt.datetime(2024, 3, 31, 1, 30) + dt.timedelta(seconds=case, microseconds=7)


def moment_utc(case: int) -> dt.datetime:
    return moment(case).replace(tzinfo=dt.UTC)


def money(case: int) -> Decimal:
    return Decimal(f"{case}123456789012345678.0123456789")


STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])


def struct(case: int, a: str = "a", b: str = "b") -> dict[str, Any] | None:
    return None if case % 5 == 0 else {a: case, b: f"s{case}"}


def many(case: int) -> list[dict[str, Any]] | None:
    return None if case % 7 == 0 else [{"a": case, "b": f"s{case}"}, {"a": None, "b": ""}]


def pairs(case: int) -> list[tuple[str, int]] | None:
    return None if case % 6 == 0 else [("k", case), ("l", case + 1)]


def numbers(case: int) -> list[float | None] | None:
    each_kind: tuple[list[float | None] | None, ...] = (None, [], [None, 1.5], [float(case)])
    return each_kind[case % 4]


def plus(more: int) -> Callable[[int], int]:
    return lambda case: case + more


def both_classes(name: str) -> Callable[[pa.Table], pa.Array]:
    """A score of class 1 as an array of both."""
    return lambda rows: pa.array([[1 - p, p] for p in rows[name].to_pylist()])

"""Differences between two small tables: which rows and cells are not what they must be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from redcal_spark.core.cells import cell_hashes, combined
from redcal_spark.core.shown_values import value_of

PAIRED = 200  # rows on either side that are compared with each other, at most
SHOWN = 120  # signs of a value

DifferenceKind = Literal["changed", "missing", "extra", "repeated", "violated"]
Row = dict[str, Any]


class Words(str):
    """A text that is shown as it is."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Difference:
    """One cell that is not what it must be, or a row that is missing, too many, or there twice.

    row: what it is known by. column: of a changed cell.
    """

    problem: DifferenceKind
    row: Row
    column: str | None = None
    actual: Any = None
    expected: Any = None

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {shown(value)}" for name, value in self.row.items())
        if self.problem == "violated":
            return str(self.actual)
        if self.problem == "changed":
            cell = f"column {self.column!r}, row {where}"
            return f"{cell}: is {shown(self.actual)}, must be {shown(self.expected)}"
        return f"row {where}: {WORDS[self.problem]}"


WORDS = {
    "missing": "is missing",
    "extra": "must not be there",
    "repeated": "is there more often than it must be",
}


def shown(value: Any) -> str:
    """A value for people, cut if it is long."""
    if isinstance(value, datetime):
        value = value.isoformat()
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def differences(
    expected: pa.Table, written: pa.Table, columns: Sequence[str], keys: Sequence[str]
) -> list[Difference]:
    """What is not the same, as multisets of rows. Columns that one side has not are null there.

    keys: the columns that tell rows apart, for finding pairs and for naming; they need not.
    """
    one, two = (_row_hashes(table, columns) for table in (expected, written))
    ours = [_plain(expected, columns, place) for place in _beyond(one, two)]
    known = set(one)
    changed: list[Row] = []
    copies: list[Row] = []
    for place in _beyond(two, one):
        row = _plain(written, columns, place)
        (copies if two[place] in known else changed).append(row)
    pairs, missing, extra = _paired(ours, changed, keys)
    return [
        *(difference for must, row in pairs for difference in _cells(must, row, keys)),
        *(Difference("missing", _named(row, keys)) for row in missing),
        *(Difference("extra", _named(row, keys)) for row in extra),
        *(Difference("repeated", _named(row, keys)) for row in copies),
    ]


def _row_hashes(table: pa.Table, columns: Sequence[str]) -> list[int]:
    cells = [
        cell_hashes(table[name] if name in table.column_names else pa.nulls(table.num_rows))
        for name in columns
    ]
    hashes: list[int] = combined(cells).tolist()
    return hashes


def _beyond(hashes: list[int], other: list[int]) -> list[int]:
    """The places of rows that the other side has not, or not so often."""
    left = Counter(other)
    places = []
    for place, value in enumerate(hashes):
        if left[value]:
            left[value] -= 1
        else:
            places.append(place)
    return places


def _plain(table: pa.Table, columns: Sequence[str], place: int) -> Row:
    there = set(table.column_names)
    return {name: value_of(table[name][place]) if name in there else None for name in columns}


Pairs = list[tuple[Row, Row]]


def _paired(
    ours: list[Row], theirs: list[Row], keys: Sequence[str]
) -> tuple[Pairs, list[Row], list[Row]]:
    """Rows that are the same row changed: those most alike; of very many, those of one key."""
    few = max(len(ours), len(theirs)) <= PAIRED
    return (_most_alike if few else _of_one_key)(ours, theirs, keys)


def _most_alike(
    ours: list[Row], theirs: list[Row], keys: Sequence[str]
) -> tuple[Pairs, list[Row], list[Row]]:
    scored = []
    for i, must in enumerate(ours):
        for j, row in enumerate(theirs):
            alike = sum(_equal(must[name], row[name]) for name in must)
            same = bool(keys) and _key(must, keys) == _key(row, keys)
            if same or 2 * alike > len(row):
                scored.append((-alike, not same, i, j))
    pairs: Pairs = []
    one, two = set(range(len(ours))), set(range(len(theirs)))
    for *_, i, j in sorted(scored):
        if i in one and j in two:
            pairs.append((ours[i], theirs[j]))
            one.remove(i)
            two.remove(j)
    return pairs, [ours[i] for i in sorted(one)], [theirs[j] for j in sorted(two)]


def _of_one_key(
    ours: list[Row], theirs: list[Row], keys: Sequence[str]
) -> tuple[Pairs, list[Row], list[Row]]:
    waiting: defaultdict[str, list[Row]] = defaultdict(list)
    for row in ours:
        waiting[_key(row, keys)].append(row)
    pairs: Pairs = []
    left = []
    for row in theirs:
        same = waiting[_key(row, keys)] if keys else []
        if same:
            pairs.append((same.pop(0), row))
        else:
            left.append(row)
    return pairs, [row for rows in waiting.values() for row in rows], left


def _key(row: Row, keys: Sequence[str]) -> str:
    return repr([row[name] for name in keys])


def _equal(one: Any, two: Any) -> bool:
    """As the hashes have it: 0.0 is not -0.0, and what is not a number equals itself."""
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return all(map(_equal, one, two))
    if isinstance(one, float) or isinstance(two, float):
        return repr(one) == repr(two)
    return bool(one == two)


def _cells(must: Row, row: Row, keys: Sequence[str]) -> Iterator[Difference]:
    where = _named(must, keys)
    for name in must:
        if not _equal(row[name], must[name]):
            yield Difference("changed", where, name, row[name], must[name])


def _named(row: Row, keys: Sequence[str]) -> Row:
    """The row by its keys that say something; by its first few plain cells where it has none."""
    chosen = {name: row[name] for name in keys if row[name] is not None}
    if chosen:
        return chosen
    plain = [name for name in row if not isinstance(row[name], list | dict)]
    return {name: row[name] for name in plain[:4]}

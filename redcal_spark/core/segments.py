"""Segments: the values of some columns, by which rows are measured and never fitted.

A row knows the values of its segment columns by 64-bit hashes of their text, which are the same on
every machine. Sums are Python integers per value; they add up in any order. Two texts of one hash
would be noticed and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.additive import Additive
from redcal_spark.core.cells import cell_hashes
from redcal_spark.core.fixed_point import Floats, Ints
from redcal_spark.errors import InputError

ROWS: Literal["rows"] = "rows"
PART = 32  # bits of a number that are added up at once
CELLS = 2**15  # of a value and what its rows look up: more leave the cache

Places = npt.NDArray[Any]  # of every row, which of the values it has


@dataclass(frozen=True)
class Parts:
    """A number a row in parts: the lowest 32 bits as float64, the next, and so on."""

    parts: tuple[Floats, ...]
    unit: int = 1

    @classmethod
    def of(cls, x: Floats) -> Parts:
        """Of integers below 2^53 and not below 0."""
        high, low = _cut(x, PART)
        return cls((low, high))


@dataclass(frozen=True)
class Some:
    """A number of some rows, by their index; of the others it is 0."""

    rows: npt.NDArray[np.intp]
    numbers: npt.NDArray[Any]


@dataclass(frozen=True)
class Looked:
    """A number a row that is looked up: `keys` has every row's place in the parts' tables."""

    keys: npt.NDArray[np.intp]
    parts: tuple[Floats, ...]
    unit: int = 1

    @cached_property
    def row_by_row(self) -> Parts:
        return Parts(tuple(part.take(self.keys) for part in self.parts), self.unit)


# Of every row: ROWS is 1, None is 0.
Number = npt.NDArray[Any] | Parts | Looked | Some | Literal["rows"] | None


@dataclass(frozen=True)
class Coded:
    """A column of a batch: per row the place of its value, per value its hash and its text."""

    places: Places
    hashes: Ints
    texts: tuple[str | None, ...]

    def take(self, rows: Any) -> Coded:
        return Coded(self.places[rows], self.hashes, self.texts)

    @property
    def codes(self) -> Ints:
        return self.hashes.take(self.places)


def coded_hashes(codes: Ints) -> Coded:
    """Values of which only the hashes are known."""
    known = pa.array(codes).dictionary_encode()
    places = known.indices.to_numpy().astype(np.intp)
    return Coded(places, known.dictionary.to_numpy(), ())


def coded(column: pa.Array) -> Coded:
    """A column by its distinct values: only these are looked at one by one."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode(null_encoding="encode")
    values = pc.cast(column.dictionary, pa.string())
    places = column.indices
    if places.null_count:  # a dictionary that came with the data may leave nulls out
        values = pa.concat_arrays([values, pa.nulls(1, pa.string())])
        places = places.fill_null(len(values) - 1)
    hashes = cell_hashes(values).view(np.int64)
    texts = tuple(values.to_pylist())
    places = places.to_numpy(zero_copy_only=False).astype(np.intp)
    first = {text: place for place, text in reversed(list(enumerate(texts)))}
    if len(first) < len(texts):  # it may have a value twice, too
        places = np.array([first[text] for text in texts], np.intp).take(places)
    known: dict[int, str | None] = {}
    for text, place in first.items():
        _check_hash(known.setdefault(int(hashes[place]), text), text)
    return Coded(places, hashes, texts)


# --- sums -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SegmentSums(Additive):
    """Per segment column, by the hash of a value: a list of sums, and the text of the value.

    Texts are known where values were read; a change of sums has none.
    """

    sums: tuple[Mapping[int, Sequence[int]], ...]
    texts: tuple[Mapping[int, str | None], ...]

    def _merged(self, other: SegmentSums, how: Callable[[Any, Any], Any]) -> SegmentSums:
        sign = 1 if how is add else -1
        sums = []
        for ours, theirs in zip(self.sums, other.sums, strict=True):
            both = dict(ours)
            for code, numbers in theirs.items():
                known = both.get(code)
                signed = numbers if sign == 1 else [-x for x in numbers]
                both[code] = (
                    signed if known is None else [a + b for a, b in zip(known, signed, strict=True)]
                )
            sums.append(both)
        texts = tuple(_joined(a, b) for a, b in zip(self.texts, other.texts, strict=True))
        return SegmentSums(tuple(sums), texts)

    def to_json(self) -> list[Any]:
        """Sums may not fit int64: they travel as texts."""
        return [
            [
                [str(code), texts.get(code), code in texts, " ".join(map(str, numbers))]
                for code, numbers in sums.items()
            ]
            for sums, texts in zip(self.sums, self.texts, strict=True)
        ]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> SegmentSums:
        sums: list[dict[int, list[int]]] = []
        texts: list[dict[int, str | None]] = []
        for lines in data:
            sums.append(
                {int(code): [int(x) for x in numbers.split()] for code, _, _, numbers in lines}
            )
            texts.append({int(code): text for code, text, known, _ in lines if known})
        return cls(tuple(sums), tuple(texts))


def _joined(
    one: Mapping[int, str | None], two: Mapping[int, str | None]
) -> Mapping[int, str | None]:
    if not two:
        return one
    both = dict(one)
    for code, text in two.items():
        _check_hash(both.setdefault(code, text), text)
    return both


def _check_hash(known: str | None, text: str | None) -> None:
    """Refuse two texts that have the same hash."""
    if known != text:
        raise InputError(f"segments: {known!r} and {text!r} have one hash; rename one")


def by_value(places: Places, size: int, x: npt.NDArray[Any], w: Ints | None) -> list[int]:
    """Sums of integers by the place of their row, each counted w times: exact, whatever their size.

    x: integers of any size, as int64, float64 or objects; or bool. float64 holds what is added up:
    integers are cut into pieces so small that it does.
    """
    if x.dtype == np.bool_:
        hit = np.flatnonzero(x)
        some = None if w is None else w.take(hit)
        return [int(n) for n in np.bincount(places.take(hit), some, size).tolist()]
    if x.dtype == object:
        totals = [0] * size
        for place, value in zip(places.tolist(), (x if w is None else x * w).tolist(), strict=True):
            totals[place] += value
        return totals
    bits = 53 - max(1, len(x) if w is None else int(w.sum())).bit_length()
    totals, shift, rest = [0] * size, 0, x
    while True:
        last = not len(rest) or max(int(rest.max()), -int(rest.min())) < 1 << bits
        high, part = (None, rest) if last else _cut(rest, bits)
        sums = np.bincount(places, part if w is None else part * w.astype(np.float64), size)
        totals = [a + (int(b) << shift) for a, b in zip(totals, sums.tolist(), strict=True)]
        if high is None:
            return totals
        rest, shift = high, shift + bits


def _cut(x: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The upper part of integers, and their lowest bits."""
    if x.dtype != np.float64:
        return x >> bits, x & (1 << bits) - 1
    high = np.floor(x * 2.0**-bits)
    return high, x - high * 2.0**bits


def table(
    columns: Sequence[Coded],
    numbers: Sequence[Number],
    w: Ints | None,
    plain: Sequence[Number] = (),
) -> SegmentSums:
    """How many rows every value has, and the sums of numbers a row; values without rows have none.

    numbers: count w times. plain: as they are.
    """
    sums: list[dict[int, list[int]]] = []
    texts: list[dict[int, str | None]] = []
    for column in columns:
        size = len(column.hashes)
        there = np.bincount(column.places, minlength=size)
        counted = there.tolist()
        lines = [_line(column.places, counted, x, w) for x in numbers]
        lines += [_line(column.places, counted, x, None) for x in plain]
        codes = column.hashes.tolist()
        kept = np.flatnonzero(there).tolist()
        sums.append({codes[v]: [counted[v], *(line[v] for line in lines)] for v in kept})
        texts.append({codes[v]: column.texts[v] for v in kept} if column.texts else {})
    return SegmentSums(tuple(sums), tuple(texts))


def _line(
    places: Places,
    counted: list[int],
    x: Number,
    w: Ints | None,
) -> list[int]:
    if x is None:
        return [0] * len(counted)
    if isinstance(x, str):
        return counted if w is None else by_value(places, len(counted), w, None)
    if isinstance(x, Looked):
        heavy = len(x.keys) if w is None else int(w.sum())
        size = len(x.parts[0])
        if len(counted) * size > CELLS or heavy > 1 << 53 - PART:
            return _line(places, counted, x.row_by_row, w)
        # how many rows look up what: products with the tables are exact in float64
        cells = np.bincount(places * size + x.keys, w, len(counted) * size)
        cells = cells.reshape(-1, size).astype(np.float64)
        return _united([np.dot(cells, part).tolist() for part in x.parts], x.unit)
    if isinstance(x, Parts):
        few = w is None and len(places) <= 1 << 53 - PART  # float64 adds these up as they are
        lines = [
            np.bincount(places, part, len(counted)).tolist()
            if few
            else by_value(places, len(counted), part, w)
            for part in x.parts
        ]
        return _united(lines, x.unit)
    if isinstance(x, Some):
        some = None if w is None else w.take(x.rows)
        return by_value(places.take(x.rows), len(counted), x.numbers, some)
    return by_value(places, len(counted), x, w)


def _united(lines: Sequence[Sequence[float]], unit: int) -> list[int]:
    """Numbers from the sums of their parts."""
    units = [unit << PART * place for place in range(len(lines))]
    return [
        sum(unit * int(total) for unit, total in zip(units, totals, strict=True))
        for totals in zip(*lines, strict=True)
    ]

"""Segments: the values of some columns, by which rows are measured and never fitted.

A row knows the values of its segment columns by 64-bit hashes of their text, which are the same on
every machine. Sums are Python integers per value; they add up in any order. Two texts of one hash
would be noticed and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

MOST = 200  # values of a column that are told apart, the remainder included
TOO_MANY = 100_000  # values that a scan counts at most
ROWS: Literal["rows"] = "rows"
PART = 32  # bits of a number that are added up at once

Places = npt.NDArray[Any]  # of every row, which of the values it has


@dataclass(frozen=True)
class Segment:
    """One value of a segment column, as text; `null` and `other` are kinds of their own."""

    column: str
    kind: str  # value, null, or other: all values beyond the 199 with most rows
    text: str | None = None

    @property
    def shown(self) -> str:
        return {"null": "(null)", "other": "(other)"}.get(self.kind, self.text or "")

    def __str__(self) -> str:
        return (
            f"{self.column} = {self.text!r}"
            if self.kind == "value"
            else f"{self.column} {self.shown}"
        )


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


# Of every row: ROWS is 1, None is 0.
Number = npt.NDArray[Any] | Parts | Some | Literal["rows"] | None


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
    return Coded(places.to_numpy(zero_copy_only=False).astype(np.intp), hashes, texts)


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
        if both.setdefault(code, text) != text:
            raise InputError(f"segments: {both[code]!r} and {text!r} have one hash; rename one")
    return both


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
    if isinstance(x, Parts):
        few = w is None and len(places) <= 1 << 53 - PART  # float64 adds these up as they are
        lines = [
            np.bincount(places, part, len(counted)).tolist()
            if few
            else by_value(places, len(counted), part, w)
            for part in x.parts
        ]
        units = [x.unit << PART * place for place in range(len(lines))]
        return [
            sum(unit * int(total) for unit, total in zip(units, totals, strict=True))
            for totals in zip(*lines, strict=True)
        ]
    if isinstance(x, Some):
        some = None if w is None else w.take(x.rows)
        return by_value(places.take(x.rows), len(counted), x.numbers, some)
    return by_value(places, len(counted), x, w)


# --- which values are told apart ------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The segments of every column, by the hashes of the values that they are made of."""

    segments: tuple[tuple[Segment, ...], ...]
    places: tuple[Mapping[int, int], ...]  # hash -> place among the column's segments

    def __iter__(self) -> Iterator[Segment]:
        return (segment for column in self.segments for segment in column)

    def folded(self, sums: SegmentSums) -> list[list[Sequence[int]]]:
        """Per column and segment, the sums; of one that has no rows, none."""
        columns = []
        for segments, places, known in zip(self.segments, self.places, sums.sums, strict=True):
            lines: list[Sequence[int]] = [()] * len(segments)
            for code, numbers in known.items():
                place = places[code]
                have = lines[place]
                lines[place] = (
                    [a + b for a, b in zip(have, numbers, strict=True)] if have else numbers
                )
            columns.append(lines)
        return columns


def chosen(names: Sequence[str], parts: Sequence[SegmentSums]) -> Chosen:
    """All values; of more than 200 the 199 with most rows, over all parts, and a remainder.

    Ties go by the code points of the text. Null is a value like others, and comes last of a tie.
    """
    segments, places = [], []
    for i, name in enumerate(names):
        rows: dict[int, int] = {}
        texts: dict[int, str | None] = {}
        for part in parts:
            texts |= part.texts[i]
            for code, numbers in part.sums[i].items():
                rows[code] = rows.get(code, 0) + numbers[0]
        order = sorted(rows, key=lambda code: (-rows[code], *_text_key(texts[code])))
        own = order if len(order) <= MOST else order[: MOST - 1]
        listed = [_segment(name, texts[code]) for code in own]
        if len(order) > MOST:
            listed.append(Segment(name, "other"))
        segments.append(tuple(listed))
        places.append({code: min(place, len(listed) - 1) for place, code in enumerate(order)})
    return Chosen(tuple(segments), tuple(places))


def _segment(column: str, text: str | None) -> Segment:
    return Segment(column, "null") if text is None else Segment(column, "value", text)


def _text_key(text: str | None) -> tuple[bool, str]:
    return text is None, text or ""


def check_values(names: Sequence[str], sums: SegmentSums, where: str) -> None:
    """Refuse columns that are no segments: their values would not fit into memory."""
    for name, known in zip(names, sums.sums, strict=True):
        if len(known) > TOO_MANY:
            raise InputError(
                f"{where}: segment column {name!r} has more than {TOO_MANY:,} values; name a "
                "column with fewer, or put values together beforehand"
            )

"""Weights: a column as whole multiples of a unit, exactly, and what is known of all of them.

A row of weight w counts as w identical rows in everything that is summed. Sums of weights stay
below 2^37, so that int64 sums of w times a grid integer are exact, and float64 sums of w alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.additive import Additive
from redcal_spark.core.fixed_point import HALF, MAX_ROWS, Floats, Ints

# What is the matter with a weight, by its code; 0 is a good one.
WRONG = {1: "with a weight that is NaN or infinite", 2: "with a negative weight"}
NO_MULTIPLE = 3

FINEST = Fraction(1, 10**9)  # a unit that is worth proposing: weights of finer ones are measured
LIGHT = 1 << 27  # weights up to which a float64 sum of grid integers is exact
PART = 19
_EXACT = 1 << 53
_DECIDED = 0.5 - 2.0**-14  # a quotient below 2^37 is off by 2^-15 at most
# By the width of a type: bits of a float64 beyond its own, and its least normal number.
_BEYOND = {4: (29, 2.0**-126)}

Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Weights(Additive):
    """Of all rows with a weight above 0: how many, the sum of the squares, and the largest."""

    rows: int
    squares: int
    largest: int

    @classmethod
    def of(cls, w: Ints) -> Weights:
        squares = squares_of([int(np.dot(w, part)) for part in _parts(w)])
        return cls(len(w), squares, int(w.max(initial=0)))

    def _merged(self, other: Weights, how: Callable[[Any, Any], Any]) -> Weights:
        if how is not add:
            raise ValueError("the largest weight of what is left is not known")
        largest = max(self.largest, other.largest)
        return Weights(self.rows + other.rows, self.squares + other.squares, largest)


class Weighed:
    """What counts rows by their weights: `rows` is the sum of these."""

    rows: int
    weights: Weights | None

    @property
    def counted(self) -> int:
        """The rows themselves, whatever their weights."""
        return self.rows if self.weights is None else self.weights.rows

    @property
    def effective(self) -> Fraction:
        """As many rows of equal weight would say as much."""
        if self.weights is None:
            return Fraction(self.rows)
        return Fraction(self.rows**2, self.weights.squares)


# --- sums -----------------------------------------------------------------------------------------


def _parts(w: Ints) -> tuple[Ints, Ints]:
    """Weights in two parts of 19 bits at most: sums of w times a part stay below 2^56."""
    return w >> PART, w & (1 << PART) - 1


def squares_of(parts: Sequence[int]) -> int:
    """The sum of squares, from the sums of w times its parts: it may have 74 bits."""
    high, low = parts
    return (high << PART) + low


def squares_by(keys: npt.NDArray[Any], w: Ints, size: int) -> Ints:
    """The sums of w times its parts, by the key of the row: part x key."""
    return np.stack([summed(keys, part, size, w) for part in _parts(w)])


def counted(keys: npt.NDArray[Any], size: int, w: Ints | None = None) -> Ints:
    """Rows by their key, each counted w times: float64 holds what weights add up to."""
    counts: Ints = np.bincount(keys, w, size).astype(np.int64)
    return counts


def product(a: Floats, b: Floats) -> Ints:
    """The product of integers in float64. Unlike `@`, np.dot lets other threads work meanwhile."""
    whole: Ints = np.dot(a, b).astype(np.int64)
    return whole


def weighted_product(a: Floats, b: Floats, w: Ints | None) -> Ints:
    """The product of a (lines x rows, of -1, 0 and 1) and grid integers b, rows counted w times.

    A float64 sum of grid integers is exact while the weights add up to at most 2^27. Halves of 13
    bits may be added 2^37 times and more.
    """
    if w is None:
        return product(a, b)
    heavy = a * w
    if int(w.sum()) <= LIGHT:
        return product(heavy, b)
    high = np.floor(b * 2.0**-HALF)
    return (product(heavy, high) << HALF) + product(heavy, b - high * 2.0**HALF)


def summed(keys: npt.NDArray[Any], values: npt.NDArray[Any], size: int, w: Ints | None) -> Ints:
    """Sums of grid integers by the key of their row, each counted w times."""
    if w is None or int(w.sum()) <= LIGHT:
        return np.bincount(keys, values if w is None else values * w, size).astype(np.int64)
    high = np.bincount(keys, (values >> HALF) * w, size).astype(np.int64)
    low = np.bincount(keys, (values & (1 << HALF) - 1) * w, size).astype(np.int64)
    return (high << HALF) + low


def weighted_squares(x: npt.NDArray[Any], w: Ints) -> int:
    """The exact sum of w times the squares of a row's integers, which are up to 2^26 in size.

    A row's squares may add up to 2^66. Pieces of 20 bits, times weights, may be added up in int64.
    """
    squares = x.astype(np.int64)
    squares *= squares
    total = 0
    for shift, part in ((26, squares >> 26), (0, squares & (1 << 26) - 1)):
        rows = part.sum(axis=1)  # below 2^41
        total += int(np.dot(w, rows >> 20)) << shift + 20
        total += int(np.dot(w, rows & (1 << 20) - 1)) << shift
    return total


# --- reading --------------------------------------------------------------------------------------


def multiples(column: pa.Array, unit: Fraction) -> tuple[Ints, Codes]:
    """Per value the nearest multiple of the unit, and a code: 0 if the value is that multiple.

    A value of float32 is one if the multiple, rounded to float32, is the value: .1 is a multiple of
    .1. Decimals and integers are compared exactly. Null is 0; what is above 2^37 is 2^37.
    """
    if column.null_count:
        column = column.fill_null(0)
    kind = column.type
    if pa.types.is_floating(kind):
        return _of_floats(column.to_numpy(zero_copy_only=False), unit)
    if pa.types.is_integer(kind):
        return _of_integers(column.to_numpy(zero_copy_only=False), unit)
    known = column.dictionary_encode()
    w, codes = _judged((Fraction(value) for value in known.dictionary.to_pylist()), unit, _equal)
    places = known.indices.to_numpy(zero_copy_only=False)
    return w[places], codes[places]


def finer_unit(column: pa.Array, unit: Fraction) -> Fraction:
    """The largest unit of which these values, as people write them, and this unit are multiples."""
    for value in column.dictionary_encode().dictionary.to_numpy(zero_copy_only=False):
        unit = common_unit(unit, Fraction(str(value)))
        if unit < FINEST:
            break
    return unit


def common_unit(one: Fraction, two: Fraction) -> Fraction:
    top = gcd(one.numerator * two.denominator, two.numerator * one.denominator)
    return Fraction(top, one.denominator * two.denominator)


def _of_floats(values: npt.NDArray[Any], unit: Fraction) -> tuple[Ints, Codes]:
    """By float64 where that decides it for certain, by fractions where not."""
    finite = np.isfinite(values)
    codes = np.where(finite, np.where(values < 0, 2, 0), 1).astype(np.uint8)
    v: Floats = np.where(codes == 0, values, 0).astype(np.float64)
    p, q = unit.numerator, unit.denominator
    near, sure = np.zeros(len(v)), v == 0
    width = values.dtype.itemsize
    if max(p, q) < _EXACT and width > 2:
        with np.errstate(over="ignore"):
            ratio = v * q / p
        near = np.rint(ratio)
        small = near * p <= _EXACT
        sure |= small & (near < MAX_ROWS) & (np.abs(ratio - near) < _DECIDED)
        back = np.where(small, near, 0) * p / q  # rounded once, for the product is exact
        if width in _BEYOND:  # rounding to float64 first decides only what is no half
            bits, least = _BEYOND[width]
            half = (back.view(np.int64) & (1 << bits) - 1) == 1 << bits - 1
            sure &= ~half & ((back >= least) | (back == 0))
            back = back.astype(values.dtype).astype(np.float64)
        codes[sure & (back != v)] = NO_MULTIPLE
    w = np.where(sure, near, 0).astype(np.int64)
    left = np.flatnonzero(~sure)
    if len(left):
        kind = values.dtype.type
        distinct, places = np.unique(values[left], return_inverse=True)
        exact = (Fraction(float(value)) for value in distinct)
        some, said = _judged(exact, unit, lambda x, value: _rounds_to(x, kind(float(value))))
        w[left], codes[left] = some[places], said[places]
    return w, codes


def _of_integers(values: npt.NDArray[Any], unit: Fraction) -> tuple[Ints, Codes]:
    p, q = unit.numerator, unit.denominator
    if p < 1 << 62 and int(values.max(initial=0)) * q < 1 << 62:
        v = np.maximum(values, 0).astype(np.int64)
        w, rest = np.divmod(v * q, p)
        codes = np.where(values < 0, 2, np.where(rest, NO_MULTIPLE, 0)).astype(np.uint8)
        return np.minimum(w, MAX_ROWS), codes
    distinct, places = np.unique(values, return_inverse=True)
    w, codes = _judged((Fraction(value) for value in distinct.tolist()), unit, _equal)
    return w[places], codes[places]


def _judged(
    values: Iterable[Fraction], unit: Fraction, same: Callable[[Fraction, Fraction], bool]
) -> tuple[Ints, Codes]:
    """One by one. same: whether a multiple is the value."""
    multiples, codes = [], []
    for value in values:
        w = max(0, round(value / unit))
        codes.append(2 if value < 0 else 0 if same(w * unit, value) else NO_MULTIPLE)
        multiples.append(min(w, MAX_ROWS))
    return np.array(multiples, np.int64), np.array(codes, np.uint8)


def _equal(one: Fraction, two: Fraction) -> bool:
    return one == two


def _rounds_to(x: Fraction, value: Any) -> bool:
    """Whether a fraction, rounded to the type of a floating value (half to even), is the value."""
    if x == value:
        return True
    exact, kind = Fraction(float(value)), type(value)
    with np.errstate(over="ignore"):
        below, above = (float(np.nextafter(value, kind(end))) for end in (-np.inf, np.inf))
    low = exact - Fraction(below)
    high = low if np.isinf(above) else Fraction(above) - exact
    away = x - exact
    room = high if away > 0 else low
    even = not int.from_bytes(value.tobytes(), "little") & 1
    return 2 * abs(away) < room or (even and 2 * abs(away) == room)

"""The grid: exact integers for everything that decides anything.

Predictions are integers in units of 2^-26, losses in units of 2^-G, so scores, sums and comparisons
do not depend on row order, partitions, threads, BLAS or engine.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Grid = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BITS = 26
ONE = 1 << BITS
MAX_ROWS = 1 << 37  # int64 sums of grid integers are exact below this

_GROUP = 1_024
HALF = 13  # products of 26-bit and 13-bit integers can be added 2^14 times in float64


def exact(x: float) -> Fraction:
    """The decimal the user wrote: 0.1 is 1/10, not the nearest binary fraction."""
    return Fraction(repr(float(x)))


def to_grid(p: npt.NDArray[Any], out: Floats | None = None) -> Floats:
    """p in units of 2^-26, rounded half to even, still float64: NaN and infinity survive."""
    q: Floats = np.multiply(p, float(ONE), out=out, dtype=np.float64)
    np.rint(q, out=q)
    return q


def on_grid(q: Floats) -> bool:
    """Whether every value is a grid point of [0, 1]. NaN is not."""
    return q.size == 0 or (bool(q.min() >= 0) and bool(q.max() <= ONE))


def from_grid(q: npt.NDArray[Any]) -> Floats:
    """The float64 of a grid integer, exactly; `to_grid` gives the same integer back."""
    p: Floats = np.multiply(q, 2.0**-BITS, dtype=np.float64)
    return p


def loss_bits(d: int) -> int:
    """G: as fine as scores of d classes allow, below 2^62 in all."""
    return min(26, 36 - (max(2, d) - 1).bit_length())


def rounded_mean(num: Ints, den: int, step: int) -> Ints:
    """round(num / den, to a multiple of step) for each coordinate, half to even."""
    unit = den * step
    if unit < 1 << 62:
        # float64 finds the integer, int64 checks that it is the nearest: only halves are left
        near = np.rint(num / unit).astype(np.int64)
        if bool((np.abs(num - near * unit) * 2 < unit).all()):
            return near * step
    return np.array([round(Fraction(x, unit)) * step for x in num.tolist()], dtype=np.int64)


def grid_size(bound: Fraction) -> tuple[int, bool]:
    """The least power of two m <= 2^26 with m^2 >= bound, and whether it really is >= bound."""
    root = isqrt(-(-bound.numerator // bound.denominator) - 1) + 1  # ceil(sqrt(ceil(bound)))
    m = 1 << (max(root, 1) - 1).bit_length()
    return (m, True) if m <= ONE else (ONE, False)


def sum_of_squares(x: npt.NDArray[Any]) -> int:
    """The exact sum of squares of integers up to 2^26 in size.

    A square may have 52 bits, so that int64 overflows after 2^11 of them: they are added up by the
    1,024, and the rest is done with Python integers.
    """
    flat = x.reshape(-1)
    whole = len(flat) - len(flat) % _GROUP
    squares = flat.astype(np.int64)
    squares *= squares
    groups = squares[:whole].reshape(-1, _GROUP).sum(axis=1)
    # of group sums below 2^62, halves of 31 bits can be added 2^32 times
    high, low = int((groups >> 31).sum()), int((groups & (1 << 31) - 1).sum())
    return (high << 31) + low + int(squares[whole:].sum())


def split(weights: Ints) -> tuple[Floats, Floats]:
    """Integers below 2^26 (or 2^26 itself) as 13-bit halves for exact float64 products."""
    return (weights >> HALF).astype(np.float64), (weights & (1 << HALF) - 1).astype(np.float64)


def join(high: Floats, low: Floats) -> Ints:
    """The integer product from the products with both halves."""
    return (high.astype(np.int64) << HALF) + low.astype(np.int64)

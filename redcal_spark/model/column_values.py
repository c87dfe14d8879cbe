"""Values of columns that nobody has described yet: shares, sums, different ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.fixed_point import Floats, Mask

CLOSE = 1e-3  # of a sum to 1
MOST = 0.99  # of the rows: a few empty or wrong cells do not hide what a column is


def shares(values: pa.Array) -> bool:
    """Whether numbers are from 0 to 1, most of them, and there are some."""
    known = numbers(values.drop_null())
    return mostly((known >= -CLOSE) & (known <= 1 + CLOSE))


def sum_to(whole: float, values: Floats) -> bool:
    """Whether most rows sum to this, of those without an empty cell. values: row x number."""
    sums = values.sum(axis=1)
    known = ~np.isnan(sums)
    off = np.abs(sums[known] / whole - 1)
    return mostly(off < max(CLOSE, _rounding(values[known] / whole)))


def _rounding(shares: Floats) -> float:
    """By how much shares that were rounded to few decimals may miss their sum."""
    for decimals in (2, 3):
        scaled = shares * 10**decimals
        if len(scaled) and np.abs(scaled - np.rint(scaled)).max() < 1e-6:
            # half a digit each at most; of many the errors cancel
            width = shares.shape[1]
            return float(min(width / 2, width**0.5) * 10.0**-decimals + 1e-6)
    return 0.0


def mostly(those: Mask) -> bool:
    return bool(len(those) and those.mean() >= MOST)


def corners(values: Any) -> bool:
    """Whether all numbers are 0 or 1: then they are labels."""
    return {*pc.unique(values.drop_null()).to_pylist()[:3]} <= {0, 1}


def numbers(column: Any) -> Floats:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    filled = array.cast(pa.float64(), safe=False).fill_null(float("nan"))
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def equals(column: pa.ChunkedArray, value: str) -> Any:
    same = pc.equal(column.cast(pa.string()), value).fill_null(False)
    return np.asarray(same.combine_chunks().to_numpy(zero_copy_only=False))


def distinct(column: Any) -> list[Any]:
    return [value for value in pc.unique(column).to_pylist() if value is not None]


def words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]

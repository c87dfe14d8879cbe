"""Scores divided by their sum. Patches are clipped to the box, so that sums need not stay at 1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from redcal_spark.core.columns import Form, Layout
from redcal_spark.core.fixed_point import Floats, Grid, Mask
from redcal_spark.errors import UsageError
from redcal_spark.settings import setting


def check_normalise(layout: Layout) -> None:
    """Refuse scores that have nothing to be divided by."""
    if layout.binary:
        raise UsageError(
            f"{setting('normalise')}: the scores are one column P(class 1) for each model, and "
            "P(class 0) is the rest: they sum to 1 as they are. Leave it out"
        )


def divided(f: Grid) -> tuple[Floats, Mask]:
    """Grid integers over their sum, each the float64 nearest to it, and the rows that have one.

    Both are whole numbers below 2^53, so that no order of adding and no engine makes a difference.
    """
    total = f.sum(axis=1, dtype=np.int64)
    has = total > 0
    return f / np.where(has, total, 1)[:, None], has


def normalised(f: Grid, valid: Mask, form: Form) -> list[pa.Array]:
    """New columns in the form of the scores; null where all are 0, and in rows that are not valid.

    Null it is, since any other number would be invented.
    """
    values, has = divided(f)
    has &= valid
    if form == "array":
        values = values[has]
        ends = np.cumsum(has) * f.shape[1]
        starts = np.concatenate([[0], ends]).astype(np.int32)
        gone = np.append(~has, False)  # a list is null where its start is
        offsets = pa.array(starts, mask=gone if gone.any() else None)
        return [pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))]
    missing = None if has.all() else ~has
    return [pa.array(values[:, j], mask=missing) for j in range(f.shape[1])]


def with_nan(column: pa.ChunkedArray, d: int) -> Floats:
    """Such a column of arrays in numpy, which has no null: rows of NaN."""
    rows = np.full((len(column), d), np.nan)
    there = column.is_valid().to_numpy()
    rows[there] = column.drop_null().combine_chunks().flatten().to_numpy().reshape(-1, d)
    return rows

"""Blocks: rows on the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import ONE, Floats, Grid, Ints


@dataclass(frozen=True, eq=False)
class Block:
    """Both models' scores on some rows and, where known, their labels.

    f1, f2: int32, n x d. y: class indices (n), or vectors on the grid (n x d), or None.
    w: weights, above 0; None where every row counts once.
    """

    f1: Grid
    f2: Grid
    y: Grid | None = None
    w: Ints | None = None

    @property
    def rows(self) -> int:
        return len(self.f1)

    @property
    def n_classes(self) -> int:
        return int(self.f1.shape[1])

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.f1, self.f2, self.y, self.w) if a is not None)

    @property
    def weight(self) -> int:
        """As how many rows these count."""
        return self.rows if self.w is None else int(self.w.sum())

    def take(self, rows: npt.NDArray[Any] | slice) -> Block:
        """The chosen rows: by slice (a view), mask or indices."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        columns = (self.f1, self.f2, self.y, self.w)
        if isinstance(rows, slice):
            return Block(*(_of(a, lambda a: a[rows]) for a in columns))
        return Block(*(_of(a, lambda a: a.take(rows, axis=0)) for a in columns))

    def pieces(self, rows: int) -> list[Block]:
        """Views of at most so many rows each, to be worked on by several threads."""
        return [self.take(slice(s, s + rows)) for s in range(0, self.rows, rows)]

    @classmethod
    def concat(cls, blocks: Sequence[Block]) -> Block:
        if len(blocks) == 1:
            return blocks[0]
        columns = zip(*((b.f1, b.f2, b.y, b.w) for b in blocks), strict=True)
        return cls(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]


def _of(column: Any, how: Callable[[Any], Any]) -> Any:
    return None if column is None else how(column)


def label_rows(y: Grid, n_classes: int) -> Floats:
    """Labels as vectors of grid values: class k is ONE in coordinate k."""
    if y.ndim == 2:
        return y.astype(np.float64)
    rows = np.zeros((len(y), n_classes))
    rows[np.arange(len(y)), y] = ONE
    return rows

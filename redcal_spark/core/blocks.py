"""Blocks: rows on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import ONE, Floats, Grid


@dataclass(frozen=True, eq=False)
class Block:
    """All models' scores on some rows and, where known, their labels.

    f: per model, int32, n x d. y: class indices (n), or vectors on the grid (n x d), or None.
    """

    f: tuple[Grid, ...]
    y: Grid | None = None

    @property
    def rows(self) -> int:
        return len(self.f[0])

    @property
    def n_classes(self) -> int:
        return int(self.f[0].shape[1])

    @property
    def nbytes(self) -> int:
        return sum(f.nbytes for f in self.f) + (0 if self.y is None else self.y.nbytes)

    def take(self, rows: npt.NDArray[Any] | slice) -> Block:
        """The chosen rows: by slice (a view), mask or indices."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if isinstance(rows, slice):
            y = None if self.y is None else self.y[rows]
            return Block(tuple(f[rows] for f in self.f), y)
        y = None if self.y is None else self.y.take(rows, axis=0)
        return Block(tuple(f.take(rows, axis=0) for f in self.f), y)

    def pieces(self, rows: int) -> list[Block]:
        """Views of at most so many rows each, to be worked on by several threads."""
        return [self.take(slice(s, s + rows)) for s in range(0, self.rows, rows)]

    @classmethod
    def concat(cls, blocks: Sequence[Block]) -> Block:
        if len(blocks) == 1:
            return blocks[0]
        y = None
        if blocks[0].y is not None:
            y = np.concatenate([b.y for b in blocks if b.y is not None])
        models = zip(*(b.f for b in blocks), strict=True)
        return cls(tuple(np.concatenate(parts) for parts in models), y)


def label_rows(y: Grid, n_classes: int) -> Floats:
    """Labels as vectors of grid values: class k is ONE in coordinate k."""
    if y.ndim == 2:
        return y.astype(np.float64)
    rows = np.zeros((len(y), n_classes))
    rows[np.arange(len(y)), y] = ONE
    return rows

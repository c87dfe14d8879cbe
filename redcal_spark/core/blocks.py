"""Blocks: rows on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import ONE, Floats, Grid

Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Block:
    """Both models' scores on some rows and, where known, their labels.

    f1, f2: int32, n x d. y: class indices (n), or vectors on the grid (n x d), or None.
    fold: where `eta: auto` is asked for, what `core.folds` says of every fitting row (uint8).
    """

    f1: Grid
    f2: Grid
    y: Grid | None = None
    fold: Codes | None = None

    @property
    def rows(self) -> int:
        return len(self.f1)

    @property
    def n_classes(self) -> int:
        return int(self.f1.shape[1])

    @property
    def nbytes(self) -> int:
        others = (each.nbytes for each in (self.y, self.fold) if each is not None)
        return self.f1.nbytes + self.f2.nbytes + sum(others)

    def take(self, rows: npt.NDArray[Any] | slice) -> Block:
        """The chosen rows: by slice (a view), mask or indices."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if isinstance(rows, slice):
            y = None if self.y is None else self.y[rows]
            fold = None if self.fold is None else self.fold[rows]
            return Block(self.f1[rows], self.f2[rows], y, fold)
        y = None if self.y is None else self.y.take(rows, axis=0)
        fold = None if self.fold is None else self.fold.take(rows)
        return Block(self.f1.take(rows, axis=0), self.f2.take(rows, axis=0), y, fold)

    def pieces(self, rows: int) -> list[Block]:
        """Views of at most so many rows each, to be worked on by several threads."""
        return [self.take(slice(s, s + rows)) for s in range(0, self.rows, rows)]

    @classmethod
    def concat(cls, blocks: Sequence[Block]) -> Block:
        if len(blocks) == 1:
            return blocks[0]
        y = fold = None
        if blocks[0].y is not None:
            y = np.concatenate([b.y for b in blocks if b.y is not None])
        if blocks[0].fold is not None:
            fold = np.concatenate([b.fold for b in blocks if b.fold is not None])
        f1, f2 = (np.concatenate([b.f1 for b in blocks]), np.concatenate([b.f2 for b in blocks]))
        return cls(f1, f2, y, fold)


def mean_block(block: Block) -> Block:
    """The rows as if both models were their mean, rounded to the grid (half to even)."""
    twice = block.f1.astype(np.int64) + block.f2
    f = ((twice >> 1) + (twice & (twice >> 1) & 1)).astype(np.int32)
    return Block(f, f, block.y)


def label_rows(y: Grid, n_classes: int) -> Floats:
    """Labels as vectors of grid values: class k is ONE in coordinate k."""
    if y.ndim == 2:
        return y.astype(np.float64)
    rows = np.zeros((len(y), n_classes))
    rows[np.arange(len(y)), y] = ONE
    return rows

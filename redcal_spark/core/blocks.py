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
    """All models' scores on some rows and, where known, their labels.

    f: per model, int32, n x d. y: class indices (n), or vectors on the grid (n x d), or None.
    fold: where `eta: auto` is asked for, what `core.folds` says of every fitting row (uint8).
    """

    f: tuple[Grid, ...]
    y: Grid | None = None
    fold: Codes | None = None

    @property
    def rows(self) -> int:
        return len(self.f[0])

    @property
    def n_classes(self) -> int:
        return int(self.f[0].shape[1])

    @property
    def nbytes(self) -> int:
        others = (each.nbytes for each in (self.y, self.fold) if each is not None)
        return sum(f.nbytes for f in self.f) + sum(others)

    def take(self, rows: npt.NDArray[Any] | slice) -> Block:
        """The chosen rows: by slice (a view), mask or indices."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if isinstance(rows, slice):
            y = None if self.y is None else self.y[rows]
            fold = None if self.fold is None else self.fold[rows]
            return Block(tuple(f[rows] for f in self.f), y, fold)
        y = None if self.y is None else self.y.take(rows, axis=0)
        fold = None if self.fold is None else self.fold.take(rows)
        return Block(tuple(f.take(rows, axis=0) for f in self.f), y, fold)

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
        models = zip(*(b.f for b in blocks), strict=True)
        return cls(tuple(np.concatenate(parts) for parts in models), y, fold)


def mean_block(block: Block) -> Block:
    """The rows as if all models were their mean, rounded to the grid (half to even)."""
    models = len(block.f)
    total = np.sum(block.f, axis=0, dtype=np.int64)
    mean, twice = total // models, 2 * (total % models)
    mean += (twice > models) | ((twice == models) & (mean & 1 == 1))
    return Block((mean.astype(np.int32),) * models, block.y)


def label_rows(y: Grid, n_classes: int) -> Floats:
    """Labels as vectors of grid values: class k is ONE in coordinate k."""
    if y.ndim == 2:
        return y.astype(np.float64)
    rows = np.zeros((len(y), n_classes))
    rows[np.arange(len(y)), y] = ONE
    return rows

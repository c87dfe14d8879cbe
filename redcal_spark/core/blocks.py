"""Blocks: rows on the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import ONE, Floats, Grid, Ints

Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Block:
    """All models' scores on some rows and, where known, their labels.

    f: per model, int32, n x d. y: class indices (n), or vectors on the grid (n x d), or None.
    w: weights, above 0; None where every row counts once. s: the hashes of the values of segment
    columns, n x columns; None where there are none.
    fold: where `eta: auto` is asked for, what `core.folds` says of every fitting row (uint8).
    """

    f: tuple[Grid, ...]
    y: Grid | None = None
    w: Ints | None = None
    s: Ints | None = None
    fold: Codes | None = None

    @property
    def rows(self) -> int:
        return len(self.f[0])

    @property
    def n_classes(self) -> int:
        return int(self.f[0].shape[1])

    @property
    def nbytes(self) -> int:
        others = (self.y, self.w, self.s, self.fold)
        return sum(a.nbytes for a in (*self.f, *others) if a is not None)

    @property
    def weight(self) -> int:
        """As how many rows these count."""
        return self.rows if self.w is None else int(self.w.sum())

    def take(self, rows: npt.NDArray[Any] | slice) -> Block:
        """The chosen rows: by slice (a view), mask or indices."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if isinstance(rows, slice):
            return Block(tuple(f[rows] for f in self.f), *self._each(lambda a: a[rows]))
        others = self._each(lambda a: a.take(rows, axis=0))
        return Block(tuple(f.take(rows, axis=0) for f in self.f), *others)

    def _each(self, how: Callable[[Any], Any]) -> list[Any]:
        others = (self.y, self.w, self.s, self.fold)
        return [None if a is None else how(a) for a in others]

    def pieces(self, rows: int) -> list[Block]:
        """Views of at most so many rows each, to be worked on by several threads."""
        return [self.take(slice(s, s + rows)) for s in range(0, self.rows, rows)]

    @classmethod
    def concat(cls, blocks: Sequence[Block]) -> Block:
        if len(blocks) == 1:
            return blocks[0]
        models = zip(*(b.f for b in blocks), strict=True)
        others = ([getattr(b, name) for b in blocks] for name in ("y", "w", "s", "fold"))
        return cls(
            tuple(np.concatenate(parts) for parts in models),
            *(None if column[0] is None else np.concatenate(column) for column in others),
        )


def mean_block(block: Block) -> Block:
    """The rows as if all models were their mean, rounded to the grid (half to even)."""
    models = len(block.f)
    total = np.sum(block.f, axis=0, dtype=np.int64)
    mean, twice = total // models, 2 * (total % models)
    mean += (twice > models) | ((twice == models) & (mean & 1 == 1))
    return Block((mean.astype(np.int32),) * models, block.y, block.w)


def label_rows(y: Grid, n_classes: int) -> Floats:
    """Labels as vectors of grid values: class k is ONE in coordinate k."""
    if y.ndim == 2:
        return y.astype(np.float64)
    rows = np.zeros((len(y), n_classes))
    rows[np.arange(len(y)), y] = ONE
    return rows

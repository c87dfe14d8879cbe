"""The numbers of segments: what is summed per value, row by row, and what people read off it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.fixed_point import BITS, ONE, Grid, Ints
from redcal_spark.core.kernel import Index, chunks
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.paired import Moments, loss_changes, loss_range
from redcal_spark.core.responses import Actions
from redcal_spark.core.rows import Rows
from redcal_spark.core.segments import ROWS, Chosen, Coded, Segment, SegmentSums, table

Numbers = list[npt.NDArray[Any] | Literal["rows"] | None]


def of_scan(
    block: Block, actions: Sequence[Actions], losses: LossFamily, columns: Sequence[Coded]
) -> SegmentSums:
    """The sums of rows as they were read: no patch has changed anything."""
    none = len(losses) * len(block.f)
    standing = _standing(block, actions, losses)
    return table(columns, [*standing, *[None] * none], block.w, [None] * 2 * none)


def _standing(block: Block, actions: Sequence[Actions], losses: LossFamily) -> Numbers:
    """Per row: itself, its weight, whether not all models decide alike, Brier scores, and costs."""
    assert block.y is not None
    first, *others = actions
    apart = [
        np.logical_or.reduce([a[place] != first[place] for a in others]).astype(np.int64)
        for place in range(len(losses))
    ]
    briers = [_brier(f, block.y) for f in block.f]
    costs = [
        _cost(loss, a[place], block.y) for a in actions for place, loss in enumerate(losses.losses)
    ]
    return [ROWS, ROWS if block.w is None else block.w, *apart, *briers, *costs]


def _brier(f: Grid, y: Grid) -> npt.NDArray[Any]:
    """Per row the squared error, in units of 2^-52."""
    if y.ndim == 1:
        squares = _squares(f)
        if squares is not None:
            label = f.take(np.arange(0, f.size, f.shape[1]) + y).astype(np.int64)
            return squares - 2 * ONE * label + ONE * ONE
    error = f.astype(np.int64)
    if y.ndim == 2:
        error -= y
    else:
        error[np.arange(len(error)), y] -= ONE
    if f.shape[1] < 1 << 10:
        return np.asarray(np.einsum("ij,ij->i", error, error))
    error *= error
    high, low = (error >> BITS).sum(axis=1), (error & ONE - 1).sum(axis=1)
    exact: npt.NDArray[Any] = high.astype(object) * ONE + low
    return exact


def _squares(f: Grid) -> Ints | None:
    """Per row the sum of squares by float64, which is exact while it is below 2^53; else None."""
    total, ones = np.empty(len(f)), np.ones(f.shape[1])
    with Buffers.borrowed() as buffers:
        for part in chunks(len(f), f.shape[1]):
            some = f[part]
            near = buffers.array("squares", some.shape, np.float64)
            np.multiply(some, some, out=near, dtype=np.float64)
            np.dot(near, ones, out=total[part])
    return total.astype(np.int64) if float(total.max(initial=0)) < 2.0**53 else None


def _cost(loss: Loss, actions: Actions, y: Grid) -> npt.NDArray[Any]:
    """Per row what its action costs, in whole parts of the user's unit times 2^-26."""
    whole, _ = loss.whole_costs
    largest = max(abs(cost) for line in whole for cost in line)
    wide = largest * ONE * (1 if y.ndim == 1 else loss.n_classes) >= 1 << 62
    costs = np.array(whole, object if wide else np.int64)
    if y.ndim == 1:
        cells = actions.astype(np.intp) * loss.n_classes + y
        return np.asarray((costs * ONE).reshape(-1).take(cells))
    return np.asarray((costs[actions] * y).sum(axis=1))


class SegmentTracker:
    """The rows of a block by their segments, and how they stood before the first patch.

    heaviest: of holdout rows the largest weight, wherever; None: these are fitting rows.
    """

    def __init__(self, block: Block, rows: Rows, heaviest: int | None):
        assert block.s is not None
        self._first = [actions.copy() for actions in rows.actions]
        self._heaviest = heaviest
        self._columns = []
        for codes in block.s.T:
            hashes, places = np.unique(codes, return_inverse=True)
            self._columns.append(Coded(places, hashes, ()))

    def sums(self, rows: Rows, index: Index) -> SegmentSums:
        """Of some rows as they stand now."""
        block, losses = rows.current(index), rows.rules.losses
        assert block.y is not None
        now = [a.take(index, axis=1) for a in rows.actions]
        first = [a.take(index, axis=1) for a in self._first]
        moved: Numbers = []
        z: list[Ints] = []
        for old, new in zip(first, now, strict=True):
            for place, loss in enumerate(losses.losses):
                hit = np.flatnonzero(old[place] != new[place])
                here = np.zeros(len(index), np.int64)
                here[hit] = 1
                moved.append(here)
                changes = np.zeros(len(index), np.int64)
                if self._heaviest is not None and len(hit):
                    within = loss_range(loss, block.y.ndim == 2).times(self._heaviest)
                    w = None if block.w is None else block.w[hit]
                    changes[hit] = loss_changes(
                        loss, old[place][hit], new[place][hit], block.y[hit], w, within
                    )
                z.append(changes)
        weighted = _standing(block, now, losses) + moved
        columns = [column.take(index) for column in self._columns]
        return table(columns, weighted, block.w, [*z, *(x * x for x in z)])


# --- what people read -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentMetrics:
    """What the sums of a segment say; models are 1, 2, ..., losses by place."""

    segment: Segment
    sums: Sequence[int]
    losses: LossFamily
    models: int

    @property
    def counted(self) -> int:
        """The rows themselves."""
        return self.sums[0] if self.sums else 0

    @property
    def rows(self) -> int:
        """With weights, their sum."""
        return self.sums[1] if self.sums else 0

    @property
    def squares(self) -> int:
        return self.sums[2]

    def _at(self, start: int, model: int, loss: int) -> int:
        return self.sums[start + (model - 1) * len(self.losses) + loss]

    @property
    def _costs(self) -> int:
        return 3 + len(self.losses) + self.models

    def apart_rows(self, loss: int) -> int:
        return self.sums[3 + loss]

    def disagreement(self, loss: int) -> Fraction:
        return Fraction(self.apart_rows(loss), self.rows)

    def brier_sum(self, model: int) -> int:
        return self.sums[3 + len(self.losses) + model - 1]

    def brier(self, model: int) -> Fraction:
        return Fraction(self.brier_sum(model), self.rows << 2 * BITS)

    def decision_loss(self, loss: int, model: int) -> Fraction:
        unit = self.losses[loss].whole_costs[1]
        return Fraction(self._at(self._costs, model, loss), self.rows * unit << BITS)

    @property
    def _cells(self) -> int:
        return len(self.losses) * self.models

    def moved_rows(self, loss: int, model: int) -> int:
        """Rows on which a model decides otherwise than at first."""
        return self._at(self._costs + self._cells, model, loss)

    def moved(self, loss: int, model: int) -> Fraction:
        return Fraction(self.moved_rows(loss, model), self.rows)

    def moments(self, loss: int, model: int) -> Moments:
        """Of the changes of a loss, row by row; only of holdout rows."""
        start = self._costs + 2 * self._cells
        return Moments(self._at(start, model, loss), self._at(start + self._cells, model, loss))


def read(totals: Totals, chosen: Chosen, losses: LossFamily) -> list[SegmentMetrics]:
    """The segments that have rows, in their order: column by column, most rows first."""
    assert totals.segments is not None
    models = len(totals.brier)
    return [
        SegmentMetrics(segment, sums, losses, models)
        for segments, lines in zip(chosen.segments, chosen.folded(totals.segments), strict=True)
        for segment, sums in zip(segments, lines, strict=True)
        if sums
    ]


def without(block: Block) -> Block:
    return block if block.s is None else replace(block, s=None)

"""The numbers of segments: what is summed per value, row by row, and what people read off it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.chosen_segments import Chosen, Segment
from redcal_spark.core.fixed_point import BITS, ONE, Floats, Grid, Ints
from redcal_spark.core.kernel import Index, Rules, chunks
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.paired import Moments, loss_changes, loss_range
from redcal_spark.core.responses import Actions
from redcal_spark.core.rows import Rows
from redcal_spark.core.segments import (
    PART,
    ROWS,
    Coded,
    Looked,
    Number,
    Parts,
    SegmentSums,
    Some,
    coded_hashes,
    table,
)


def of_scan(
    block: Block, actions: Sequence[Actions], losses: LossFamily, columns: Sequence[Coded]
) -> SegmentSums:
    """The sums of rows as they were read: no patch has changed anything."""
    none = len(losses) * len(block.f)
    standing = _standing(block, actions, losses, range(len(block.f)))
    return table(columns, [*standing, *[None] * none], block.w, [None] * 2 * none)


def _standing(
    block: Block, actions: Sequence[Actions], losses: LossFamily, models: Collection[int]
) -> list[Number]:
    """Per row: itself, its weight, whether not all models decide alike, Brier scores, and costs.

    models: places of those that are looked at; of the others Brier scores and costs are None.
    """
    assert block.y is not None
    first, *others = actions
    apart = [
        np.logical_or.reduce([a[place] != first[place] for a in others])
        for place in range(len(losses))
    ]
    briers = [_brier(f, block.y) if i in models else None for i, f in enumerate(block.f)]
    costs = [
        _cost(loss, own[place], block.y) if i in models else None
        for i, own in enumerate(actions)
        for place, loss in enumerate(losses.losses)
    ]
    return [ROWS, ROWS if block.w is None else block.w, *apart, *briers, *costs]


def _brier(f: Grid, y: Grid) -> Number:
    """Per row the squared error, in units of 2^-52."""
    if y.ndim == 1:
        squares = _squares(f)
        if squares is not None:  # and what follows is below 2^53, too
            label = f.take(np.arange(0, f.size, f.shape[1]) + y).astype(np.float64)
            label *= -2 * ONE
            squares += label
            squares += ONE * ONE
            return Parts.of(squares)
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


def _squares(f: Grid) -> Floats | None:
    """Per row the sum of squares by float64, which is exact while it is up to 2^52; else None."""
    total = np.empty(len(f))
    with Buffers.borrowed() as buffers:
        for part in chunks(len(f), f.shape[1]):
            some = buffers.array("squares", f[part].shape, np.float64)
            some[:] = f[part]
            np.einsum("ij,ij->i", some, some, out=total[part])
    return total if float(total.max(initial=0)) <= 2.0**52 else None


def _cost(loss: Loss, actions: Actions, y: Grid) -> Number:
    """Per row what its action costs, in whole parts of the user's unit times 2^-26."""
    whole, _ = loss.whole_costs
    if y.ndim == 1:
        cells = actions.astype(np.intp) * loss.n_classes + y
        return Looked(cells, tuple(_tables([cost for line in whole for cost in line])), ONE)
    largest = max(abs(cost) for line in whole for cost in line)
    wide = largest * ONE * loss.n_classes >= 1 << 62
    costs = np.array(whole, object if wide else np.int64)
    return np.asarray((costs[actions] * y).sum(axis=1))


def _tables(numbers: Sequence[int]) -> Iterator[Floats]:
    """Integers of any size in parts of 32 bits, lowest first; the last part has the sign."""
    while max(map(abs, numbers)) >= 1 << PART:
        yield np.array([x & (1 << PART) - 1 for x in numbers], np.float64)
        numbers = [x >> PART for x in numbers]
    yield np.array(numbers, np.float64)


class SegmentTracker:
    """The rows of a block by their segments, and how they stood before the first patch.

    heaviest: of holdout rows the largest weight, wherever; None: these are fitting rows.
    """

    def __init__(self, block: Block, rows: Rows, heaviest: int | None):
        assert block.s is not None
        self._first = [actions.copy() for actions in rows.actions]
        self._heaviest = heaviest
        self._columns = [coded_hashes(np.ascontiguousarray(codes)) for codes in block.s.T]

    def sums(self, rows: Rows, index: Index, model: int) -> SegmentSums:
        """Of some rows as they stand now; of all that one model has of its own, this model's."""
        block, losses, own = rows.current(index), rows.rules.losses, model - 1
        now = [a.take(index, axis=1) for a in rows.actions]
        none: list[Number] = [None for _ in range(len(losses) * len(now))]
        moved, totals, squares = none.copy(), none.copy(), none.copy()
        first = self._first[own].take(index, axis=1)
        for place, loss in enumerate(losses.losses):
            hit, here = np.flatnonzero(first[place] != now[own][place]), own * len(losses) + place
            moved[here] = Some(hit, np.ones(len(hit), np.bool_))
            if self._heaviest is not None:
                z = self._changes(block.take(hit), loss, first[place][hit], now[own][place][hit])
                totals[here], squares[here] = Some(hit, z), Some(hit, z * z)
        standing = _standing(block, now, losses, (own,))
        columns = [column.take(index) for column in self._columns]
        return table(columns, standing + moved, block.w, totals + squares)

    def _changes(self, block: Block, loss: Loss, old: Actions, new: Actions) -> Ints:
        assert block.y is not None and self._heaviest is not None
        within = loss_range(loss, block.y.ndim == 2).times(self._heaviest)
        return loss_changes(loss, old, new, block.y, block.w, within)


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

    @property
    def briers(self) -> tuple[int, ...]:
        return tuple(self.brier_sum(model) for model in range(1, self.models + 1))

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


def all_rows(sums: SegmentSums, rules: Rules, column: int = 0) -> SegmentMetrics:
    """What the sums of a column say of all rows, whatever their values."""
    whole = [sum(numbers) for numbers in zip(*sums.sums[column].values(), strict=True)]
    return SegmentMetrics(Segment("", "value"), whole, rules.losses, rules.models)


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

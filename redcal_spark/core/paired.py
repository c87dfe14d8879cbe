"""Paired differences: what a log changed on each holdout row, as exact sums that merge.

x is, row by row, the decision loss after minus before (on the quantised loss) or the Brier score
before minus after. It lies between -R and R, R a power of two, and is kept as the integer
z = floor(x 2^26 / R), at most 2^26 in size. Sums of z and z^2 are all that an interval needs; they
are integers, the same in any order, on any engine. A row that nothing touched has x = 0.
Where rows have weights, w x takes the place of x, and R is for the largest weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from redcal_spark.core.additive import Additive
from redcal_spark.core.blocks import Block
from redcal_spark.core.fixed_point import BITS, HALF, ONE, Grid, Ints
from redcal_spark.core.kernel import Index, chunks
from redcal_spark.core.losses import Loss
from redcal_spark.core.patches import Patch, full_phi
from redcal_spark.core.responses import Actions
from redcal_spark.core.rows import Rows


@dataclass(frozen=True)
class Range:
    """x lies in [-reach, reach], in units of 2^-bits.

    shift: a unit of z is 2^(shift - 26 - bits); R, the least power of two that is at least the
    reach, is 2^(shift - bits).
    """

    reach: int
    bits: int

    @property
    def shift(self) -> int:
        return (max(self.reach, 1) - 1).bit_length()

    def times(self, weight: int) -> Range:
        """Of w x, for weights up to this."""
        return Range(self.reach * weight, self.bits)

    @property
    def length(self) -> Fraction:
        """r: of the interval that x lies in."""
        return Fraction(2 * self.reach, 1 << self.bits)

    @property
    def unit(self) -> Fraction:
        """What 1 in z is worth: R 2^-26."""
        return Fraction(1 << self.shift, 1 << self.bits + BITS)


def loss_range(loss: Loss, vectors: bool) -> Range:
    """Of the change of a row's quantised loss; vectors: labels are vectors."""
    return Range(loss.vector_reach if vectors else loss.class_reach, loss.bits)


def brier_ranges(cut: Sequence[Sequence[Patch]], d: int, binary: bool) -> list[Range]:
    """Of the change of a row's Brier score under the model that a segment patches, after it.

    A score moves by c at most, the sum of |phi| so far and never beyond the box; its square then
    changes by c (2 - c) at most.
    """
    moved: dict[int, Ints] = {}
    ranges = []
    for segment in cut:
        own = moved.setdefault(segment[0].model, np.zeros(d, np.int64))
        for patch in segment:
            own += np.abs(np.array(full_phi(patch, d, binary), np.int64))
        c = np.minimum(own, ONE)
        squares = c * (2 * ONE - c)  # 52 bits each, of up to 2^14
        reach = (int((squares >> BITS).sum()) << BITS) + int((squares & ONE - 1).sum())
        ranges.append(Range(reach, 2 * BITS))
    return ranges


NOWHERE = Range(0, 2 * BITS)


@dataclass(frozen=True)
class Moments(Additive):
    """The sums of z and of z^2 over rows, as Python integers: they add up without end."""

    total: int = 0
    squares: int = 0

    @classmethod
    def of(cls, z: Ints) -> Moments:
        """Squares by 13-bit halves: three int64 sums are exact below 2^36 rows."""
        high, low = z >> HALF, z & (1 << HALF) - 1
        squares = int(np.dot(high, high)) << 2 * HALF
        squares += int(np.dot(high, low)) << HALF + 1
        return cls(int(z.sum()), squares + int(np.dot(low, low)))


@dataclass(frozen=True)
class Paired(Additive):
    """What changed on some rows since the first patch, per model.

    losses: per model and loss. rounds: the same since the first round started, which is later where
    a calibration everywhere came before. brier: per model. vectors: labels are vectors.
    """

    vectors: bool
    losses: tuple[tuple[Moments, ...], ...]
    rounds: tuple[tuple[Moments, ...], ...]
    brier: tuple[Moments, ...]

    @classmethod
    def nothing(cls, vectors: bool, losses: int, models: int) -> Paired:
        """What no patch changed."""
        row = (Moments(),) * losses
        return cls(vectors, (row,) * models, (row,) * models, (Moments(),) * models)

    def _merged(self, other: Paired, how: Callable[[Any, Any], Any]) -> Paired:
        if self.vectors != other.vectors:
            raise ValueError("labels are vectors on some rows and classes on others")
        return super()._merged(other, how)


class Pairing:
    """The rows of a block as they were, to pair with what a log makes of them."""

    def __init__(self, block: Block, rows: Rows, heaviest: int = 1):
        """heaviest: the largest weight of all holdout rows, here or elsewhere."""
        assert block.y is not None
        self._heaviest = heaviest
        self._f = block.f  # `rows` has copies
        self.first = [actions.copy() for actions in rows.actions]
        self._start: list[Actions] | None = None  # when the first round started
        self._within = [NOWHERE] * len(block.f)

    def change(
        self,
        segment: Sequence[Patch],
        within: Range,
        rows: Rows,
        index: Index,
        act: Callable[[], None],
    ) -> Paired:
        """What a segment changes, which `act` applies, and which touches rows of `index` only.

        within: what the model's Brier scores can have changed by after it. If that takes a larger
        unit, the sums of all rows change.
        """
        i = segment[0].model - 1
        if segment[0].round is not None and self._start is None:
            calibrated = any(range_.reach for range_ in self._within)
            self._start = [a.copy() for a in rows.actions] if calibrated else self.first
        old = self._within[i]
        moved = index if old.shift == within.shift or not old.reach else np.arange(len(rows))
        before = self._standing(i, rows, index, moved)
        act()
        self._within[i] = within
        return self._standing(i, rows, index, moved) - before

    def _standing(self, i: int, rows: Rows, index: Index, moved: Index) -> Paired:
        """How the rows stand under model i + 1, compared with how they were."""
        assert rows.y is not None
        losses, y, w = rows.rules.losses.losses, rows.y, rows.w

        def against(before: Sequence[Actions]) -> tuple[Moments, ...]:
            return tuple(
                loss_moments(
                    *(loss, before[i][place], rows.actions[i][place], y, index),
                    *(w, self._heaviest),
                )
                for place, loss in enumerate(losses)
            )

        def own(moments: Any, nothing: Any) -> Any:
            return tuple(moments if k == i else nothing for k in range(len(self._f)))

        whole = against(self.first)
        rounds = none = (Moments(),) * len(losses)
        if self._start is not None:
            rounds = whole if self._start is self.first else against(self._start)
        brier = _brier_moments(self._f[i], rows.f[i], y, moved, w, self._within[i])
        return Paired(y.ndim == 2, own(whole, none), own(rounds, none), own(brier, Moments()))


def loss_moments(
    loss: Loss,
    before: Actions,
    after: Actions,
    y: Grid,
    index: Index,
    w: Ints | None = None,
    heaviest: int = 1,
) -> Moments:
    """Of loss after minus before; only rows whose action changed have any."""
    moved = index[before[index] != after[index]]
    moments, costs = Moments(), loss.quantised
    within = loss_range(loss, y.ndim == 2).times(heaviest)
    for part in chunks(len(moved), costs.shape[1] if y.ndim == 2 else 1):
        rows = moved[part]
        some = None if w is None else w[rows]
        z = loss_changes(loss, before[rows], after[rows], y[rows], some, within)
        moments += Moments.of(z)
    return moments


def loss_changes(
    loss: Loss, before: Actions, after: Actions, y: Grid, w: Ints | None, within: Range
) -> Ints:
    """z of every row: its loss after minus before, times its weight."""
    costs, old, new = loss.quantised, before.astype(np.intp), after.astype(np.intp)
    if y.ndim == 1:
        x: Ints = (costs[new, y] - costs[old, y]) << BITS
    else:  # below 2^62 in all, by the choice of G
        x = np.einsum("ij,ij->i", costs[new] - costs[old], y.astype(np.int64))
    if w is None:
        return x >> within.shift
    return _weighted(x, w, within.reach << BITS, within.shift)


def _weighted(x: Ints, w: Ints, reach: int, shift: int) -> Ints:
    """floor(w x / 2^shift); reach: what w x is at most, in size."""
    wide = x if reach < 1 << 62 else x.astype(object)
    exact: Ints = (wide * w >> shift).astype(np.int64)
    return exact


def _brier_moments(
    before: Grid, after: Grid, y: Grid, index: Index, w: Ints | None, within: Range
) -> Moments:
    """Of the Brier score before minus after: a difference of squares is a product.

    A product has 52 bits, and there are up to 2^14 of them: they are added up by halves.
    """
    moments, shift = Moments(), within.shift - BITS
    if not within.reach:
        return moments
    for part in chunks(len(index), 4 * before.shape[1]):
        rows = index[part]
        one, two = (f.take(rows, axis=0).astype(np.int64) for f in (before, after))
        both = one + two
        if y.ndim == 2:
            both -= 2 * y.take(rows, axis=0).astype(np.int64)
        else:
            both[np.arange(len(rows)), y[rows]] -= 2 * ONE
        both *= one - two
        high = (both >> BITS).sum(axis=1)
        low = (both & ONE - 1).sum(axis=1)
        if w is not None:
            small = within.reach < 1 << 62
            x = (high if small else high.astype(object)) * ONE + low
            z = _weighted(x, w[rows], within.reach, shift)
        elif shift <= BITS:
            z = (high << BITS - shift) + (low >> shift)
        else:
            z = high + (low >> BITS) >> shift - BITS
        moments += Moments.of(z)
    return moments

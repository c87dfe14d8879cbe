"""Metrics: exact sums over rows, and the numbers people read off them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from redcal_spark.core.additive import Additive
from redcal_spark.core.blocks import Block, label_rows
from redcal_spark.core.events import pairs_of
from redcal_spark.core.fixed_point import BITS, ONE, Grid, Ints, sum_of_squares
from redcal_spark.core.kernel import (
    Classified,
    Events,
    Index,
    Rules,
    apart,
    chunks,
    classify,
    event_counts,
    gap_counts,
    no_events,
    respond,
)
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.paired import Paired
from redcal_spark.core.responses import Actions
from redcal_spark.core.segments import SegmentSums
from redcal_spark.core.sums import cell_label_sums, cell_score_sums
from redcal_spark.core.weights import Weighed, Weights, counted, summed, weighted_squares

# Fields that only some totals have: of an audit, of holdout rows, at the last point.
OF_SOME = ("pair_labels", "paired", "weights", "segments", "touched", "moves", "move_labels")
PAIR_NUMBERS = 1 << 22  # label sums by pairs of actions, of all losses together: 32 MB a task


@dataclass(frozen=True, eq=False)
class Totals(Additive, Weighed):
    """Sums over rows: integers that add up and can be taken away again.

    rows: the sum of the weights, where rows have weights: all else counts them so, too.
    brier: per model the sum of squared errors, in units of 2^-52.
    pairs, events: per loss, pair x a1 x a2: rows on which a pair of models has these best
    responses, rows in this event. apart, in_event: per loss, rows on which not all models have the
    same best response, and rows in an event of some pair.
    labels, scores: per model, cell x class. optimum: the same for the actions that know y.
    gaps: pair x coordinate, rows on which a pair differs beyond Reconcile's alpha.
    pair_labels: only for an audit, per loss, pair x a1 x a2 x class: label sums by both best
    responses. Empty for a loss that is too large for it.
    paired: only of holdout rows in a history: what the patches so far changed, row by row.
    weights: what a scan saw of them; None where every row counts once.
    segments: sums by the values of segment columns, where there are any.
    touched, moves, move_labels: only of these, and only after the last patch. touched: rows whose
    scores changed, of each model and of any. moves: of these, per model and loss, rows
    by their action before and after; move_labels: their label sums, as in pair_labels.
    """

    rows: int
    brier: tuple[int, ...]
    pairs: tuple[Ints, ...]
    events: tuple[Ints, ...]
    apart: Ints
    in_event: Ints
    labels: tuple[Ints, ...]
    scores: tuple[Ints, ...]
    optimum: Ints
    gaps: Ints
    pair_labels: tuple[Ints, ...] = ()
    paired: Paired | None = None
    weights: Weights | None = None
    segments: SegmentSums | None = None
    touched: tuple[Ints, ...] = ()
    moves: tuple[Ints, ...] = ()
    move_labels: tuple[Ints, ...] = ()

    @property
    def heaviest(self) -> int:
        """The largest weight."""
        return 1 if self.weights is None else self.weights.largest

    @property
    def weights_seen(self) -> dict[str, Any] | None:
        """What people are told of the weights."""
        if self.weights is None:
            return None
        effective = float(self.effective)
        return {"rows": self.counted, "largest": self.heaviest, "effective": effective}

    def residuals(self, model: int) -> Ints:
        """Sums of y - f, cell x class."""
        return self.labels[model - 1] - self.scores[model - 1]

    def taken(self, loss: int, model: int) -> Ints:
        """Rows by the action that a model takes: the first models are paired with model 1."""
        one, others = self.pairs[loss][0], self.pairs[loss][max(model - 2, 0)]
        rows: Ints = one.sum(axis=1) if model == 1 else others.sum(axis=0)
        return rows

    @classmethod
    def none(cls, rules: Rules, d: int) -> Totals:
        """The totals of no rows."""
        losses, squares = rules.losses, tuple(no_events(rules))
        cells, each = np.zeros((losses.n_cells, d), np.int64), np.zeros(len(losses), np.int64)
        models, brier = (cells,) * rules.models, (0,) * rules.models
        gaps = np.zeros((len(rules.pairs), d), np.int64)
        return cls(0, brier, squares, squares, each, each, models, models, cells, gaps)


def measure(
    block: Block,
    rules: Rules,
    known: Classified | None = None,
    counts: Sequence[Ints] | None = None,
    brier: tuple[int, ...] | None = None,
    *,
    audit: bool = False,
) -> Totals:
    """The totals of labelled rows.

    known: their actions and events; counts: rows of every event; brier: the sums of squared
    errors. All of them where they were computed.
    """
    assert block.y is not None
    losses, d, y, w = rules.losses, block.n_classes, block.y, block.w
    actions, events = known or classify(block, rules)
    pairs, different = pair_counts(actions, losses, w)
    counts = event_counts(events, losses, w) if counts is None else counts
    return Totals(
        block.weight,
        tuple(brier_sum(f, y, w) for f in block.f) if brier is None else brier,
        tuple(pairs),
        tuple(counts),
        different,
        event_rows(events, counts, losses, w),
        tuple(cell_label_sums(a, y, d, losses, w) for a in actions),
        tuple(cell_score_sums(a, f, losses, w) for a, f in zip(actions, block.f, strict=True)),
        optimal_label_sums(y, d, losses, w),
        gap_counts(block, rules),
        pair_label_sums(actions, y, d, losses, w) if audit else (),
    )


def pair_counts(
    actions: Sequence[Actions], losses: LossFamily, w: Ints | None
) -> tuple[list[Ints], Ints]:
    """Rows by the actions of every pair of models, per loss; and those where not all are alike."""
    pairs = pairs_of(len(actions))
    counts, differ = [], np.zeros(len(losses), np.int64)
    for place, loss in enumerate(losses.losses):
        k, own, some = loss.n_actions, [a[place] for a in actions], w
        count = np.zeros((len(pairs), k, k), np.int64)
        if len(pairs) > 1:  # most rows are alike in all pairs: they are counted once
            different = apart(np.stack(own))
            alike = counted(own[0], k, w)
            own, some = [a.take(different) for a in own], None if w is None else w.take(different)
            alike -= counted(own[0], k, some)
            count[:, np.arange(k), np.arange(k)] = alike
        wide = [a.astype(np.intp) for a in own]
        for pair, (i, j) in enumerate(pairs):
            both = counted(wide[i - 1] * k + wide[j - 1], k * k, some)
            count[pair] += both.reshape(k, k)
        counts.append(count)
        alone = count[0]
        if len(pairs) == 1:
            differ[place] = alone.sum() - np.trace(alone)
        else:
            differ[place] = len(own[0]) if some is None else some.sum()
    return counts, differ


def event_rows(
    events: Events, counts: Sequence[Ints], losses: LossFamily, w: Ints | None = None
) -> Ints:
    """Per loss, rows in an event of some pair. counts: rows of every event."""
    if events.shape[1] == 1:  # a row is in one event of a pair at most
        return np.array([count.sum() for count in counts], np.int64)
    in_some = (events != losses.no_event).any(axis=1)
    rows: Ints = np.count_nonzero(in_some, axis=1).astype(np.int64) if w is None else in_some @ w
    return rows


def brier_sum(f: Grid, y: Grid, w: Ints | None = None) -> int:
    """The exact sum of squared errors in units of 2^-52."""
    total = 0
    for part in chunks(len(f), 4 * f.shape[1]):
        if w is not None:
            error = f[part] - (y[part] if y.ndim == 2 else 0)
            if y.ndim == 1:
                error[np.arange(len(error)), y[part]] -= ONE
            total += weighted_squares(error, w[part])
        elif y.ndim == 2:
            total += sum_of_squares(f[part] - y[part])
        else:  # (f - ONE)^2 = f^2 - 2 ONE f + ONE^2 where the label is, f^2 elsewhere
            rows, d = part.stop - part.start, f.shape[1]
            hit = int(f[part].take(np.arange(0, rows * d, d) + y[part]).sum(dtype=np.int64))
            total += sum_of_squares(f[part]) - 2 * ONE * hit + rows * ONE * ONE
    return total


def optimal_label_sums(y: Grid, d: int, losses: LossFamily, w: Ints | None = None) -> Ints:
    """Label sums per cell for a decision maker who knows y."""
    if y.ndim == 1:  # all rows of a class have the same best action
        counts = counted(y, d, w) * ONE
        sums = np.zeros((losses.n_cells, d), np.int64)
        for place, loss in enumerate(losses.losses):
            best = losses.offsets[place] + loss.quantised.argmin(axis=0)  # the first on ties
            sums[best, np.arange(d)] = counts
        return sums
    sums = np.zeros((losses.n_cells, d), np.int64)
    for part in chunks(len(y), losses.n_cells):
        some = None if w is None else w[part]
        sums += cell_label_sums(respond(label_rows(y[part], d), losses), y[part], d, losses, some)
    return sums


def pair_label_sums(
    actions: Sequence[Actions], y: Grid, d: int, losses: LossFamily, w: Ints | None
) -> tuple[Ints, ...]:
    """Label sums by the actions of every pair of models, per loss, as far as PAIR_NUMBERS goes."""
    by_loss, left, pairs = [], PAIR_NUMBERS, pairs_of(len(actions))
    for place, loss in enumerate(losses.losses):
        k = loss.n_actions
        if len(pairs) * k * k * d > left:
            by_loss.append(np.zeros((0, 0, 0, d), np.int64))
            continue
        left -= len(pairs) * k * k * d
        own = [a[place].astype(np.intp) for a in actions]
        both = [_label_sums(own[i - 1] * k + own[j - 1], k * k, y, d, w) for i, j in pairs]
        by_loss.append(np.stack(both).reshape(len(pairs), k, k, d))
    return tuple(by_loss)


def _label_sums(group: Index, groups: int, y: Grid, d: int, w: Ints | None) -> Ints:
    """Label sums by group."""
    if y.ndim == 1:
        return counted(group * d + y, groups * d, w) * ONE
    return np.stack([summed(group, y[:, j], groups, w) for j in range(d)], axis=1)


@dataclass(frozen=True, eq=False)
class Metrics:
    """What the totals say, as exact fractions; models are 1, 2, ..., losses by place.

    binary: scores are one column P(1), where that is known.
    """

    totals: Totals
    losses: LossFamily
    binary: bool = False

    @property
    def rows(self) -> int:
        return self.totals.rows

    @property
    def models(self) -> range:
        return range(1, len(self.totals.brier) + 1)

    def brier(self, model: int) -> Fraction:
        """Mean squared error, summed over classes."""
        return Fraction(self.totals.brier[model - 1], self.rows << 2 * BITS)

    def usual_brier(self, model: int) -> Fraction:
        """As people know it: of one column P(1) the mean of (f - y)^2, half of the sum."""
        return self.brier(model) / 2 if self.binary else self.brier(model)

    def decision_loss(self, loss: int, model: int) -> Fraction:
        """Mean cost of the model's best responses, in the user's units."""
        sums = self.totals.labels[model - 1][self.losses.cells(loss)]
        return self.losses[loss].cost(sums) / self.rows

    def optimal_loss(self, loss: int) -> Fraction:
        """Mean cost of the actions that know y."""
        return self.losses[loss].cost(self.totals.optimum[self.losses.cells(loss)]) / self.rows

    def loss_gap(self, loss: int, model: int) -> Fraction:
        return self.decision_loss(loss, model) - self.optimal_loss(loss)

    def disagreement(self, loss: int) -> Fraction:
        """Share of rows on which not all best responses are the same, by whatever margin."""
        return Fraction(int(self.totals.apart[loss]), self.rows)

    def largest_event(self, loss: int) -> Fraction:
        """Mass of the largest disagreement event of a loss."""
        return Fraction(int(self.totals.events[loss].max()), self.rows)

    def largest_gap(self) -> Fraction:
        """For Reconcile: the largest share of rows on which a pair is beyond alpha in one class."""
        return Fraction(int(self.totals.gaps.max(initial=0)), self.rows)

    def squared_calibration_gaps(self, loss: int, model: int) -> list[Fraction]:
        """Per action of a loss, the squared norm of the mean residual vector."""
        cells = self.losses.cells(loss)
        sums = self.totals.residuals(model)[cells].tolist()
        return [Fraction(sum(x * x for x in row), (self.rows << BITS) ** 2) for row in sums]

    def squared_calibration_gap(self, loss: int, model: int) -> Fraction:
        """The largest of them."""
        return max(self.squared_calibration_gaps(loss, model))


def root(square: Fraction) -> float:
    """The square root as a float, for display: comparisons use the exact square."""
    return math.sqrt(square)


def brier_words(binary: bool) -> str:
    """Which Brier score people are shown."""
    return "Brier score (f - y)^2" if binary else "Brier score over all classes"

"""One look at rows: best responses, events, and which rows are active. Pure numpy, exact.

Patches are in `rows`, sums that decide in `sums`, those that only measure in `metrics`, `moves` and
`segment_numbers`: these are the only arithmetic over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.events import Pair, pairs_of
from redcal_spark.core.fixed_point import Floats, Ints
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.responses import Actions, Scores, best_response, cheapest
from redcal_spark.core.weights import counted

Index = npt.NDArray[np.intp]
Events = Actions  # loss x pair x row: a1 * K + a2, or the losses' `no_event`
Classified = tuple[list[Actions], Events]  # best responses per model, and events

CHUNK = 16_384  # rows at a time, at most: fewer are all calls and locks, more leave the cache


def chunks(rows: int, height: int = 1, models: int = 2) -> Iterator[slice]:
    """Slices of rows for arrays of `height` numbers a row, of so many models at once."""
    size = max(1_024, min(CHUNK, 2**19 // max(height, 1)) * 2 // models)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


@dataclass(frozen=True)
class Rules:
    """What the kernel must know to decide events; sent to workers with the patches.

    thresholds: per loss, the integer score gap above which a disagreement counts.
    gap: for Reconcile, the integer score difference above which two models disagree; else None.
    binary: scores were one column P(1), so that coordinate 0 is the complement of coordinate 1.
    models: how many there are.
    """

    losses: LossFamily
    thresholds: tuple[int, ...]
    gap: int | None
    binary: bool
    models: int = 2

    def of_scores(self) -> Rules:
        """The same without losses: all that fitting Reconcile needs."""
        return Rules(LossFamily(()), (), self.gap, self.binary, self.models)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The models that are compared, two at a time."""
        return pairs_of(self.models)

    @property
    def coordinates(self) -> slice:
        """The coordinates Reconcile looks at."""
        return slice(1, 2) if self.binary else slice(None)


def respond(f: Floats, losses: LossFamily) -> Actions:
    """Best responses to grid values, loss x row."""
    actions = np.empty((len(losses), len(f)), losses.action_type)
    with Buffers.borrowed() as buffers:
        for part in chunks(len(f), losses.n_cells):
            for group in losses.groups:
                scores = group.scores(f[part], buffers)
                actions[group.index, part] = cheapest(scores, losses.action_type)
    return actions


def classify(block: Block, rules: Rules) -> Classified:
    """Best responses of every model, loss x row, and the events of every row, loss x pair x row."""
    losses, models = rules.losses, len(block.f)
    actions = [np.empty((len(losses), block.rows), losses.action_type) for _ in block.f]
    shape = (len(losses), len(rules.pairs), block.rows)
    events = np.full(shape, losses.no_event, losses.event_type)
    if not len(losses):
        return actions, events
    pairs = np.array(rules.pairs, np.intp).T - 1
    with Buffers.borrowed() as buffers:
        for part in chunks(block.rows, losses.n_cells, models):
            size = part.stop - part.start
            # one model after the other: fewer calls, each of them longer
            rows = buffers.array("rows", (models * size, block.n_classes), np.float64)
            for i, f in enumerate(block.f):
                rows[i * size : (i + 1) * size] = f[part]
            for group in losses.groups:
                scores = group.scores(rows, buffers)
                chosen, best = best_response(scores, losses.action_type)
                for i, place in enumerate(group.index):
                    each = chosen[i].reshape(models, -1)
                    for own, new in zip(actions, each, strict=True):
                        own[place, part] = new
                    threshold = rules.thresholds[place]
                    hit, code, sure = _disagreements(each, scores, best, i, threshold, pairs)
                    code[~sure] = losses.no_event
                    events[int(place)][:, part.start + hit] = code
    return actions, events


def apart(actions: Actions) -> Index:
    """Rows on which not all models take the same action. actions: model x row."""
    if len(actions) == 2:
        return np.flatnonzero(actions[0] != actions[1])
    return np.flatnonzero((actions[1:] != actions[0]).any(axis=0))


def _disagreements(
    actions: Actions, scores: Scores, best: Scores, loss: int, threshold: int, pairs: Index
) -> tuple[Index, Index, npt.NDArray[np.bool_]]:
    """Rows whose actions differ; per pair of models (line) a1 * K + a2, and whether that counts.

    One look for all pairs: the scores are there, and only those of differing rows are read.
    actions: model x row. scores, best: action x loss x (model, row), loss x (model, row). pairs:
    the places of the first models, and of the second ones.
    """
    differ, flat = apart(actions), scores.reshape(-1)
    one_action, start = scores[0].size, loss * scores.shape[2]
    own = actions.take(differ, axis=1).astype(np.intp)
    first, second = own.take(pairs[0], axis=0), own.take(pairs[1], axis=0)
    sure = np.zeros(first.shape, np.bool_)
    for place, other in ((pairs[0], second), (pairs[1], first)):
        there = place[:, None] * actions.shape[1] + differ
        gap = flat.take(other * one_action + (there + start)) - best[loss].take(there)
        sure |= gap > threshold
    # where a pair takes the same action, both gaps are 0, and no threshold is below that
    return differ, first * len(scores) + second, sure


def beyond_gap(block: Block, rules: Rules) -> npt.NDArray[np.bool_]:
    """Row x coordinate: whether some models differ by more than Reconcile allows."""
    scores = [f[:, rules.coordinates] for f in block.f]
    if len(scores) == 2:
        return np.asarray(np.abs(scores[0] - scores[1]) > rules.gap)
    spread = np.maximum.reduce(scores) - np.minimum.reduce(scores)
    return np.asarray(spread > rules.gap)


def gap_counts(block: Block, rules: Rules) -> Ints:
    """Pair x coordinate: rows on which a pair differs by more than Reconcile allows."""
    counts = np.zeros((len(rules.pairs), block.n_classes), np.int64)
    part = rules.coordinates
    for place, (i, j) in enumerate(rules.pairs if rules.gap is not None else ()):
        far = np.abs(block.f[i - 1][:, part] - block.f[j - 1][:, part]) > rules.gap
        w = block.w
        counts[place, part] = np.count_nonzero(far, axis=0) if w is None else np.dot(w, far)
    return counts


def active(block: Block, events: Events, rules: Rules) -> Index:
    """Rows that a run may still act on: those in some event; for Reconcile those beyond the gap."""
    if rules.gap is not None:
        return np.flatnonzero(beyond_gap(block, rules).any(axis=1))
    return np.flatnonzero((events != rules.losses.no_event).any(axis=(0, 1)))


def event_counts(events: Events, losses: LossFamily, w: Ints | None) -> list[Ints]:
    """Rows of every event, each counted w times: one pair x K x K array per loss."""
    counts = []
    for loss, lines in zip(losses.losses, events, strict=True):
        k = loss.n_actions
        count = np.empty((len(lines), k, k), np.int64)
        for place, codes in enumerate(lines):
            hit = np.flatnonzero(codes != losses.no_event)  # a mask is slower by far
            some = None if w is None else w.take(hit)
            count[place] = counted(codes.take(hit), k * k, some).reshape(k, k)
        counts.append(count)
    return counts


def no_events(rules: Rules) -> list[Ints]:
    """The counts of no rows."""
    sizes, pairs = [loss.n_actions for loss in rules.losses.losses], len(rules.pairs)
    return [np.zeros((pairs, k, k), np.int64) for k in sizes]


@dataclass(frozen=True)
class BlockScan:
    """What one look at a block gives: how many rows are in every event, and the active rows.

    At the end of a round a row outside every event is never patched again, so that a run needs only
    the active ones. Decision Calibration everywhere keeps them all.
    """

    counts: list[Ints]
    active: Block
    classified: Classified

    def own_classified(self) -> Classified:
        """A copy that patches may change."""
        actions, events = self.classified
        return [a.copy() for a in actions], events.copy()


def scan(
    block: Block, rules: Rules, everywhere: bool = False, known: Classified | None = None
) -> BlockScan:
    actions, events = known or classify(block, rules)
    if everywhere:
        return BlockScan(event_counts(events, rules.losses, block.w), block, (actions, events))
    index = active(block, events, rules)
    chosen = [a.take(index, axis=1) for a in actions], events.take(index, axis=2)
    # for Reconcile rows are chosen by their scores; else every event is among the chosen
    kept = block.take(index)
    seen, w = (events, block.w) if rules.gap is not None else (chosen[1], kept.w)
    return BlockScan(event_counts(seen, rules.losses, w), kept, chosen)

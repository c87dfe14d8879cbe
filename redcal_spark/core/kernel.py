"""One look at rows: best responses, events, and which rows are active. Pure numpy, exact.

Patches are in `rows`, sums over rows in `sums`: the three are the only arithmetic over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.fixed_point import Floats, Ints
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.responses import Actions, Scores, best_response, cheapest
from redcal_spark.core.weights import counted

Index = npt.NDArray[np.intp]
Classified = tuple[list[Actions], Actions]  # best responses per model, and events

CHUNK = 16_384  # rows at a time, at most: fewer are all calls and locks, more leave the cache


def chunks(rows: int, height: int = 1) -> Iterator[slice]:
    """Slices of rows for arrays of `height` numbers a row."""
    size = max(1_024, min(CHUNK, 2**19 // max(height, 1)))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


@dataclass(frozen=True)
class Rules:
    """What the kernel must know to decide events; sent to workers with the patches.

    thresholds: per loss, the integer score gap above which a disagreement counts.
    gap: for Reconcile, the integer score difference above which two models disagree; else None.
    binary: scores were one column P(1), so that coordinate 0 is the complement of coordinate 1.
    """

    losses: LossFamily
    thresholds: tuple[int, ...]
    gap: int | None
    binary: bool

    def of_scores(self) -> Rules:
        """The same without losses: all that fitting Reconcile needs."""
        return Rules(LossFamily(()), (), self.gap, self.binary)

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
    """Best responses of both models and the event of every row, loss x row."""
    losses = rules.losses
    actions = [np.empty((len(losses), block.rows), losses.action_type) for _ in range(2)]
    events = np.full((len(losses), block.rows), losses.no_event, losses.event_type)
    if not len(losses):
        return actions, events
    with Buffers.borrowed() as buffers:
        for part in chunks(block.rows, losses.n_cells):
            f1, f2 = block.f1[part], block.f2[part]
            # one model after the other: half as many calls, each twice as long
            rows = buffers.array("rows", (2 * len(f1), block.n_classes), np.float64)
            rows[: len(f1)], rows[len(f1) :] = f1, f2
            for group in losses.groups:
                scores = group.scores(rows, buffers)
                chosen, best = best_response(scores, losses.action_type)
                for i, place in enumerate(group.index):
                    actions[0][place, part], actions[1][place, part] = chosen[i].reshape(2, -1)
                    threshold = rules.thresholds[place]
                    hit, code = _disagreements(chosen[i], scores[:, i], best[i], threshold)
                    events[place, part.start + hit] = code
    return actions, events


def _disagreements(
    actions: Actions, scores: Scores, best: Scores, threshold: int
) -> tuple[Index, Index]:
    """Rows in some event, and which: a1 * K + a2. Only rows whose actions differ are looked at.

    The arguments hold the rows of model 1, then those of model 2.
    """
    rows = len(actions) // 2
    differ = np.flatnonzero(actions[:rows] != actions[rows:])
    both = np.concatenate([differ, differ + rows])
    a1, a2 = actions.take(both).astype(np.intp).reshape(2, -1)
    gap = scores[np.concatenate([a2, a1]), both] - best.take(both)
    sure = (gap > threshold).reshape(2, -1).any(axis=0)
    return differ[sure], (a1 * len(scores) + a2)[sure]


def beyond_gap(block: Block, rules: Rules) -> npt.NDArray[np.bool_]:
    """Row x coordinate: whether the models differ by more than Reconcile allows."""
    part = rules.coordinates
    return np.asarray(np.abs(block.f1[:, part] - block.f2[:, part]) > rules.gap)


def active(block: Block, events: Actions, rules: Rules) -> Index:
    """Rows that a run may still act on: those in some event; for Reconcile those beyond the gap."""
    if rules.gap is not None:
        return np.flatnonzero(beyond_gap(block, rules).any(axis=1))
    return np.flatnonzero((events != rules.losses.no_event).any(axis=0))


def event_counts(events: Actions, losses: LossFamily, w: Ints | None = None) -> list[Ints]:
    """Rows of every event, each counted w times: one K x K array per loss."""
    counts = []
    for loss, codes in zip(losses.losses, events, strict=True):
        k = loss.n_actions
        hit = np.flatnonzero(codes != losses.no_event)  # a mask is four times slower
        some = None if w is None else w.take(hit)
        counts.append(counted(codes.take(hit), k * k, some).reshape(k, k))
    return counts


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
    chosen = [a.take(index, axis=1) for a in actions], events.take(index, axis=1)
    # for Reconcile rows are chosen by their scores; else every event is among the chosen
    kept = block.take(index)
    seen, w = (events, block.w) if rules.gap is not None else (chosen[1], kept.w)
    return BlockScan(event_counts(seen, rules.losses, w), kept, chosen)

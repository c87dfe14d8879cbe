"""The rows of a block under patching: scan, events, replay. Pure numpy, exact.

Sums over rows are in `statistics`; the two modules are the only arithmetic over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.events import ActionRegion, Disagreement, ScoreGap
from redcal_spark.core.fixed_point import ONE, Floats, Grid, Ints
from redcal_spark.core.losses import Actions, LossFamily, Scores, best_response, cheapest
from redcal_spark.core.patches import Patch

Index = npt.NDArray[np.intp]

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


class Rows:
    """The rows of a block under patching: scores, best responses and events kept up to date.

    f: the scores of both models, int32, n x d, which patches change: copies, unless the block is
    our `own`.
    actions: per model, loss x row. events: loss x row, a1 * K + a2, or `none` outside every event.
    touched: per model, the rows that some patch acted on.
    """

    def __init__(
        self,
        block: Block,
        rules: Rules,
        classified: Classified | None = None,
        *,
        own: bool = False,
    ):
        self.rules = rules
        self.y = block.y
        self.f: list[Grid] = [f if own else f.copy() for f in (block.f1, block.f2)]
        self.actions, self.events = classified or classify(block, rules)
        self.touched = [np.zeros(block.rows, np.bool_) for _ in self.f]
        self.frozen: Index | None = None
        self.round: int | None = None
        self._stale: Index | slice | None = None  # rows whose events no longer follow their scores

    def __len__(self) -> int:
        return len(self.f[0])

    def current(self, rows: Index | slice = slice(None)) -> Block:
        """The rows with their scores as patched so far."""
        return Block(self.f[0], self.f[1], self.y).take(rows)

    def take(self, rows: Index) -> Rows:
        """A copy of some rows, to be patched on its own."""
        classified = [a[:, rows] for a in self.actions], self.events[:, rows]
        return Rows(self.current(rows), self.rules, classified, own=True)

    @classmethod
    def gathered(cls, places: Sequence[tuple[Rows, Index]], room: Buffers) -> Rows:
        """Copies of rows of several parts, in memory that is lent."""
        parts, index = zip(*places, strict=True)
        ends = np.cumsum([len(rows) for rows in index]).tolist()

        def taken(name: str, arrays: Sequence[npt.NDArray[Any]], axis: int = 0) -> Any:
            shape = list(arrays[0].shape)
            shape[axis] = ends[-1]
            found = room.array(name, tuple(shape), arrays[0].dtype)
            for array, rows, end in zip(arrays, index, ends, strict=True):
                there = slice(end - len(rows), end)
                out = found[:, there] if axis else found[there]
                array.take(rows, axis, out, mode="clip")  # by other modes there would be a copy
            return found

        y = None if parts[0].y is None else taken("y", [part.y for part in parts])
        f1, f2 = (taken(f"f{i}", [part.f[i] for part in parts]) for i in range(2))
        actions = [taken(f"a{i}", [part.actions[i] for part in parts], 1) for i in range(2)]
        events = taken("events", [part.events for part in parts], 1)
        return cls(Block(f1, f2, y), parts[0].rules, (actions, events), own=True)

    def put(self, rows: Index, other: Rows, part: slice, models: Sequence[int]) -> None:
        """Write rows back to where `take` had them from, after patches of these models."""
        for i in (model - 1 for model in models):
            _put_rows(self.f[i], rows, other.f[i][part])
            self.actions[i][:, rows] = other.actions[i][:, part]
        self.events[:, rows] = other.events[:, part]

    def release(self) -> None:
        """The frozen rows were brought up to date from outside: nothing is frozen or stale."""
        self.frozen = self.round = self._stale = None

    # --- where patches act -------------------------------------------------------------------

    def in_event(self, event: Disagreement) -> Index:
        self.settle()
        k = self.rules.losses[event.loss].n_actions
        return np.flatnonzero(self.events[event.loss] == event.a1 * k + event.a2)

    def in_region(self, model: int, region: ActionRegion) -> Index:
        """Rows of the frozen event (of all, when none is) whose best response is the region's."""
        actions = self.actions[model - 1][region.loss]
        if self.frozen is None:
            return np.flatnonzero(actions == region.action)
        rows: Index = self.frozen[actions[self.frozen] == region.action]
        return rows

    def in_gap(self, gap: ScoreGap) -> Index:
        assert self.rules.gap is not None
        j = gap.coordinate
        difference = self.f[0][:, j] - self.f[1][:, j]
        over = difference > self.rules.gap if gap.direction == ">" else difference < -self.rules.gap
        return np.flatnonzero(over)

    def may_touch(self, patch: Patch) -> Index:
        """Rows that a round opened by this patch may act on; all, for a calibration everywhere."""
        if patch.kind == "score":
            return self.in_gap(_gap(patch))
        if patch.kind == "reconcile":
            return self.in_event(_event(patch, self.rules.losses))
        return np.arange(len(self))

    def settle(self) -> None:
        """Let events follow the scores again: only between rounds, for inside one E is frozen."""
        if self._stale is not None and len(self.rules.losses):
            _, self.events[:, self._stale] = classify(self.current(self._stale), self.rules)
        self._stale = None

    # --- patching ----------------------------------------------------------------------------

    def apply(self, patch: Patch) -> Index:
        """Replay one patch; returns the rows it acted on."""
        if patch.kind == "score":
            rows = self.in_gap(_gap(patch))
            self._shift_coordinate(patch, rows)
            return rows
        if patch.kind == "reconcile":
            self.frozen = rows = self.in_event(_event(patch, self.rules.losses))
            self.round = patch.round
        else:
            assert patch.round == self.round
            rows = self.in_region(patch.model, region_of(patch, self.rules.losses))
        self.shift(patch.model, rows, patch.shift)
        return rows

    def shift(self, model: int, rows: Index, phi: Grid) -> None:
        """Add phi to a model's scores, clip to the box, look at its best responses anew."""
        with Buffers.borrowed() as room:
            for part in chunks(len(rows), self.rules.losses.n_cells):
                self.shift_chunk(model, rows[part], phi, room)

    def shift_chunk(self, model: int, rows: Index, phi: Grid, room: Buffers) -> Floats:
        """The same for few rows. Returns the new scores, as float64 for products, in the room."""
        f = self.f[model - 1]
        grid = f.take(rows, 0, room.array("grid", (len(rows), len(phi)), np.int32), mode="clip")
        grid += phi
        np.clip(grid, 0, ONE, out=grid)
        _put_rows(f, rows, grid)
        new: Floats = room.array("rows", grid.shape, np.float64)
        new[:] = grid
        self._changed(model, rows, new)
        return new

    def _shift_coordinate(self, patch: Patch, rows: Index) -> None:
        model, j = patch.model, patch.coordinate
        f = self.f[model - 1]
        f[rows, j] = column = np.clip(f[rows, j] + patch.shift, 0, ONE)
        if self.rules.binary:
            f[rows, 0] = ONE - column
        wanted = rows if len(self.rules.losses) else rows[:0]
        self._changed(model, rows, f.take(wanted, axis=0).astype(np.float64))

    def _changed(self, model: int, rows: Index, new: Floats) -> None:
        self.touched[model - 1][rows] = True
        if len(self.rules.losses):
            self.actions[model - 1][:, rows] = respond(new, self.rules.losses)
            self._stale = slice(None) if self.frozen is None else self.frozen


def _put_rows(f: Grid, rows: Index, new: Grid) -> None:
    """f[rows] = new, a row at a time instead of a number at a time: three times quicker."""
    whole = np.dtype((np.void, f.itemsize * f.shape[1]))
    np.put(f.view(whole), rows, new.view(whole))


def _event(patch: Patch, losses: LossFamily) -> Disagreement:
    assert patch.loss is not None and patch.a1 is not None and patch.a2 is not None
    return Disagreement(losses.place(patch.loss), patch.a1, patch.a2)


def region_of(patch: Patch, losses: LossFamily) -> ActionRegion:
    assert patch.loss is not None and patch.action is not None
    return ActionRegion(losses.place(patch.loss), patch.action)


def _gap(patch: Patch) -> ScoreGap:
    assert patch.coordinate is not None and patch.direction is not None
    return ScoreGap(patch.coordinate, patch.direction)


# --- one look at rows ---------------------------------------------------------------------------


def respond(f: Floats, losses: LossFamily) -> Actions:
    """Best responses to grid values, loss x row."""
    actions = np.empty((len(losses), len(f)), losses.action_type)
    with Buffers.borrowed() as room:
        for part in chunks(len(f), losses.n_cells):
            for group in losses.groups:
                scores = group.scores(f[part], room)
                actions[group.index, part] = cheapest(scores, losses.action_type)
    return actions


def classify(block: Block, rules: Rules) -> Classified:
    """Best responses of both models and the event of every row, loss x row."""
    losses = rules.losses
    actions = [np.empty((len(losses), block.rows), losses.action_type) for _ in range(2)]
    events = np.full((len(losses), block.rows), np.iinfo(losses.event_type).max, losses.event_type)
    if not len(losses):
        return actions, events
    with Buffers.borrowed() as room:
        for part in chunks(block.rows, losses.n_cells):
            f1, f2 = block.f1[part], block.f2[part]
            # one model after the other: half as many calls, each twice as long
            rows = room.array("rows", (2 * len(f1), block.n_classes), np.float64)
            rows[: len(f1)], rows[len(f1) :] = f1, f2
            for group in losses.groups:
                scores = group.scores(rows, room)
                found, best = best_response(scores, losses.action_type)
                for i, place in enumerate(group.index):
                    actions[0][place, part], actions[1][place, part] = found[i].reshape(2, -1)
                    hit, code = _disagreements(
                        found[i], scores[:, i], best[i], rules.thresholds[place]
                    )
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


def in_some_event(events: Actions) -> npt.NDArray[np.bool_]:
    """Rows that a round of ReDCal may still act on."""
    return np.asarray((events != np.iinfo(events.dtype).max).any(axis=0))


def beyond_gap(block: Block, rules: Rules) -> npt.NDArray[np.bool_]:
    """Rows that Reconcile may still act on."""
    part = rules.coordinates
    over = np.abs(block.f1[:, part] - block.f2[:, part]) > rules.gap
    return np.asarray(over.any(axis=1))


def event_counts(events: Actions, losses: LossFamily) -> list[Ints]:
    """Rows of every event: one K x K array per loss."""
    none = np.iinfo(events.dtype).max
    counts = []
    for loss, codes in zip(losses.losses, events, strict=True):
        k = loss.n_actions
        hit = codes.take(np.flatnonzero(codes != none))  # four times quicker than by a mask
        found = np.bincount(hit, minlength=k * k)
        counts.append(found.astype(np.int64).reshape(k, k))
    return counts


Classified = tuple[list[Actions], Actions]  # best responses per model, and events


@dataclass(frozen=True)
class BlockScan:
    """What one look at a block gives: how many rows, how many in every event, and the active rows.

    At the end of a round a row outside every event is never patched again, so that a run needs only
    the active ones. Decision Calibration everywhere keeps them all.
    """

    rows: int
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
        return BlockScan(block.rows, event_counts(events, rules.losses), block, (actions, events))
    kept = beyond_gap(block, rules) if rules.gap is not None else in_some_event(events)
    index = np.flatnonzero(kept)
    chosen = [a.take(index, axis=1) for a in actions], events.take(index, axis=1)
    # for Reconcile rows are chosen by their scores; else every event is among the chosen
    counted = events if rules.gap is not None else chosen[1]
    counts = event_counts(counted, rules.losses)
    return BlockScan(block.rows, counts, block.take(index), chosen)


@dataclass(frozen=True)
class Replayed:
    """A block after a log: scores, who was touched, and the actions before and after."""

    f: list[Grid]
    touched: list[npt.NDArray[np.bool_]]
    before: list[Actions]
    after: list[Actions]


def replay(block: Block, rules: Rules, log: Sequence[Patch]) -> Replayed:
    """Replay a log, in order, on the original scores. Labels are not looked at.

    A row that is in no event when the first round starts is never touched, so that only a log that
    calibrates everywhere (or Reconcile's, by its own rule) looks at all of them.
    """
    before, events = classify(block, rules)
    if any(patch.kind == "calibrate" and patch.round is None for patch in log):
        index = np.arange(block.rows)
    elif rules.gap is not None:
        index = np.flatnonzero(beyond_gap(block, rules))
    else:
        index = np.flatnonzero(in_some_event(events))
    known = [a.take(index, axis=1) for a in before], events.take(index, axis=1)
    rows = Rows(block.take(index), rules, known, own=True)
    for patch in log:
        rows.apply(patch)
    f, after = [block.f1.copy(), block.f2.copy()], [a.copy() for a in before]
    touched = [np.zeros(block.rows, np.bool_) for _ in f]
    for i in range(2):
        f[i][index] = rows.f[i]
        after[i][:, index] = rows.actions[i]
        touched[i][index] = rows.touched[i]
    return Replayed(f, touched, before, after)

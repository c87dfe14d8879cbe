"""The rows of a block under patching, and the replay of a log on them. Pure numpy, exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.blocks import Block
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.events import Disagreement, ScoreGap
from redcal_spark.core.fixed_point import ONE, Floats, Grid
from redcal_spark.core.kernel import Classified, Index, Rules, active, chunks, classify, respond
from redcal_spark.core.patches import Patch
from redcal_spark.core.responses import Actions


class Rows:
    """The rows of a block under patching: scores, best responses and events kept up to date.

    f: the scores of every model, int32, n x d, which patches change: copies, unless the block is
    our `own`.
    actions: per model, loss x row. events: loss x pair x row, as the kernel has them.
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
        self.w, self.s = block.w, block.s
        self.f: list[Grid] = [f if own else f.copy() for f in block.f]
        self.actions, self.events = classified or classify(block, rules)
        self.touched = [np.zeros(block.rows, np.bool_) for _ in self.f]
        self.frozen: Index | None = None
        self.round: int | None = None
        self._stale: Index | slice | None = None  # rows whose events no longer follow their scores

    def __len__(self) -> int:
        return len(self.f[0])

    @property
    def weight(self) -> int:
        """As how many rows these count."""
        return len(self) if self.w is None else int(self.w.sum())

    def weight_of(self, index: Index) -> int:
        """As how many rows some of them count."""
        return len(index) if self.w is None else int(self.w[index].sum())

    def current(self, rows: Index | slice = slice(None)) -> Block:
        """The rows with their scores as patched so far."""
        return Block(tuple(self.f), self.y, self.w, self.s).take(rows)

    def take(self, rows: Index) -> Rows:
        """A copy of some rows, to be patched on its own."""
        classified = [a[:, rows] for a in self.actions], self.events[:, :, rows]
        return Rows(self.current(rows), self.rules, classified, own=True)

    @classmethod
    def of_model(cls, block: Block, rules: Rules, model: int, *, own: bool) -> Rows:
        """Rows on which one model is patched and asked for; of the others nothing is known.

        own: nothing will be patched, or the block is ours.
        """
        scores = block.f[model - 1]
        actions = respond(scores.astype(np.float64), rules.losses)
        nowhere = np.empty((0, 0, block.rows), rules.losses.event_type)
        rows = cls(block, rules, ([actions] * len(block.f), nowhere), own=True)
        if not own:
            rows.f[model - 1] = scores.copy()
        return rows

    @classmethod
    def gathered(cls, places: Sequence[tuple[Rows, Index]], buffers: Buffers) -> Rows:
        """Copies of rows of several parts, in the buffers."""
        parts, index = zip(*places, strict=True)
        ends = np.cumsum([len(rows) for rows in index]).tolist()

        def taken(name: str, arrays: Sequence[npt.NDArray[Any]], axis: int = 0) -> Any:
            shape = list(arrays[0].shape)
            shape[axis] = ends[-1]
            copies = buffers.array(name, tuple(shape), arrays[0].dtype)
            for array, rows, end in zip(arrays, index, ends, strict=True):
                there = slice(end - len(rows), end)
                out = copies[..., there] if axis else copies[there]
                array.take(rows, axis, out, mode="clip")  # by other modes there would be a copy
            return copies

        y = None if parts[0].y is None else taken("y", [part.y for part in parts])
        w = None if parts[0].w is None else taken("w", [part.w for part in parts])
        models = range(len(parts[0].f))
        f = tuple(taken(f"f{i}", [part.f[i] for part in parts]) for i in models)
        actions = [taken(f"a{i}", [part.actions[i] for part in parts], 1) for i in models]
        events = taken("events", [part.events for part in parts], 2)
        return cls(Block(f, y, w), parts[0].rules, (actions, events), own=True)

    def put(self, rows: Index, other: Rows, part: slice, models: Sequence[int]) -> None:
        """Write rows back to where `take` had them from, after patches of these models."""
        for i in (model - 1 for model in models):
            _put_rows(self.f[i], rows, other.f[i][part])
            self.actions[i][:, rows] = other.actions[i][:, part]
        self.events[:, :, rows] = other.events[:, :, part]

    def release(self) -> None:
        """The frozen rows were brought up to date from outside: nothing is frozen or stale."""
        self.frozen = self.round = self._stale = None

    # --- where patches act -------------------------------------------------------------------

    def in_event(self, event: Disagreement) -> Index:
        self.settle()
        k = self.rules.losses[event.loss].n_actions
        codes = self.events[event.loss, self.rules.pairs.index(event.pair)]
        return np.flatnonzero(codes == event.a1 * k + event.a2)

    def acted_on(self, patch: Patch) -> Index:
        """The rows that a patch acts on; if it calibrates, of the frozen event or of all rows."""
        event = patch.event(self.rules.losses)
        if isinstance(event, Disagreement):
            return self.in_event(event)
        if isinstance(event, ScoreGap):
            assert self.rules.gap is not None
            one, two = (self.f[model - 1][:, event.coordinate] for model in event.pair)
            above = one - two if event.direction == ">" else two - one
            return np.flatnonzero(above > self.rules.gap)
        actions = self.actions[patch.model - 1][event.loss]
        if self.frozen is None:
            return np.flatnonzero(actions == event.action)
        rows: Index = self.frozen[actions[self.frozen] == event.action]
        return rows

    def may_touch(self, patch: Patch) -> Index:
        """Rows that a round opened by this patch may act on; all, for a calibration everywhere."""
        return np.arange(len(self)) if patch.kind == "calibrate" else self.acted_on(patch)

    def active(self) -> Index:
        """Rows that a run may still act on, between rounds."""
        self.settle()
        return active(self.current(), self.events, self.rules)

    def settle(self) -> None:
        """Let events follow the scores again: only between rounds, for inside one E is frozen."""
        if self._stale is not None and len(self.rules.losses):
            _, self.events[:, :, self._stale] = classify(self.current(self._stale), self.rules)
        self._stale = None

    # --- patching ----------------------------------------------------------------------------

    def apply(self, patch: Patch) -> Index:
        """Replay one patch; returns the rows it acted on."""
        assert patch.kind != "calibrate" or patch.round == self.round
        rows = self.acted_on(patch)
        if patch.kind == "score":
            self._shift_coordinate(patch, rows)
            return rows
        if patch.kind == "reconcile":
            self.frozen, self.round = rows, patch.round
        self.shift(patch.model, rows, patch.shift)
        return rows

    def shift(self, model: int, rows: Index, phi: Grid) -> None:
        """Add phi to a model's scores, clip to the box, look at its best responses anew."""
        with Buffers.borrowed() as buffers:
            for part in chunks(len(rows), self.rules.losses.n_cells):
                self.shift_chunk(model, rows[part], phi, buffers)

    def shift_chunk(self, model: int, rows: Index, phi: Grid, buffers: Buffers) -> Floats:
        """The same for few rows. Returns the new scores, as float64, in the buffers."""
        f = self.f[model - 1]
        grid = f.take(rows, 0, buffers.array("grid", (len(rows), len(phi)), np.int32), mode="clip")
        grid += phi
        np.clip(grid, 0, ONE, out=grid)
        _put_rows(f, rows, grid)
        new: Floats = buffers.array("rows", grid.shape, np.float64)
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


@dataclass(frozen=True)
class Replayed:
    """A block after a log: scores, who was touched, and the actions before and after."""

    f: list[Grid]
    touched: list[npt.NDArray[np.bool_]]
    before: list[Actions]
    after: list[Actions]


def replay(block: Block, rules: Rules, log: Sequence[Patch]) -> Replayed:
    """Replay a log, in order, on the original scores. Labels are not looked at."""
    before, index, rows = _patched(block, rules, log)
    f, after = [own.copy() for own in block.f], [a.copy() for a in before]
    touched = [np.zeros(block.rows, np.bool_) for _ in f]
    for i in range(len(f)):
        f[i][index] = rows.f[i]
        after[i][:, index] = rows.actions[i]
        touched[i][index] = rows.touched[i]
    return Replayed(f, touched, before, after)


def replay_touched(
    block: Block, rules: Rules, log: Sequence[Patch], valid: npt.NDArray[np.bool_]
) -> tuple[Index, Replayed]:
    """The valid rows that patches acted on, and these after the log; of others nothing is made."""
    before, index, rows = _patched(block, rules, log)
    hit = np.flatnonzero(np.logical_or.reduce(rows.touched) & valid.take(index))
    own = index.take(hit)
    return own, Replayed(
        [f.take(hit, axis=0) for f in rows.f],
        [touched.take(hit) for touched in rows.touched],
        [actions.take(own, axis=1) for actions in before],
        [actions.take(hit, axis=1) for actions in rows.actions],
    )


def _patched(block: Block, rules: Rules, log: Sequence[Patch]) -> tuple[list[Actions], Index, Rows]:
    """The actions before, the rows that a log may act on, and these after it.

    A row that is in no event when the first round starts is never touched, so that only a log that
    calibrates everywhere (or Reconcile's, by its own rule) looks at all of them.
    """
    before, events = classify(block, rules)
    if any(patch.kind == "calibrate" and patch.round is None for patch in log):
        index = np.arange(block.rows)
    else:
        index = active(block, events, rules)
    known = [a.take(index, axis=1) for a in before], events.take(index, axis=2)
    rows = Rows(block.take(index), rules, known, own=True)
    for patch in log:
        rows.apply(patch)
    return before, index, rows

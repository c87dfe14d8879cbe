"""Statistics of rows: small integer arrays that add up, in any order and anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from redcal_spark.core.additive import Additive
from redcal_spark.core.blocks import Block, label_rows
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.fixed_point import ONE, Floats, Grid, Ints
from redcal_spark.core.kernel import Index, Rules, chunks
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.patches import Patch
from redcal_spark.core.responses import Actions
from redcal_spark.core.rows import Rows
from redcal_spark.core.weights import counted, weighted_product

FEW_ACTIONS = 6  # sums of so many by a product; of more by sorting the rows,
MANY_NUMBERS = 4_096  # if there are so many for each, on average


# In all of these w counts every row w times; None: once.


def score_sums(f: Grid, rows: Index | None, w: Ints | None) -> Ints:
    """Column sums of grid integers, of some rows or of all."""
    total = np.zeros(f.shape[1], np.int64)
    for part in chunks(len(f if rows is None else rows), f.shape[1]):
        some = None if w is None else w[part] if rows is None else w.take(rows[part])
        grid = f[part] if rows is None else f.take(rows[part], axis=0)
        # four times quicker than a sum over an axis
        total += column_sums(grid.astype(np.float64), some)
    return total


def column_sums(f: Floats, w: Ints | None) -> Ints:
    """Of grid integers as float64: exact below 2^27 rows."""
    return weighted_product(np.ones(len(f)), f, w)


def _some(w: Ints | None, rows: Index | slice) -> Ints | None:
    return None if w is None else w[rows]


def label_sums(y: Grid, n_classes: int, w: Ints | None = None) -> Ints:
    if y.ndim == 2:
        return score_sums(y, None, w)
    return counted(y, n_classes, w) * ONE


def membership(actions: Actions, losses: LossFamily) -> Floats:
    """cell x row: 1.0 where the row's best response under the cell's loss is the cell's action.

    Multiplied with grid integers it gives the sums of every cell, exactly below 2^27 rows.
    """
    wanted = losses.cell_action.astype(losses.action_type)[:, None]
    members: Floats = np.equal(actions[losses.cell_loss], wanted).astype(np.float64)
    return members


def cell_counts(actions: Actions, losses: LossFamily, w: Ints | None) -> Ints:
    counts = np.zeros(losses.n_cells, np.int64)
    for place, chosen in enumerate(actions):
        cells = losses.cells(place)
        counts[cells] = counted(chosen, cells.stop - cells.start, w)
    return counts


def cell_score_sums(actions: Actions, f: Grid, losses: LossFamily, w: Ints | None = None) -> Ints:
    """Sums of scores per cell, cell x class.

    A product looks at every row for every action. Rows that are sorted by their action are looked
    at once, whatever the number of actions.
    """
    total = np.zeros((losses.n_cells, f.shape[1]), np.int64)
    most = max((loss.n_actions for loss in losses.losses), default=0)
    if most <= FEW_ACTIONS or f.size < most * MANY_NUMBERS:
        for part in chunks(len(f), losses.n_cells):
            members, scores = membership(actions[:, part], losses), f[part].astype(np.float64)
            total += weighted_product(members, scores, _some(w, part))
        return total
    for place, chosen in enumerate(actions):
        order, start = chosen.argsort(kind="stable"), 0
        for action, rows in enumerate(np.bincount(chosen).tolist()):
            total[losses.offsets[place] + action] = score_sums(f, order[start : start + rows], w)
            start += rows
    return total


def cell_label_sums(actions: Actions, y: Grid, d: int, losses: LossFamily, w: Ints | None) -> Ints:
    """Sums of labels per cell, cell x class."""
    if y.ndim == 2:
        return cell_score_sums(actions, y, losses, w)
    total = np.zeros((losses.n_cells, d), np.int64)
    for place, chosen in enumerate(actions):
        cells = losses.cells(place)
        key = chosen.astype(np.intp) * d + y
        total[cells] = counted(key, (cells.stop - cells.start) * d, w).reshape(-1, d) * ONE
    return total


@dataclass(frozen=True, eq=False)
class Sums(Additive):
    """Label sums and score sums (model x class) over a set of rows."""

    labels: Ints
    scores: Ints

    def residual(self, model: int) -> Ints:
        residual: Ints = self.labels - self.scores[model - 1]
        return residual


def sums(block: Block) -> Sums:
    assert block.y is not None
    labels = label_sums(block.y, block.n_classes, block.w)
    return Sums(labels, np.stack([score_sums(f, None, block.w) for f in block.f]))


@dataclass(frozen=True, eq=False)
class Residuals(Additive):
    """Per cell (loss, action): rows, label sums and score sums of one model, cell x class."""

    counts: Ints
    labels: Ints
    scores: Ints

    @property
    def sums(self) -> Ints:
        """Sums of y - f."""
        return self.labels - self.scores


def residuals(rows: Rows, model: int) -> Residuals:
    assert rows.y is not None
    actions, f, losses = rows.actions[model - 1], rows.f[model - 1], rows.rules.losses
    return Residuals(
        cell_counts(actions, losses, rows.w),
        cell_label_sums(actions, rows.y, f.shape[1], losses, rows.w),
        cell_score_sums(actions, f, losses, rows.w),
    )


def patch_residuals(
    pieces: Sequence[Rows],
    patch: Patch,
    known: Residuals,
    spread: Callable[..., Iterable[Residuals]],
) -> None:
    """Apply a calibration patch and bring known residuals up to date, from the touched rows alone.

    First every cell's score sums follow the scores; then rows whose action changed move house.
    spread: how pieces are spread over threads, as `map` with a function and items.
    """
    if len(pieces[0].rules.losses) == 1:
        # all rows of one cell are touched, and no others: its sums are taken anew
        known.scores[patch.action] = 0
    for change in spread(lambda rows: _patched(rows, patch), pieces):
        known.counts[:] += change.counts
        known.labels[:] += change.labels
        known.scores[:] += change.scores


def _patched(rows: Rows, patch: Patch) -> Residuals:
    """What to add to the residuals after a calibration patch of these rows."""
    losses, model = rows.rules.losses, patch.model
    alone = len(losses) == 1
    actions, f, y = rows.actions[model - 1], rows.f[model - 1], rows.y
    assert y is not None
    counts = np.zeros(losses.n_cells, np.int64)
    labels, scores = (np.zeros((losses.n_cells, f.shape[1]), np.int64) for _ in range(2))
    everything = rows.acted_on(patch)
    with Buffers.borrowed() as buffers:
        for part in chunks(len(everything), losses.n_cells):
            touched = everything[part]
            w = _some(rows.w, touched)
            before, old = actions[:, touched], None if alone else f.take(touched, axis=0)
            new = rows.shift_chunk(model, touched, patch.shift, buffers)
            if old is None:
                scores[patch.action] += column_sums(new, w)
            else:
                scores += weighted_product(membership(before, losses), new - old, w)
            after = actions[:, touched]
            moved = np.flatnonzero((before != after).any(axis=0))
            if len(moved):
                moves = membership(after[:, moved], losses) - membership(before[:, moved], losses)
                some = _some(w, moved)
                counts += (moves if some is None else moves * some).sum(axis=1).astype(np.int64)
                scores += weighted_product(moves, new.take(moved, axis=0), some)
                label = label_rows(y.take(touched[moved], axis=0), f.shape[1])
                labels += weighted_product(moves, label, some)
    return Residuals(counts, labels, scores)


@dataclass(frozen=True, eq=False)
class DecisionSums(Additive):
    """What was decided: per model, label sums by cell (cell x class).

    disputed: rows that are in some event of disagreement.
    """

    labels: tuple[Ints, ...]
    disputed: int = 0

    @classmethod
    def none(cls, rules: Rules, d: int) -> DecisionSums:
        nothing = np.zeros((rules.losses.n_cells, d), np.int64)
        return cls((nothing,) * rules.models)


def decision_sums(rows: Rows, log: Iterable[Patch] = ()) -> DecisionSums:
    """After a log that is replayed on the rows."""
    assert rows.y is not None
    for patch in log:
        rows.apply(patch)
    rows.settle()
    d, losses = rows.f[0].shape[1], rows.rules.losses
    labels = tuple(cell_label_sums(actions, rows.y, d, losses, rows.w) for actions in rows.actions)
    hit = (rows.events != losses.no_event).any(axis=(0, 1))
    disputed = np.count_nonzero(hit) if rows.w is None else rows.w.sum(where=hit)
    return DecisionSums(labels, int(disputed))


@dataclass(frozen=True, eq=False)
class GapSums(Additive):
    """For Reconcile: the sums beyond the gap and how many rows, [pair, side, coordinate].

    Side 0 is '>', side 1 is '<'. scores: of both models of the pair, [model, pair, side,
    coordinate].
    """

    labels: Ints
    scores: Ints
    rows: Ints

    @property
    def residuals(self) -> Ints:
        """Sums of y - f, as `scores`."""
        return self.labels - self.scores

    @classmethod
    def none(cls, pairs: int, n_classes: int) -> GapSums:
        shape = (pairs, 2, n_classes)
        return cls(*(np.zeros(s, np.int64) for s in (shape, (2, *shape), shape)))


def gap_sums(block: Block, rules: Rules, coordinates: Iterable[int]) -> GapSums:
    """The sums for some coordinates; the others stay 0."""
    assert rules.gap is not None and block.y is not None
    total = GapSums.none(len(rules.pairs), block.n_classes)
    for j in coordinates:
        columns = [f[:, j] for f in block.f]
        if len(columns) > 2:  # each is looked at for several pairs
            columns = [np.ascontiguousarray(column) for column in columns]
        for pair, models in enumerate(rules.pairs):
            one, two = (columns[model - 1] for model in models)
            apart = one - two
            for side, hit in enumerate((apart > rules.gap, apart < -rules.gap)):
                _add_gap(total, (pair, side, j), block, np.flatnonzero(hit), (one, two))
    return total


def _add_gap(
    total: GapSums,
    here: tuple[int, int, int],
    block: Block,
    rows: Index,
    scores: tuple[Grid, Grid],
) -> None:
    """The sums of one side: of a coordinate's rows beyond the gap. Few are taken out of many."""
    assert block.y is not None
    y, w, j = block.y, None if block.w is None else block.w.take(rows), here[-1]
    total.rows[here] = len(rows) if w is None else w.sum()
    if y.ndim == 2:
        total.labels[here] = _total(y[:, j].take(rows), w)
    else:
        hit = y.take(rows) == j
        total.labels[here] = ONE * (np.count_nonzero(hit) if w is None else int(w.sum(where=hit)))
    for which, f in enumerate(scores):
        total.scores[which, *here] = _total(f.take(rows), w)


def _total(numbers: Grid, w: Ints | None) -> int:
    return int(numbers.sum(dtype=np.int64) if w is None else np.dot(numbers.astype(np.int64), w))

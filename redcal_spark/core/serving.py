"""The replay for few rows at a time: a log made ready once, then a handful of calls a patch.

`rows.replay` is made for blocks of many thousand rows, and its bookkeeping takes longer than one
row. Here everything that does not depend on the rows is worked out beforehand: which patches belong
to a round, which losses it asks for, costs as one matrix. The arithmetic is the same: grid integers
in float64, products that cannot round, or `None`, and the caller takes the long way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.events import ActionRegion, Disagreement, ScoreGap
from redcal_spark.core.fixed_point import ONE, Floats, from_grid, loss_bits, on_grid, to_grid
from redcal_spark.core.kernel import Index, Rules
from redcal_spark.core.patches import Patch

ROWS = 8_192  # more are quicker in blocks

Served = tuple[Floats, npt.NDArray[np.bool_]]  # grid values, and which rows were touched


@dataclass(frozen=True)
class _Calibration:
    """A patch within a round: where the model's action under a loss is this one."""

    loss: int
    action: int
    phi: Floats
    rise: float  # of the sum of a row's scores, at most


@dataclass(frozen=True)
class _Round:
    """Patches of one model on one event, or everywhere (event None)."""

    model: int
    event: Disagreement | None
    opening: Floats | None
    calibrations: tuple[_Calibration, ...]


class _MayRound(Exception):
    """Sums of scores have become so large that products could round."""


class Serving:
    """A log for few rows. f: per model, rows x classes."""

    def __init__(self, rules: Rules, log: Sequence[Patch], n_classes: int):
        self.rules = rules
        losses = rules.losses
        bits = loss_bits(n_classes)
        # up to this sum of a row's scores products are exact; of two classes no sum is larger
        self._largest_sum = 2.0 ** (53 - bits)
        self._may_round = n_classes * ONE > self._largest_sum
        quantised = [loss.quantised for loss in losses.losses]
        costs = np.concatenate(quantised) if quantised else np.zeros((0, n_classes))
        self._costs = np.ascontiguousarray((costs - 2.0 ** (bits - 1)).T)
        ends = losses.offsets.tolist()
        self._cells = [slice(a, b) for a, b in pairwise(ends)]
        self._scores = [patch for patch in log if patch.kind == "score"]
        self._rounds = tuple(self._compiled(log)) if not self._scores else ()

    def _compiled(self, log: Sequence[Patch]) -> Iterator[_Round]:
        losses = self.rules.losses

        def key(patch: Patch) -> tuple[int | None, int]:
            return patch.round, patch.model

        for _, group in groupby(log, key):
            patches = list(group)
            phis = [np.array(patch.phi, np.float64) for patch in patches]
            event = patches[0].event(losses)
            opens = isinstance(event, Disagreement)
            calibrations = []
            for patch, phi in list(zip(patches, phis, strict=True))[opens:]:
                region = patch.event(losses)
                assert isinstance(region, ActionRegion)
                calibrations.append(_Calibration(region.loss, region.action, phi, _rise(phi)))
            yield _Round(
                model=patches[0].model - 1,
                event=event if isinstance(event, Disagreement) else None,
                opening=phis[0] if opens else None,
                calibrations=tuple(calibrations),
            )

    def __call__(self, f: list[Floats]) -> list[Served] | None:
        """The scores after the log; None: their sums are so large that products could round."""
        n = len(f[0])
        touched = [np.zeros(n, np.bool_) for _ in f]
        if self._scores:
            self._shift_coordinates(f, touched)
        elif self._rounds:
            try:
                self._replay(f, touched)
            except _MayRound:
                return None
        return list(zip(f, touched, strict=True))

    # --- rounds ---------------------------------------------------------------------------------

    def _replay(self, f: list[Floats], touched: list[Any]) -> None:
        for own in f:
            self._bound(own)
        scores = [rows.dot(self._costs) for rows in f]
        actions = [[s[:, cells].argmin(axis=1) for cells in self._cells] for s in scores]
        for round in self._rounds:
            rows = self._acted_on(round, scores, actions)
            if rows is not None and not len(rows):
                continue
            i = round.model
            new = f[i].copy() if rows is None else f[i][rows]
            where = slice(None) if rows is None else rows
            marks = self._within(round, new, scores[i], actions[i], where)
            f[i][where] = new
            touched[i][where] |= marks

    def _bound(self, rows: Floats) -> float:
        """The largest sum of a row's scores, if products of these are exact."""
        if not self._may_round:
            return 0.0
        bound = float(rows.sum(axis=1).max(initial=0))
        if bound > self._largest_sum:
            raise _MayRound
        return bound

    def _acted_on(
        self, round: _Round, scores: list[Floats], actions: list[list[Any]]
    ) -> Index | None:
        event = round.event
        if event is None:
            return None
        loss, a1, a2 = event.loss, event.a1, event.a2
        i, j = event.pair[0] - 1, event.pair[1] - 1
        rows: Index = ((actions[i][loss] == a1) & (actions[j][loss] == a2)).nonzero()[0]
        if not len(rows):
            return rows
        first, limit = self._cells[loss].start, self.rules.thresholds[loss]
        one, two = scores[i][rows], scores[j][rows]
        sure = (one[:, first + a2] - one[:, first + a1] > limit) | (
            two[:, first + a1] - two[:, first + a2] > limit
        )
        chosen: Index = rows[sure]
        return chosen

    def _within(
        self, round: _Round, new: Floats, scores: Floats, actions: list[Any], where: Any
    ) -> npt.NDArray[np.bool_]:
        """Patch the rows of an event; scores and actions follow. Returns the rows that changed."""
        marks = np.zeros(len(new), np.bool_)
        if round.opening is not None:
            _shift(new, round.opening)
            marks[:] = True
            bound = self._bound(new)
            costs = new.dot(self._costs)
        else:
            bound = self._bound(new)
            costs = scores[where].copy()
        chosen: dict[
            int, Any
        ] = {}  # actions by the costs as they are, of losses that were asked for
        for patch in round.calibrations:
            if patch.loss not in chosen:
                chosen[patch.loss] = costs[:, self._cells[patch.loss]].argmin(axis=1)
            hit = (chosen[patch.loss] == patch.action).nonzero()[0]
            if not len(hit):
                continue
            part = new[hit]
            _shift(part, patch.phi)
            new[hit] = part
            marks[hit] = True
            bound += patch.rise
            if bound > self._largest_sum and self._may_round:
                bound = self._bound(new)  # it is seldom as bad as it might be
            costs[hit] = part.dot(self._costs)
            chosen.clear()
        scores[where] = costs
        for loss, cells in enumerate(self._cells):
            known = chosen.get(loss)
            actions[loss][where] = costs[:, cells].argmin(axis=1) if known is None else known
        return marks

    # --- Reconcile ------------------------------------------------------------------------------

    def _shift_coordinates(self, f: list[Floats], touched: list[Any]) -> None:
        gap, binary = self.rules.gap, self.rules.binary
        assert gap is not None
        for patch in self._scores:
            event = patch.event(self.rules.losses)
            assert isinstance(event, ScoreGap)
            j, i = event.coordinate, patch.model - 1
            one, two = (f[model - 1][:, j] for model in event.pair)
            above = one - two
            rows = (above > gap if event.direction == ">" else -above > gap).nonzero()[0]
            if len(rows):
                column = np.minimum(np.maximum(f[i][rows, j] + patch.phi[0], 0), ONE)
                f[i][rows, j] = column
                if binary:
                    f[i][rows, 0] = ONE - column
                touched[i][rows] = True


def _rise(phi: Floats) -> float:
    return float(np.maximum(phi, 0).sum())


def _shift(rows: Floats, phi: Floats) -> None:
    rows += phi
    np.maximum(rows, 0, out=rows)
    np.minimum(rows, ONE, out=rows)


def serve(serving: Serving, given: Sequence[Floats]) -> list[Floats] | None:
    """New scores for scores as they were given; None: the long way must be taken.

    given: per model, P(class 1) of every row or rows x classes, float64.
    """
    binary, f = serving.rules.binary, []
    for scores in given:
        q = to_grid(scores)
        if not on_grid(q):
            return None  # bad rows are told, or passed through, by whoever reads them
        f.append(np.column_stack([ONE - q, q]) if binary else q)
    done = serving(f)
    if done is None:
        return None
    new = []
    for scores, (rows, touched) in zip(given, done, strict=True):
        hit = touched.nonzero()[0]
        values = np.array(scores)
        if len(hit):
            values[hit] = from_grid(rows[hit, 1] if binary else rows[hit])
        new.append(values)
    return new

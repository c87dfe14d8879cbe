"""The replay for few rows at a time: a log made ready once, then a handful of calls a patch.

`rows.replay` is made for blocks of many thousand rows, and its bookkeeping takes longer than one
row. Here everything that does not depend on the rows is worked out beforehand: which patches belong
to a round, which losses it asks for, how far it may push a score. What is left for a patch is a
product, an argmin, and a shift of the rows that it acts on; long rounds are taken in leaps. The
arithmetic is the same: grid integers in float64, products that cannot round, or `None`, and the
caller takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.events import ActionRegion, Disagreement, ScoreGap
from redcal_spark.core.fixed_point import ONE, Floats, from_grid, loss_bits, on_grid, to_grid
from redcal_spark.core.kernel import Index, Rules
from redcal_spark.core.leaps import Leap
from redcal_spark.core.patches import Patch

ROWS = 8_192  # more are quicker in blocks
LONG, FEW = 24, 256  # calibrations of a round and rows: others are quicker patch by patch
KEPT, LARGE = 512, 2**14  # leaps that are kept, and the numbers that one has, at most
MANY = 2**18  # numbers that a leap looks at, at most
NOTHING, WHOLE = np.array(0.0), np.array(float(ONE))

Served = tuple[Floats, npt.NDArray[np.bool_]]  # grid values, and which rows were touched


@dataclass(frozen=True)
class _Calibration:
    """A patch within a round: where the model's action under a loss is this one."""

    loss: int
    action: Any  # an array of one number: numpy is quicker with it than with a number
    phi: Floats
    rise: float  # of the sum of a row's scores, at most


@dataclass(frozen=True, eq=False)
class _Round:
    """Patches of one model on one event, or everywhere (event None).

    climb, fall: how far all calibrations may push a score, at most.
    later: the losses by which later events ask for the model's actions.
    """

    model: int
    event: Disagreement | None
    opening: Floats | None
    calibrations: tuple[_Calibration, ...]
    climb: float
    fall: float
    later: tuple[int, ...]
    place: int  # which one it is of all

    @cached_property
    def losses(self) -> tuple[int, ...]:
        return tuple(sorted({patch.loss for patch in self.calibrations}))

    def leap(self, start: int, actions: tuple[int, ...], costs: Sequence[Floats]) -> Leap | None:
        """The calibrations from a place on that act on rows of these actions, one for each loss."""
        own = dict(zip(self.losses, actions, strict=True))
        phis = {
            place: patch.phi
            for place, patch in enumerate(self.calibrations)
            if place >= start and patch.action == own[patch.loss]
        }
        chosen = [(costs[loss], action) for loss, action in own.items()]
        return Leap.of(phis, chosen) if phis else None


class _MayRound(Exception):
    """Sums of scores have become so large that products could round."""


class Serving:
    """A log for few rows. f: per model, rows x classes."""

    def __init__(self, rules: Rules, log: Sequence[Patch], n_classes: int):
        self.rules = rules
        bits = loss_bits(n_classes)
        # up to this sum of a row's scores products are exact; of two classes no sum is larger
        self._largest_sum = 2.0 ** (53 - bits)
        self._may_round = n_classes * ONE > self._largest_sum
        self._ones = np.ones(n_classes)
        middle = 2.0 ** (bits - 1)
        self._costs = [
            np.ascontiguousarray((loss.quantised - middle).T) for loss in rules.losses.losses
        ]
        self._scores = [patch for patch in log if patch.kind == "score"]
        self._rounds = self._compiled(log) if not self._scores else ()
        self._asked = [self._asked_of(i, self._rounds) for i in range(rules.models)]
        self._leaps: dict[tuple[int, int, tuple[int, ...]], Leap | None] = {}

    def _compiled(self, log: Sequence[Patch]) -> tuple[_Round, ...]:
        losses = self.rules.losses

        def key(patch: Patch) -> tuple[int | None, int]:
            return patch.round, patch.model

        rounds: list[_Round] = []
        for _, group in reversed([(key, list(group)) for key, group in groupby(log, key)]):
            phis = [np.array(patch.phi, np.float64) for patch in group]
            event, i = group[0].event(losses), group[0].model - 1
            opens = isinstance(event, Disagreement)
            calibrations = []
            for patch, phi in list(zip(group, phis, strict=True))[opens:]:
                region = patch.event(losses)
                assert isinstance(region, ActionRegion)
                action, rise = np.array(region.action), float(np.maximum(phi, 0).sum())
                calibrations.append(_Calibration(region.loss, action, phi, rise))
            pushes = np.array([patch.phi for patch in calibrations] or [np.zeros(1)])
            made = _Round(
                model=i,
                event=event if isinstance(event, Disagreement) else None,
                opening=phis[0] if opens else None,
                calibrations=tuple(calibrations),
                climb=float(np.maximum(pushes, 0).sum(axis=0).max()),
                fall=float(np.minimum(pushes, 0).sum(axis=0).min()),
                later=self._asked_of(i, rounds),
                place=len(rounds),
            )
            rounds.insert(0, made)
        return tuple(rounds)

    @staticmethod
    def _asked_of(model: int, rounds: Sequence[_Round]) -> tuple[int, ...]:
        events = [round.event for round in rounds if round.event is not None]
        return tuple(sorted({event.loss for event in events if model + 1 in event.pair}))

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
        costs: list[dict[int, Floats]] = []  # per model and loss that is asked for
        actions: list[dict[int, Index]] = []
        for scores, losses in zip(f, self._asked, strict=True):
            self._bound(scores)
            costs.append({loss: scores.dot(self._costs[loss]) for loss in losses})
            actions.append({loss: own.argmin(axis=1) for loss, own in costs[-1].items()})
        for round in self._rounds:
            i = round.model
            where: Index | slice = slice(None)
            if round.event is None or round.opening is None:
                new = f[i]
                self._calibrate(new, round, touched[i])
            else:
                rows = self._in_event(round.event, costs, actions)
                if not len(rows):
                    continue
                new, where = f[i].take(rows, axis=0), rows
                _shift(new, round.opening)
                touched[i][where] = True
                self._calibrate(new, round, touched[i])
                f[i][where] = new
            for loss in round.later:
                own = new.dot(self._costs[loss])
                costs[i][loss][where], actions[i][loss][where] = own, own.argmin(axis=1)

    def _bound(self, rows: Floats) -> float:
        """The largest sum of a row's scores, if products of these are exact."""
        if not self._may_round:
            return 0.0
        bound = float(rows.dot(self._ones).max(initial=0))
        if bound > self._largest_sum:
            raise _MayRound
        return bound

    def _in_event(
        self, event: Disagreement, costs: list[dict[int, Floats]], actions: list[dict[int, Index]]
    ) -> Index:
        loss, a1, a2 = event.loss, event.a1, event.a2
        i, j = event.pair[0] - 1, event.pair[1] - 1
        rows: Index = ((actions[i][loss] == a1) & (actions[j][loss] == a2)).nonzero()[0]
        if not len(rows):
            return rows
        limit = self.rules.thresholds[loss]
        one, two = costs[i][loss].take(rows, axis=0), costs[j][loss].take(rows, axis=0)
        sure = (one[:, a2] - one[:, a1] > limit) | (two[:, a1] - two[:, a2] > limit)
        chosen: Index = rows[sure]
        return chosen

    def _calibrate(self, rows: Floats, round: _Round, touched: Any) -> None:
        """Patch the rows of an event, or all: `touched` then gets those that a patch acts on."""
        patches = len(round.calibrations)
        height = 3 * patches + self.rules.losses.n_cells
        if patches < LONG or len(rows) > FEW or height * len(self._ones) > LARGE:
            self._patch(rows, round, touched)
            return
        left = self._leap(rows, round, touched)
        if len(left):
            some, marks = rows.take(left, axis=0), touched.take(left)
            self._patch(some, round, marks)
            rows[left] = some
            if round.event is None:
                touched[left] = marks

    def _leap(self, rows: Floats, round: _Round, touched: Any) -> Index:
        """Many calibrations at once while actions stay; the rows that are left, as they were.

        A row that gets other actions goes on from there, by those that it has now. Rows that
        scatter are left: a leap takes as long as four patches.
        """
        new, unfinished = rows.copy(), np.ones(len(rows), np.bool_)
        leaps = len(round.calibrations) // 4
        todo: list[tuple[int, Index]] = [(0, np.arange(len(rows)))]
        while todo and leaps > 0:
            start, index = todo.pop()
            for actions, group in self._by_actions(new.take(index, axis=0), round.losses).items():
                some, leap = index[group], self._known_leap(round, start, actions)
                if leap is None:
                    unfinished[some] = False
                    continue
                own = new.take(some, axis=0)
                if leaps <= 0 or leap.size(len(some)) > MANY:
                    continue
                if self._may_exceed(self._bound(own) + leap.rise):
                    continue
                leaps -= 1
                new[some], kept = leap(own)
                if round.event is None:
                    touched[some] = True
                unfinished[some[kept == len(leap.places)]] = False
                for end in set(kept.tolist()) - {len(leap.places)}:
                    todo.append((leap.places[end] + 1, some[kept == end]))
        left: Index = unfinished.nonzero()[0]
        new[left] = rows[left]
        rows[:] = new
        return left

    def _known_leap(self, round: _Round, start: int, actions: tuple[int, ...]) -> Leap | None:
        """Leaps are made once, and kept; threads may ask at the same time."""
        key = round.place, start, actions
        try:
            return self._leaps[key]
        except KeyError:
            if len(self._leaps) >= KEPT:
                self._leaps.clear()
            made = self._leaps[key] = round.leap(start, actions, self._costs)
            return made

    def _by_actions(self, rows: Floats, losses: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
        chosen = [rows.dot(self._costs[loss]).argmin(axis=1).tolist() for loss in losses]
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, actions in enumerate(zip(*chosen, strict=True)):
            groups.setdefault(actions, []).append(row)
        return groups

    def _may_exceed(self, bound: float) -> bool:
        return self._may_round and bound > self._largest_sum

    def _patch(self, rows: Floats, round: _Round, touched: Any) -> None:
        """One calibration after the other."""
        bound, everywhere = self._bound(rows), round.event is None
        high = float(rows.max(initial=0)) + round.climb > ONE
        low = float(rows.min(initial=ONE)) + round.fall < 0
        n, known = len(rows), dict[int, Index]()  # actions by the scores as they are
        for patch in round.calibrations:
            actions = known.get(patch.loss)
            if actions is None:
                known[patch.loss] = actions = rows.dot(self._costs[patch.loss]).argmin(axis=1)
            hit = (actions == patch.action).nonzero()[0]
            if not len(hit):
                continue
            some = len(hit) < n
            part = rows.take(hit, axis=0) if some else rows
            part += patch.phi
            if low:
                np.maximum(part, NOTHING, out=part)
            if high:
                np.minimum(part, WHOLE, out=part)
            if some:
                rows[hit] = part
            if everywhere:
                touched[hit] = True
            bound += patch.rise
            if self._may_exceed(bound):
                bound = self._bound(rows)  # it is seldom as bad as it might be
            known.clear()

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


def _shift(rows: Floats, phi: Floats) -> None:
    rows += phi
    np.maximum(rows, NOTHING, out=rows)
    np.minimum(rows, WHOLE, out=rows)


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

"""Guarantees: what the paper promises of a run, as checks with exact numbers.

The paper's theorem on ReDCal (its label: thm:reconcile) speaks of unrounded patches; with rounding
half of its Brier decrease is left (lem: sample_num_iter), and twice its rounds. Reconcile's theorem
is that of Roth et al., as the paper quotes it. What the finite-sample theorem adds is in `judging`.

d: classes; K: actions of a loss; B_i: Brier score of model i (summed over classes); T_i: rounds
that patched model i; n: fitting rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal

from redcal_spark.checks import Check, Fitted, Root
from redcal_spark.consistency import largest_norm, mean_square, quantised_cost, segments
from redcal_spark.fixed_point import BITS
from redcal_spark.history import Point
from redcal_spark.losses import Loss
from redcal_spark.metrics import Totals

MODELS: tuple[Literal[1, 2], ...] = (1, 2)
ENDED = {
    "capped": "the run was capped before it was done",
    "stalled": "the run stalled: its next patch rounds to nothing",
    "cut": "the guard cut the log: nothing is promised of where it was cut",
}
COARSE = "the patch grid is coarser than the theorem asks"


@dataclass(frozen=True)
class Case:
    """A run: the pair, and the points of the fitting rows."""

    pair: Fitted
    points: Sequence[Point]

    @property
    def reconciles_decisions(self) -> bool:
        return self.pair.parameters.algorithm in ("redcal", "dc_then_redcal")

    @property
    def alone(self) -> bool:
        return self.pair.parameters.algorithm == "decision_calibration"

    @property
    def d(self) -> int:
        return self.pair.n_classes

    @property
    def beta(self) -> Fraction:
        assert self.pair.resolved.beta is not None
        return self.pair.resolved.beta

    @property
    def eta(self) -> Fraction:
        assert self.pair.resolved.eta is not None
        return self.pair.resolved.eta

    @property
    def alpha(self) -> Fraction:
        assert self.pair.resolved.alpha is not None
        return self.pair.resolved.alpha

    @cached_property
    def start(self) -> Point:
        """Where the rounds start: after the calibration everywhere, if there was one."""
        return [point for point in self.points if point.rounds == 0][-1]

    @cached_property
    def rounds(self) -> tuple[int, int]:
        """T_1 and T_2."""
        opened = [patch.model for patch in self.pair.log if patch.kind != "calibrate"]
        return opened.count(1), opened.count(2)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """Patches of model 1 and of model 2."""
        models = [patch.model for patch in self.pair.log]
        return models.count(1), models.count(2)

    @cached_property
    def pickers(self) -> dict[str | None, int | None]:
        """The losses that picked rounds, and the first round of each."""
        found: dict[str | None, int | None] = {}
        for patch in self.pair.log:
            if patch.kind == "reconcile":
                found.setdefault(patch.loss, patch.round)
        return found

    @property
    def round_gain(self) -> Fraction:
        """What a round lowers the Brier score by at least, with rounding."""
        if self.reconciles_decisions:
            return self.eta * self.alpha**2 / (8 * self.d)
        return self.eta * self.alpha**2 / 16

    @property
    def patch_gain(self) -> Fraction:
        """What every patch lowers the Brier score by more than."""
        if self.alone:
            return self.beta**2 / 2
        return (
            min(self.beta**2 / 2, self.round_gain)
            if self.reconciles_decisions
            else (self.round_gain)
        )

    @property
    def not_ended(self) -> str | None:
        return ENDED.get(self.pair.status)

    @property
    def coarse(self) -> str | None:
        return None if self.pair.resolved.grid_covered else COARSE

    def brier(self, point: Point, model: int) -> Fraction:
        return Fraction(point.totals.brier[model - 1], point.totals.rows << 2 * BITS)

    def may_raise(self, loss: Loss) -> str | None:
        """Why the bound on a loss is not proved, if so."""
        pair = self.pair
        if pair.parameters.adaptive_beta:
            return "adaptive_beta calibrates within events to less than beta"
        if not pair.resolved.grid_covered:
            return f"{COARSE}: a calibration may end before beta"
        if pair.zero_calibrations:
            return f"{pair.zero_calibrations} calibrations ended on a patch that rounds to nothing"
        others = [name for name in self.pickers if name != loss.name]
        if others:
            return f"round {self.pickers[others[0]]} was of loss {others[0]!r}"
        last_may_be_open = pair.status == "capped" and len(pair.log) >= pair.parameters.max_steps
        if last_may_be_open and pair.log.rounds:
            return "max_steps may have ended the last round's calibration"
        return None

    def loss_bound(self, loss: Loss, model: int, times: int = 1) -> Root:
        """times * T_i beta sqrt(d) K, in units of the rescaled loss."""
        size = times * self.rounds[model - 1] * self.beta * loss.n_actions
        return Root(size**2 * self.d)


def fitted(case: Case) -> Iterator[Check]:
    """What is promised of the fitting rows."""
    yield from _agreement(case)
    yield from _calibration(case)
    yield from _brier(case)
    yield from _counts(case)
    yield from _losses(case)


def _agreement(case: Case) -> Iterator[Check]:
    """The theorem's fourth part, on the rows that were fitted."""
    last, pair = case.points[-1].totals, case.pair
    if case.reconciles_decisions:
        for loss, events in zip(pair.losses.losses, last.events, strict=True):
            a1, a2 = divmod(int(events.argmax()), loss.n_actions)
            yield Check.of(
                "largest_event",
                "no disagreement event has a mass of eta or more",
                Fraction(int(events.max()), last.rows),
                "<",
                case.eta,
                uncovered=case.not_ended,
                why=f"model 1 {loss.actions[a1]!r}, model 2 {loss.actions[a2]!r}"
                if events.max()
                else "",
                loss=loss.name,
            )
    elif not case.alone:
        yield Check.of(
            "largest_gap",
            "in no class do the scores differ by more than alpha on a mass of eta or more",
            Fraction(int(last.gaps.max(initial=0)), last.rows),
            "<",
            case.eta,
            uncovered=case.not_ended,
        )


def _calibration(case: Case) -> Iterator[Check]:
    """Decision Calibration everywhere: alone at its end, before ReDCal where the rounds start."""
    pair = case.pair
    if case.alone:
        point, uncovered, when = case.points[-1], case.not_ended, ""
    elif pair.parameters.algorithm == "dc_then_redcal":
        point, when = case.start, " before the first round"
        uncovered = case.not_ended if not pair.log.rounds and pair.status != "stalled" else None
    else:
        return
    if uncovered is None and pair.zero_calibrations:
        uncovered = f"{pair.zero_calibrations} calibrations ended on a patch that rounds to nothing"
    for place, loss in enumerate(pair.losses.losses):
        for model in MODELS:
            totals, cells = point.totals, pair.losses.cells(place)
            residuals = (totals.labels[model - 1] - totals.scores[model - 1])[cells]
            action, square = largest_norm(residuals)
            yield Check.of(
                "calibration_gap",
                f"the mean residual of every action has a norm of at most beta{when}",
                Root(mean_square(square, totals.rows)),
                "<=",
                case.beta,
                uncovered=uncovered,
                why=f"largest for action {loss.actions[action]!r}" if square else "",
                loss=loss.name,
                model=model,
            )


def _brier(case: Case) -> Iterator[Check]:
    """The theorem's second part, and what every patch does, from point to point."""
    parts = list(zip(pairwise(case.points), segments(case.pair.log, case.points), strict=True))
    for model in MODELS:
        steps, rounds = case.steps[model - 1], case.rounds[model - 1]
        falls = [
            ((case.brier(one, model) - case.brier(two, model)) / len(part), part)
            for (one, two), part in parts
            if part[0].model == model
        ]
        if falls:
            least, part = min(falls, key=lambda fall: fall[0])
            told = f"least from patch {part[0].step} to {part[-1].step}"
            yield Check.of(
                "brier_falls",
                "between any two points of the history the patched model's Brier score fell",
                least,
                ">",
                Fraction(0),
                why=told,
                model=model,
            )
            yield Check.of(
                "brier_per_patch",
                "between any two points it fell by more than this for every patch"
                + (" (half of min(beta^2, eta alpha^2 / 4d))" if case.reconciles_decisions else ""),
                least,
                ">",
                case.patch_gain,
                uncovered=case.coarse,
                why=told,
                model=model,
            )
        else:
            assert not steps
        if not case.alone:
            start = case.start
            yield Check.of(
                "brier_decrease",
                "the rounds lowered the Brier score by half of T alpha^2 eta / 4d at least"
                if case.reconciles_decisions
                else "the rounds lowered the Brier score by T eta alpha^2 / 16 at least",
                case.brier(start, model) - case.brier(case.points[-1], model),
                ">=",
                rounds * case.round_gain,
                uncovered=case.coarse,
                why=f"T = {rounds}",
                model=model,
            )


def _counts(case: Case) -> Iterator[Check]:
    """How many rounds and patches there can be."""
    pair, d = case.pair, case.d
    if not case.alone:
        together = sum((case.brier(case.start, model) for model in MODELS), Fraction(0))
        yield Check.of(
            "rounds",
            "at most 8 d (B_1 + B_2) / (alpha^2 eta) rounds, B before the first of them"
            if case.reconciles_decisions
            else "at most 16 (B_1 + B_2) / (eta alpha^2) rounds",
            Fraction(pair.log.rounds),
            "<=",
            together / case.round_gain,
            uncovered=case.coarse,
        )
    if case.alone or case.reconciles_decisions:
        together = sum((case.brier(case.points[0], model) for model in MODELS), Fraction(0))
        # Every patch gains more than patch_gain, so that there are fewer than (B_1 + B_2) /
        # patch_gain of both models; the paper's 2d / min(...) is proved where B_1 + B_2 <= d.
        proved = None if together <= d else "the paper's proof needs B_1 + B_2 <= d"
        yield Check.of(
            "steps",
            "at most 2d / beta^2 patches"
            if case.alone
            else "at most 2d / min(beta^2, eta alpha^2 / 4d) patches",
            Fraction(len(pair.log)),
            "<=",
            d / case.patch_gain,
            uncovered=case.coarse or proved,
        )


def _losses(case: Case) -> Iterator[Check]:
    """The theorem's third part: on the rescaled loss as it is quantised, where it is exact."""
    pair, last = case.pair, case.points[-1].totals
    for place, loss in enumerate(pair.losses.losses):
        for model in MODELS:
            whole = change(case, place, model, case.points[0].totals, last)
            if not case.reconciles_decisions:
                yield Check.of(
                    "decision_loss",
                    "the decision loss did not rise (rescaled)",
                    whole,
                    "<=",
                    Fraction(0),
                    uncovered="Decision Calibration promises losses that are foreseen, not lower"
                    if case.alone
                    else "Reconcile promises nothing about decisions",
                    loss=loss.name,
                    model=model,
                )
                continue
            calibrated = case.start.steps > 0
            yield Check.of(
                "decision_loss",
                "the decision loss rose by at most T beta sqrt(d) K (rescaled)"
                + (", counted from the calibrated models" if calibrated else ""),
                change(case, place, model, case.start.totals, last),
                "<=",
                case.loss_bound(loss, model),
                uncovered=case.may_raise(loss),
                why=f"T = {case.rounds[model - 1]}",
                loss=loss.name,
                model=model,
            )
            if calibrated:
                yield Check.of(
                    "decision_loss_from_input",
                    "the same, counted from the models that were given",
                    whole,
                    "<=",
                    case.loss_bound(loss, model),
                    uncovered="the calibration everywhere comes without a bound on losses",
                    loss=loss.name,
                    model=model,
                )


def change(case: Case, loss: int, model: int, before: Totals, after: Totals) -> Fraction:
    """The mean change of the quantised loss."""
    cells, found = case.pair.losses.cells(loss), case.pair.losses[loss]
    change = quantised_cost((after.labels[model - 1] - before.labels[model - 1])[cells], found)
    return Fraction(change, after.rows << BITS + found.bits)

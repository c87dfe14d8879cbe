"""The case of a run: the numbers that its guarantees are made of.

d: classes; K: actions of a loss; B_i: Brier score of model i (summed over classes); T_i: rounds
that patched model i; n: fitting rows; g = min(beta^2, eta alpha^2 / 4d), for Decision Calibration
alone beta^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from redcal_spark.certificate.sum_checks import cost_change
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS
from redcal_spark.core.history import Point, rounds_start
from redcal_spark.core.losses import Loss
from redcal_spark.core.metrics import Totals
from redcal_spark.core.number_text import model_text
from redcal_spark.core.parameters import Parameters, Resolved

ENDED = {
    "capped": "the run was capped before it was done",
    "stalled": "the run stalled: its next patch rounds to nothing",
    "cut": "the guard cut the log: nothing is promised of where it was cut",
}
COARSE = "the patch grid is coarser than the theorem asks for"


@dataclass(frozen=True)
class Case:
    """A run: the pair, and the points of the fitting rows."""

    pair: Fitted
    points: Sequence[Point]

    @property
    def given(self) -> Parameters:
        return self.pair.parameters

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
        return rounds_start(self.points)

    @property
    def calibrated_first(self) -> bool:
        """Whether a calibration everywhere came before the rounds and changed something."""
        return self.given.reconciles_decisions and self.start.steps > 0

    @property
    def models(self) -> range:
        return range(1, self.pair.columns.n_models + 1)

    def called(self, model: int) -> str:
        """A model by its name, if users gave it one."""
        return model_text(model, self.pair.columns.model_names)

    @property
    def brier_sum_words(self) -> str:
        return "(B_1 + B_2)" if len(self.models) == 2 else f"(B_1 + ... + B_{len(self.models)})"

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """T_1, T_2, ..."""
        opened = [patch.model for patch in self.pair.log if patch.kind != "calibrate"]
        return tuple(map(opened.count, self.models))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Patches of model 1, of model 2, ..."""
        patched = [patch.model for patch in self.pair.log]
        return tuple(map(patched.count, self.models))

    def pickers(self, model: int) -> dict[str, int]:
        """The losses that picked rounds that patched a model, and the first round of each."""
        first: dict[str, int] = {}
        for patch in self.pair.log:
            if patch.kind == "reconcile" and patch.model == model:
                assert patch.loss is not None and patch.round is not None
                first.setdefault(patch.loss, patch.round)
        return first

    @property
    def g(self) -> Fraction:
        """What a patch lowers the Brier score by at least, before it is rounded."""
        return self._gain(self.pair.resolved)

    def _gain(self, numbers: Resolved) -> Fraction:
        assert numbers.beta is not None
        if self.given.calibrates_only:
            return numbers.beta**2
        assert numbers.eta is not None and numbers.alpha is not None
        return min(numbers.beta**2, numbers.eta * numbers.alpha**2 / (4 * self.d))

    @property
    def smallest_candidate(self) -> tuple[Fraction, int] | None:
        """With `eta: auto`, of all that could have been chosen: the smallest g, and its m."""
        tuned = self.pair.tuned
        if tuned is None:
            return None
        given = replace(self.given, eta="auto", beta=tuned.given_beta)
        rows, gains = int(self.pair.effective), []
        for candidate in given.candidates:
            numbers = given.candidate(*candidate, rows).resolve(rows, self.d)
            gains.append((self._gain(numbers), numbers.m))
        return min(gains, key=lambda gain: (gain[0], -gain[1]))

    @property
    def round_gain(self) -> Fraction:
        """What a round lowers the Brier score by at least, with rounding."""
        if self.given.reconciles_decisions:
            return self.eta * self.alpha**2 / (8 * self.d)
        return self.eta * self.alpha**2 / 16

    @property
    def patch_gain(self) -> Fraction:
        """What every patch lowers the Brier score by more than.

        Rounding costs d / 4m^2 at most, which is g / 2 where the grid is as fine as theory asks.
        On a coarser grid what is left may be nothing.
        """
        if self.given.reconciles_scores:
            return self.round_gain
        if self.pair.resolved.grid_covered:
            return self.g / 2
        return max(Fraction(0), self.g - Fraction(self.d, 4 * self.pair.resolved.m**2))

    @property
    def too_coarse(self) -> str | None:
        """Why nothing is known of what a patch gains, if so."""
        if self.given.reconciles_scores:
            return self.coarse
        return None if self.patch_gain > 0 else COARSE

    @property
    def not_ended(self) -> str | None:
        return ENDED.get(self.pair.status)

    @property
    def coarse(self) -> str | None:
        return None if self.pair.resolved.grid_covered else COARSE

    def brier(self, point: Point, model: int) -> Fraction:
        return Fraction(point.totals.brier[model - 1], point.totals.rows << 2 * BITS)

    @property
    def brier_scale(self) -> Fraction:
        """Users know the Brier score of one column P(1) as the mean of (f - y)^2: half of B."""
        return Fraction(1, 2) if self.pair.binary else Fraction(1)

    @property
    def half(self) -> str:
        """What formulas of B lack where users' own Brier score is half of it."""
        return "half of " if self.pair.binary else ""

    @property
    def brier_words(self) -> str:
        kind = "mean (f - y)^2" if self.pair.binary else "squared error, summed over classes"
        return f"Brier score ({kind})"

    def may_raise(self, loss: Loss, model: int) -> str | None:
        """Why the bound on a loss is not proved, if so.

        It needs every calibration of a round of this model to have ended below its threshold. A
        coarse grid alone does not prevent that, and `adaptive_beta` takes no more than it gives.
        """
        pair = self.pair
        if not self.rounds[model - 1]:
            return None
        if pair.zero_calibrations:
            return f"{pair.zero_calibrations} calibrations ended on a patch that rounds to nothing"
        picked = self.pickers(model)
        others = [name for name in picked if name != loss.name]
        if others:
            return f"round {picked[others[0]]} was of loss {others[0]!r}"
        last_may_be_open = pair.status == "capped" and len(pair.log) >= pair.parameters.max_steps
        if last_may_be_open and pair.log[-1].model == model and pair.log[-1].round is not None:
            return "max_steps may have ended the last round's calibration"
        return None

    def loss_bound(self, loss: Loss, model: int, times: int = 1) -> Fraction:
        """times * T_i beta max_b sum_a |l_a - l_b|, in units of the rescaled loss."""
        return times * self.rounds[model - 1] * self.beta * loss.action_distances


def change(case: Case, loss: int, model: int, before: Totals, after: Totals) -> Fraction:
    """The mean change of the quantised loss."""
    losses = case.pair.losses
    moved = cost_change(losses, loss, model, before, after)
    return Fraction(moved, after.rows << BITS + losses[loss].bits)

"""The patches of a run so far, and the limits it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redcal_spark.core.events import ActionRegion, Event
from redcal_spark.core.fixed_point import BITS, Ints, rounded_mean
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters, Resolved
from redcal_spark.core.patches import Patch, PatchLog


class Trajectory:
    """Collects the patches of one run; continues a log when one is given."""

    def __init__(
        self,
        parameters: Parameters,
        resolved: Resolved,
        losses: LossFamily,
        log: Iterable[Patch] = (),
        on_patch: Callable[[Patch, int], Any] | None = None,
        on_round: Callable[[Patch], Any] | None = None,
        zero_calibrations: int = 0,
    ):
        self.parameters = parameters
        self.resolved = resolved
        self.losses = losses
        self.patches = list(log)
        self.rounds = PatchLog(self.patches).rounds
        # calibrations that ended because the patch rounded to nothing; a log does not show them
        self.zero_calibrations = zero_calibrations
        self._on_patch = on_patch
        self._on_round = on_round

    @property
    def log(self) -> PatchLog:
        return PatchLog(self.patches)

    @property
    def out_of_steps(self) -> bool:
        return len(self.patches) >= self.parameters.max_steps

    @property
    def out_of_rounds(self) -> bool:
        return self.rounds >= self.parameters.max_rounds

    @property
    def opened_by(self) -> Patch | None:
        """The first patch of the last round, whose calibration may not be finished."""
        return next((p for p in reversed(self.patches) if p.kind == "reconcile"), None)

    def round_ended(self, first: Patch) -> None:
        """Tell who listens that the round which this patch opened is over."""
        if self._on_round is not None:
            self._on_round(first)

    def is_large(self, rows: int, all_rows: int) -> bool:
        """mass >= eta, exactly."""
        assert self.resolved.eta is not None
        return rows >= self.resolved.eta * all_rows

    def rounded(self, residual_sum: Ints, rows: int) -> Ints:
        """The mean residual on the patch grid."""
        return rounded_mean(residual_sum, rows, self.resolved.step)

    def norm_bound(self, rows: int) -> int:
        """Squared integer residual norms above this are norms above beta."""
        assert self.resolved.beta is not None
        return int((self.resolved.beta * rows * 2**BITS) ** 2 // 1)

    def patch(
        self, event: Event, model: int, rows: int, phi: Ints, round: int | None = None
    ) -> Patch:
        """Add the next patch. It opens a round, unless it calibrates within one, or everywhere."""
        if not isinstance(event, ActionRegion):
            round, self.rounds = self.rounds, self.rounds + 1
        step, shift = len(self.patches), tuple(phi.tolist())
        patch = Patch.of(
            event, self.losses, step=step, round=round, model=model, rows=rows, phi=shift
        )
        self.patches.append(patch)
        if self._on_patch is not None:
            self._on_patch(patch, self.zero_calibrations)
        return patch

"""The patches of a run so far, and the limits it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redcal_spark.core.events import ActionRegion, Disagreement, ScoreGap
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

    def reconcile(self, event: Disagreement, model: int, rows: int, phi: Ints) -> Patch:
        self.rounds += 1
        place = {"loss": self.losses[event.loss].name, "a1": event.a1, "a2": event.a2}
        return self._add(self.rounds - 1, "reconcile", model, rows, phi, **place)

    def calibrate(
        self, region: ActionRegion, round: int | None, model: int, rows: int, phi: Ints
    ) -> Patch:
        place = {"loss": self.losses[region.loss].name, "action": region.action}
        return self._add(round, "calibrate", model, rows, phi, **place)

    def score(self, gap: ScoreGap, model: int, rows: int, phi: Ints) -> Patch:
        self.rounds += 1
        place = {"coordinate": gap.coordinate, "direction": gap.direction}
        return self._add(self.rounds - 1, "score", model, rows, phi, **place)

    def _add(
        self, round: int | None, kind: Any, model: int, rows: int, phi: Ints, **place: Any
    ) -> Patch:
        absent = dict.fromkeys(("loss", "a1", "a2", "action", "coordinate", "direction"))
        patch = Patch(
            step=len(self.patches),
            round=round,
            kind=kind,
            model=model,
            rows=rows,
            phi=tuple(phi.tolist()),
            **{**absent, **place},
        )
        self.patches.append(patch)
        if self._on_patch is not None:
            self._on_patch(patch, self.zero_calibrations)
        return patch

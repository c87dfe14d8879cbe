"""Algorithm 3, Reconcile (Roth et al.), the baseline: coordinate by coordinate, no losses."""

from __future__ import annotations

from fractions import Fraction

from redcal_spark.algorithms.engine import Engine
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.core.events import Direction, ScoreGap
from redcal_spark.core.parameters import Status
from redcal_spark.core.sums import GapSums

SIDES: tuple[Direction, Direction] = (">", "<")


def reconcile(engine: Engine, run: Trajectory) -> Status:
    """Patch until on every coordinate the models differ by more than alpha on mass below eta."""
    engine.replay(run.patches)
    while True:
        gaps = engine.gaps()
        far = [
            j
            for j, rows in enumerate(gaps.rows.sum(axis=0).tolist())
            if rows and run.is_large(rows, engine.rows)
        ]
        if not far:
            return "converged"
        if run.out_of_rounds:
            return "capped"
        j, side, model = most_wrong(gaps, far)
        rows = int(gaps.rows[side, j])
        phi = run.rounded(gaps.residual(model)[side, j : j + 1], rows)
        if not phi.any():
            return "stalled"
        if run.out_of_steps:
            return "capped"
        engine.patch(patch := run.patch(ScoreGap(j, SIDES[side]), model, rows, phi))
        run.round_ended(patch)


def most_wrong(gaps: GapSums, coordinates: list[int]) -> tuple[int, int, int]:
    """(coordinate, side, model) of largest rows * (mean y - mean f)^2; ties: the first in order."""
    best, most = (coordinates[0], 0, 1), Fraction(-1)
    residuals = [gaps.residual(model) for model in (1, 2)]
    for j in coordinates:
        for side in range(2):
            rows = int(gaps.rows[side, j])
            if not rows:
                continue
            for model, residual in enumerate(residuals, 1):
                weight = Fraction(int(residual[side, j]) ** 2, rows)
                if weight > most:
                    best, most = (j, side, model), weight
    return best

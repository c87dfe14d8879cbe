"""Algorithm 3, Reconcile (Roth et al.), the baseline: coordinate by coordinate, no losses."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from redcal_spark.algorithms.engine import Engine
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.core.events import Direction, ScoreGap, pairs_of
from redcal_spark.core.parameters import Status
from redcal_spark.core.sums import GapSums

SIDES: tuple[Direction, Direction] = (">", "<")


def reconcile(engine: Engine, run: Trajectory) -> Status:
    """Patch until on every coordinate the models differ by more than alpha on mass below eta."""
    engine.replay(run.patches)
    while True:
        gaps = engine.gaps()
        far = [
            (pair, j)
            for pair, classes in enumerate(gaps.rows.sum(axis=1).tolist())
            for j, rows in enumerate(classes)
            if rows and run.is_large(rows, engine.rows)
        ]
        if not far:
            return "converged"
        if run.out_of_rounds:
            return "capped"
        j, side, place, which = most_wrong(gaps, far)
        pair, rows = pairs_of(engine.models)[place], int(gaps.rows[place, side, j])
        phi = run.rounded(gaps.residuals[which, place, side, j : j + 1], rows)
        if not phi.any():
            return "stalled"
        if run.out_of_steps:
            return "capped"
        gap = ScoreGap(j, SIDES[side], pair)
        engine.patch(patch := run.patch(gap, pair[which], rows, phi))
        run.round_ended(patch)


def most_wrong(gaps: GapSums, far: Sequence[tuple[int, int]]) -> tuple[int, int, int, int]:
    """(coordinate, side, pair, which model of it) of largest rows * (mean y - mean f)^2.

    Ties: the first in this order. far: the pairs and coordinates to choose from.
    """
    best, most = (far[0][1], 0, far[0][0], 0), Fraction(-1)
    residuals = gaps.residuals
    for j, side, pair in sorted((j, side, pair) for pair, j in far for side in range(2)):
        rows = int(gaps.rows[pair, side, j])
        if not rows:
            continue
        for which in range(2):
            weight = Fraction(int(residuals[which, pair, side, j]) ** 2, rows)
            if weight > most:
                best, most = (j, side, pair, which), weight
    return best

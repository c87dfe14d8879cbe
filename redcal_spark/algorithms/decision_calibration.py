"""Algorithm 1, Decision Calibration: within an event, or everywhere."""

from __future__ import annotations

import numpy as np

from redcal_spark.algorithms.engine import Engine, Region
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.core.events import ActionRegion
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.parameters import Status


def decision_calibration(engine: Engine, run: Trajectory) -> Status:
    """Calibrate model 1 everywhere, then model 2, and so on."""
    engine.replay(run.patches)
    return calibrate_all(engine, run) or "converged"


def calibrate_all(engine: Engine, run: Trajectory) -> Status | None:
    """Calibrate everywhere, going on where the log stands. A status only if the run must end."""
    first = run.patches[-1].model if run.patches else 1
    region = engine.freeze(None)
    bound = run.norm_bound(engine.rows)
    for model in range(first, engine.models + 1):
        if not calibrate(region, model, bound, run, round=None):
            return "capped"
    region.close()
    return None


def calibrate(region: Region, model: int, bound: int, run: Trajectory, round: int | None) -> bool:
    """Patch the region until no (loss, action) has a residual sum above the bound (squared).

    False if the steps ran out first.
    """
    while True:
        residuals = region.residuals(model)
        sums = residuals.sums
        cell = largest_above(bound, sums)
        if cell is None:
            return True
        rows = int(residuals.counts[cell])
        phi = run.rounded(sums[cell], rows)
        if not phi.any():
            run.zero_calibrations += 1
            return True
        if run.out_of_steps:
            return False
        place = ActionRegion(int(run.losses.cell_loss[cell]), int(run.losses.cell_action[cell]))
        region.patch(run.patch(place, model, rows, phi, round))


def largest_above(bound: int, sums: Ints) -> int | None:
    """The first cell of largest squared norm, if that is above the bound.

    Exact, though sought in float64: a float64 norm is off by a few units of 2^-53 per class, so
    that only cells (and bounds) this close to the largest are compared as Python integers.
    """
    near = sums.astype(np.float64)
    norms = np.einsum("ij,ij->i", near, near)
    off = 2.0**-50 * (sums.shape[1] + 4)
    largest = float(norms.max())
    close = np.flatnonzero(norms >= largest * (1.0 - off)).tolist()
    if len(close) == 1 and largest * (1.0 - off) > bound:
        return int(close[0])
    exact = {cell: sum(x * x for x in sums[cell].tolist()) for cell in close}
    first = max(exact, key=exact.__getitem__)  # the first of equals
    return first if exact[first] > bound else None

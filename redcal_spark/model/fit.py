"""The fit: an algorithm run on what a scan kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redcal_spark.algorithms.decision_calibration import decision_calibration
from redcal_spark.algorithms.engine import Engine
from redcal_spark.algorithms.reconcile import reconcile
from redcal_spark.algorithms.redcal import dc_then_redcal, redcal
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.backends.backend import Scan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.parameters import Status
from redcal_spark.core.patches import Patch
from redcal_spark.core.problem import Problem
from redcal_spark.model.named_log import NamedLog
from redcal_spark.model.pair import ReconciledPair

ALGORITHMS: dict[str, Callable[[Engine, Trajectory], Status]] = {
    "redcal": redcal,
    "decision_calibration": decision_calibration,
    "reconcile": reconcile,
    "dc_then_redcal": dc_then_redcal,
}


def fit_scanned(
    problem: Problem,
    scan: Scan,
    log: Sequence[Patch] = (),
    on_patch: Callable[[Patch, int], Any] | None = None,
    on_round: Callable[[Patch, Totals | None], Any] | None = None,
    zero_calibrations: int = 0,
) -> ReconciledPair:
    """Run the algorithm on what the scan kept, from the start or from a log.

    zero_calibrations: how many had ended on a patch of zero when the log's last one was found.
    on_patch sees every patch, with that number; on_round the first patch of a round that ended,
    and the totals of the fitting rows then, where the engine keeps them.
    """
    parameters, layout, rows = problem.parameters, scan.layout, scan.gathered.fit.rows
    resolved = parameters.resolve(rows, layout.n_classes)
    engine = scan.engine(problem, watched=on_round is not None and not log)
    round_ended = None if on_round is None else lambda first: on_round(first, engine.totals)
    run = Trajectory(
        parameters, resolved, problem.losses, log, on_patch, round_ended, zero_calibrations
    )
    try:
        status = ALGORITHMS[parameters.algorithm](engine, run)
    finally:
        engine.close()
    return ReconciledPair(
        parameters=parameters,
        resolved=resolved,
        losses=problem.losses,
        columns=problem.columns,
        binary=layout.binary,
        n_classes=layout.n_classes,
        rows=rows,
        status=status,
        log=NamedLog(run.log),
        zero_calibrations=run.zero_calibrations,
        tuned=problem.tuned,
    )

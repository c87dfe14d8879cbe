"""The four procedures on the same rows: the paper's experiment as a command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from redcal_spark.backends.backend import Scan
from redcal_spark.config.schema import Config
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.problem import Problem
from redcal_spark.errors import UsageError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.job import Job
from redcal_spark.runs.listener import Listener
from redcal_spark.runs.tables import measurements

SPLITS = {"fit": "fitted", "holdout": "holdout"}
# In the paper's order; the names are those of the paper's figures.
PROCEDURES = {
    "reconcile": "Reconcile",
    "decision_calibration": "Decision Calibration",
    "redcal": "ReDCal",
    "dc_then_redcal": "Decision Calibration, then ReDCal",
}
RECONCILE_ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class Compared:
    """One procedure: what it found, in how many seconds of fitting, and how the rows fared.

    histories: per split, the totals before the first patch and after each that was measured.
    """

    pair: ReconciledPair
    seconds: float
    histories: dict[str, list[Point]]

    @property
    def algorithm(self) -> str:
        return self.pair.parameters.algorithm

    @property
    def name(self) -> str:
        return PROCEDURES[self.algorithm]

    def metrics(self, split: str) -> list[Metrics]:
        """Of every point in turn."""
        losses, binary = self.pair.losses, self.pair.binary
        return [Metrics(point.totals, losses, binary) for point in self.histories[split]]

    def to_json(self) -> dict[str, Any]:
        """Plain data; a point's rows are those of the history table, and Brier sums text."""
        parameters, resolved = self.pair.parameters, self.pair.resolved
        return {
            "algorithm": self.algorithm,
            "alpha": parameters.alpha,
            "eta": parameters.eta,
            "beta": None if resolved.beta is None else float(resolved.beta),
            "status": self.pair.status,
            "patches": len(self.pair.log),
            "rounds": self.pair.log.rounds,
            "seconds": round(self.seconds, 3),
            "history": {split: list(self._rows(split)) for split in self.histories},
        }

    def _rows(self, split: str) -> Iterator[dict[str, Any]]:
        for point in self.histories[split]:
            place = {"step": point.steps, "round": point.rounds}
            for numbers in measurements(Metrics(point.totals, self.pair.losses)):
                yield place | numbers | {"brier_sum": str(numbers["brier_sum"])}


def compare_job(job: Job, reconcile_alpha: float = RECONCILE_ALPHA) -> list[Compared]:
    """The four procedures on a configuration's input; no table is written."""
    check(job.config)
    job.check_input()
    return compare(job.problem, job.scan, reconcile_alpha, job.listener)


def check(config: Config) -> None:
    """Refuse a configuration that does not say what all four procedures need."""
    given, problems = config.reconcile, []
    if given.algorithm == "reconcile":
        problems.append(
            "reconcile.alpha: is of probability with algorithm reconcile, and ReDCal's is of loss; "
            "say --set reconcile.algorithm=redcal --set reconcile.alpha=... for ReDCal, and "
            f"--reconcile-alpha {given.alpha:g} for Reconcile"
        )
    if not config.losses:
        problems.append("losses: none are there, and all procedures but Reconcile need some")
    problems += [
        f"reconcile.{name}: is not set, and ReDCal needs it; say --set reconcile.{name}=..."
        for name in ("alpha", "eta")
        if getattr(given, name) is None
    ]
    if problems:
        raise UsageError("\n  ".join(["the four procedures cannot be compared:", *problems]))


def compare(
    given: Problem,
    scan: Callable[[Problem], Scan],
    reconcile_alpha: float = RECONCILE_ALPHA,
    listener: Listener | None = None,
) -> list[Compared]:
    """All four, in the paper's order, with the parameters of one; Reconcile has its own alpha.

    The first scan keeps all rows, for Decision Calibration. Where they are held in memory the
    others' rows are taken from it, else the input is scanned for each: ReDCal timed on rows that
    its own scan would have dropped would look slower than it is.
    """
    listener = listener or Listener()
    problems = {algorithm: _variant(given, algorithm, reconcile_alpha) for algorithm in PROCEDURES}
    compared: dict[str, Compared] = {}
    everything = scan(problems["dc_then_redcal"])
    try:
        for algorithm in ("decision_calibration", "dc_then_redcal"):
            compared[algorithm] = _fitted(problems[algorithm], everything, listener)
        for algorithm in ("redcal", "reconcile"):
            own = everything.again(problems[algorithm]) or scan(problems[algorithm])
            try:
                compared[algorithm] = _fitted(problems[algorithm], own, listener)
            finally:
                own.close()
    finally:
        everything.close()
    return [compared[algorithm] for algorithm in PROCEDURES]


def _variant(given: Problem, algorithm: str, reconcile_alpha: float) -> Problem:
    alpha = reconcile_alpha if algorithm == "reconcile" else given.parameters.alpha
    parameters = replace(given.parameters, algorithm=algorithm, alpha=alpha)  # type: ignore[arg-type]
    return replace(given, parameters=parameters)


def _fitted(problem: Problem, scan: Scan, listener: Listener) -> Compared:
    name = PROCEDURES[problem.parameters.algorithm]
    with listener.during(f"fitting: {name}"):
        start = time.perf_counter()
        pair = fit_scanned(problem, scan)
        seconds = time.perf_counter() - start
    with listener.during(f"checking on holdout rows: {name}"):
        return Compared(pair, seconds, scan.histories(pair, None))


def mean_brier(metrics: Metrics) -> Fraction:
    """Of all models; of one column P(1) the usual (f - y)^2."""
    return sum(map(metrics.usual_brier, metrics.models), Fraction(0)) / len(metrics.models)


def mean_gap(metrics: Metrics, loss: int) -> Fraction:
    """What the models' decisions cost above those that know the label, on average."""
    gaps = (metrics.loss_gap(loss, model) for model in metrics.models)
    return sum(gaps, Fraction(0)) / len(metrics.models)

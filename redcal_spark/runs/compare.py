"""The four procedures on the same rows: the paper's experiment as a command."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal, get_args

from redcal_spark.backends.backend import Scan
from redcal_spark.config.schema import Config
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.problem import Problem
from redcal_spark.errors import UsageError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.tune import chosen_line, tune
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

    @property
    def values(self) -> list[int]:
        """How many numbers were fitted after each point: a patch has one for every class.

        Reconcile's have one, and so have all for scores that are one column P(1).
        """
        sizes = [1 if self.pair.binary else len(patch.phi) for patch in self.pair.log]
        fitted = [0, *accumulate(sizes)]
        return [fitted[point.steps] for point in next(iter(self.histories.values()))]

    @property
    def steps(self) -> list[int]:
        """How many patches were made after each point."""
        return [point.steps for point in next(iter(self.histories.values()))]

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
            "fitted_values": self.values[-1],
            "history": {split: list(self._rows(split)) for split in self.histories},
        }

    def _rows(self, split: str) -> Iterator[dict[str, Any]]:
        for point in self.histories[split]:
            place = {"step": point.steps, "round": point.rounds}
            for numbers in _plain(Metrics(point.totals, self.pair.losses)):
                yield place | numbers


Measure = Literal["patches", "fitted values"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The four procedures, and per split the mean of both models: a baseline with no parameters.

    The mean has no disagreement, for it is one model. It keeps neither of the two and certifies
    nothing.
    """

    procedures: list[Compared]
    mean: dict[str, Metrics]

    @property
    def splits(self) -> list[str]:
        return list(self.procedures[0].histories)

    def most(self, measure: Measure) -> int:
        """What the thriftiest procedure spent that made patches at all; 0: none did."""
        spent = [self._spent(one, measure)[-1] for one in self.procedures]
        return min((each for each in spent if each), default=0)

    def points(self, measure: Measure) -> list[int]:
        """Per procedure, the number of the last point that was measured by then."""
        most = self.most(measure)
        return [bisect_right(self._spent(one, measure), most) - 1 for one in self.procedures]

    def spent(self, measure: Measure) -> list[int]:
        """Per procedure, what it had spent there."""
        places = zip(self.procedures, self.points(measure), strict=True)
        return [self._spent(one, measure)[place] for one, place in places]

    @staticmethod
    def _spent(one: Compared, measure: Measure) -> list[int]:
        return one.steps if measure == "patches" else one.values

    def to_json(self) -> dict[str, Any]:
        """Plain data; `equal`: per measure, where the procedures are compared before their end."""
        return {
            "procedures": [one.to_json() for one in self.procedures],
            "mean": {split: list(_plain(metrics)) for split, metrics in self.mean.items()},
            "equal": {measure: self._equal(measure) for measure in get_args(Measure)},
        }

    def _equal(self, measure: Measure) -> dict[str, Any]:
        spent = self.spent(measure)
        told: dict[str, Any] = {"most": self.most(measure)}
        for one, place, used in zip(self.procedures, self.points(measure), spent, strict=True):
            told[one.algorithm] = {"step": one.steps[place], "spent": used} | {
                split: list(_plain(one.metrics(split)[place])) for split in self.splits
            }
        return told


def _plain(metrics: Metrics) -> Iterator[dict[str, Any]]:
    for numbers in measurements(metrics):
        yield numbers | {"brier_sum": str(numbers["brier_sum"])}


def compare_job(job: Job, reconcile_alpha: float = RECONCILE_ALPHA) -> Comparison:
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
) -> Comparison:
    """All four, in the paper's order, with the parameters of one; Reconcile has its own alpha.

    The first scan keeps all rows, for Decision Calibration. Where they are held in memory the
    others' rows are taken from it, else the input is scanned for each: ReDCal timed on rows that
    its own scan would have dropped would look slower than it is.
    """
    listener = listener or Listener()
    compared: dict[str, Compared] = {}
    everything = scan(replace(_variant(given, "dc_then_redcal", reconcile_alpha), mean=True))
    try:
        given = _chosen(given, everything, scan, listener)
        problems = {
            algorithm: _variant(given, algorithm, reconcile_alpha) for algorithm in PROCEDURES
        }
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
    mean = {
        split: Metrics(part.mean, given.losses, everything.layout.binary)
        for split, part in everything.gathered.parts.items()
        if part.mean is not None
    }
    return Comparison([compared[algorithm] for algorithm in PROCEDURES], mean)


def _chosen(
    given: Problem, everything: Scan, scan: Callable[[Problem], Scan], listener: Listener
) -> Problem:
    """With `eta: auto` all procedures get what is chosen for the one that was asked for."""
    if not given.parameters.tunes:
        return given
    own = everything
    if not given.parameters.calibrates_everywhere:
        own = everything.again(given) or scan(given)
    try:
        with listener.during("tune"):
            chosen = tune(given, own, listener.candidate)
    finally:
        if own is not everything:
            own.close()
    listener.note(chosen_line(chosen, problem := given.chosen(chosen)))
    return problem


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
    """Of both models; of one column P(1) the usual (f - y)^2."""
    return (metrics.usual_brier(1) + metrics.usual_brier(2)) / 2


def mean_gap(metrics: Metrics, loss: int) -> Fraction:
    """What both models' decisions cost above those that know the label, on average."""
    return (metrics.loss_gap(loss, 1) + metrics.loss_gap(loss, 2)) / 2

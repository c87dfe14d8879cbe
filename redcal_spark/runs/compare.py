"""The four procedures on the same rows: the paper's experiment as a command."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal, get_args

from redcal_spark.backends.backend import Scan
from redcal_spark.config.schema import Config
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.problem import Problem
from redcal_spark.core.splits import SPLITS
from redcal_spark.errors import UsageError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.model.measurements import plain_measurements
from redcal_spark.model.named_log import NamedLog
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.tune import chosen_line, tune
from redcal_spark.runs.job import Job
from redcal_spark.runs.listener import Listener

# In the paper's order; the names are those of the paper's figures.
PROCEDURES = {
    "reconcile": "Reconcile",
    "decision_calibration": "Decision Calibration",
    "redcal": "ReDCal",
    "dc_then_redcal": "Decision Calibration, then ReDCal",
}
RECONCILE_ALPHA = 0.05
Measure = Literal["patches", "fitted values"]  # of what a procedure spends
MEASURES: tuple[Measure, ...] = get_args(Measure)
RIVALS = ("reconcile", "redcal")


@dataclass(frozen=True, eq=False)
class Compared:
    """One procedure: what it found, in how many seconds of fitting, and how the rows fared.

    histories: per split, the totals before the first patch and after each that was measured.
    scan: of the rows that it was fitted on.
    """

    pair: ReconciledPair
    seconds: float
    histories: dict[str, list[Point]]
    scan: Scan = field(repr=False)

    @property
    def algorithm(self) -> str:
        return self.pair.parameters.algorithm

    @property
    def name(self) -> str:
        return PROCEDURES[self.algorithm]

    @property
    def values(self) -> list[int]:
        """How many numbers were fitted, before the first patch and after each.

        A patch has one for every class; Reconcile's have one, and so have all for scores that
        are one column P(1).
        """
        sizes = (1 if self.pair.binary else len(patch.phi) for patch in self.pair.log)
        return [0, *accumulate(sizes)]

    def spent(self, measure: Measure) -> list[int]:
        """Before the first patch and after each."""
        return list(range(len(self.pair.log) + 1)) if measure == "patches" else self.values

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
            for numbers in plain_measurements(Metrics(point.totals, self.pair.losses)):
                yield place | numbers


@dataclass(frozen=True, eq=False)
class Prefix:
    """A procedure after its first patches: how many, what they cost, and how the rows fared."""

    algorithm: str
    steps: int
    spent: int
    metrics: dict[str, Metrics]

    def to_json(self) -> dict[str, Any]:
        numbers = {split: plain_measurements(metrics) for split, metrics in self.metrics.items()}
        return {"step": self.steps, "spent": self.spent} | numbers


@dataclass(frozen=True, eq=False)
class Comparison:
    """The four procedures, and per split the mean of all models: a baseline with no parameters.

    The mean has no disagreement, for it is one model. It keeps none of them and certifies nothing.
    equal: per measure, each procedure when it had spent as much as the thriftier one of Reconcile
    and ReDCal did in all. most: how much that is; 0: neither did anything.
    """

    procedures: list[Compared]
    mean: dict[str, Metrics]
    most: dict[Measure, int]
    equal: dict[Measure, list[Prefix]]

    @property
    def splits(self) -> list[str]:
        return list(self.procedures[0].histories)

    def rows_words(self, split: str) -> str:
        """How many rows a split has, and whether they count by weights."""
        totals = self.procedures[0].histories[split][0].totals
        weighted = "" if totals.weights is None else ", weighted"
        return f"{totals.counted:,} {SPLITS[split]} rows{weighted}"

    def to_json(self) -> dict[str, Any]:
        return {
            "procedures": [one.to_json() for one in self.procedures],
            "mean": {split: plain_measurements(metrics) for split, metrics in self.mean.items()},
            "equal": {
                measure: {"most": self.most[measure]}
                | {prefix.algorithm: prefix.to_json() for prefix in prefixes}
                for measure, prefixes in self.equal.items()
            },
        }


def compare_job(job: Job, reconcile_alpha: float) -> Comparison:
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
    scans = [scan(replace(_variant(given, "dc_then_redcal", reconcile_alpha), mean=True))]
    everything = scans[0]
    try:
        given = _chosen(given, everything, scan, listener)
        for algorithm in ("decision_calibration", "dc_then_redcal", "redcal", "reconcile"):
            problem = _variant(given, algorithm, reconcile_alpha)
            if not problem.parameters.calibrates_everywhere:
                scans.append(everything.again(problem) or scan(problem))
            compared[algorithm] = _fitted(problem, scans[-1], listener)
        known = [compared[algorithm] for algorithm in PROCEDURES]
        most = {measure: _most(known, measure) for measure in MEASURES}
        with listener.during("at equal costs"):
            equal = {
                measure: [_prefix(one, measure, most[measure]) for one in known]
                for measure in MEASURES
            }
    finally:
        for each in scans:
            each.close()
    mean = {
        split: Metrics(part.mean, given.losses, everything.layout.binary)
        for split, part in everything.gathered.parts.items()
        if part.mean is not None
    }
    return Comparison(known, mean, most, equal)


def _most(compared: Sequence[Compared], measure: Measure) -> int:
    """What the thriftier one of Reconcile and ReDCal spent, of those that did anything."""
    spent = [one.spent(measure)[-1] for one in compared if one.algorithm in RIVALS]
    return min((each for each in spent if each), default=0)


def _prefix(one: Compared, measure: Measure, most: int) -> Prefix:
    """A procedure as it was when it had spent so much: any prefix of a log is a model."""
    spent = one.spent(measure)
    steps = bisect_right(spent, most) - 1
    cut = replace(one.pair, log=NamedLog(one.pair.log[:steps]))
    metrics = {
        split: Metrics(points[-1].totals, one.pair.losses, one.pair.binary)
        for split, points in one.scan.histories(cut, None).items()
    }
    return Prefix(one.algorithm, steps, spent[steps], metrics)


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
        return Compared(pair, seconds, scan.histories(pair, None), scan)


def mean_brier(metrics: Metrics) -> Fraction:
    """Of all models; of one column P(1) the usual (f - y)^2."""
    return sum(map(metrics.usual_brier, metrics.models), Fraction(0)) / len(metrics.models)


def mean_gap(metrics: Metrics, loss: int) -> Fraction:
    """What the models' decisions cost above those that know the label, on average."""
    gaps = (metrics.loss_gap(loss, model) for model in metrics.models)
    return sum(gaps, Fraction(0)) / len(metrics.models)

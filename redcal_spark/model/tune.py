"""`eta: auto`: every candidate is fitted on each half of the fitting rows and tried on the other.

Exact and the same on every engine: folds by a hash, losses as fractions, ties by rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from redcal_spark.backends.backend import Scan
from redcal_spark.core.folds import FOLDS, Folds
from redcal_spark.core.patches import Patch
from redcal_spark.core.problem import Problem
from redcal_spark.core.sums import DecisionSums
from redcal_spark.core.tuned import Before, Candidate, FoldFit, RowCounts, Tuned
from redcal_spark.errors import InputError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.settings import setting

OnCandidate = Callable[[Candidate, int], Any]  # a candidate, and how many there are


def tuned(problem: Problem, scan: Scan, tell: OnCandidate | None = None) -> Problem:
    """The problem with the eta and beta that a scan of it bears out; as it is, if both are given.

    tell: hears of every candidate as it is done.
    """
    if not problem.parameters.tunes:
        return problem
    return problem.chosen(tune(problem, scan, tell))


def tune(problem: Problem, scan: Scan, tell: OnCandidate | None = None) -> Tuned:
    """All candidates, each on both folds of what a scan kept."""
    parameters, fit = problem.parameters, scan.gathered.fit
    folds = fit.folds
    assert folds is not None
    level = folds.level(problem.tune_rows)
    there = [folds.used(folds.rows, fold, level) for fold in FOLDS]
    if not all(there):
        raise InputError(_empty(fit.counted, there, level))
    work = _Halves(problem, scan.halves(level), folds, level)
    candidates = []
    for eta, stretch in parameters.candidates:
        candidates.append(Candidate(eta, stretch, tuple(work.fit(f, eta, stretch) for f in FOLDS)))
        if tell is not None:
            tell(candidates[-1], len(parameters.candidates))
    counts = None
    if fit.totals.weights is not None:
        counts = RowCounts(fit.counted, sum(there), int(fit.totals.effective))
    return Tuned(
        tuple(candidates),
        work.before(),
        fit_rows=fit.rows,
        level=level,
        used=tuple(half.gathered.fit.rows for half in work.scans),
        active=sum(folds.used(folds.active, fold, level) for fold in FOLDS),
        tune_rows=problem.tune_rows,
        given_beta=parameters.beta,
        counts=counts,
    )


@dataclass(frozen=True)
class _Halves:
    """Both folds of the rows that are used, ready to be fitted on and tried on."""

    problem: Problem
    scans: tuple[Scan, ...]
    folds: Folds
    level: int

    def fit(self, fold: int, eta: float, stretch: int | None) -> FoldFit:
        """A candidate fitted on one half and tried on the other."""
        own = self.scans[fold]
        totals = own.gathered.fit.totals
        parameters = self.problem.parameters.candidate(eta, stretch, int(totals.effective))
        pair = fit_scanned(replace(self.problem, parameters=parameters), own)
        after = self._decided(1 - fold, pair.log)
        assert pair.resolved.beta is not None
        return FoldFit(
            rows=totals.rows,
            beta=pair.resolved.beta,
            m=pair.resolved.m,
            patches=len(pair.log),
            rounds=pair.log.rounds,
            status=pair.status,
            loss=self.problem.losses.rescaled_cost(after.labels),
            disputed=after.disputed,
        )

    def before(self) -> Before:
        decided = [self._decided(fold, ()) for fold in FOLDS]
        loss = (self.problem.losses.rescaled_cost(each.labels) for each in decided)
        return Before(sum(loss, Fraction(0)), sum(each.disputed for each in decided))

    def _decided(self, fold: int, log: Sequence[Patch]) -> DecisionSums:
        """On all rows of a fold; those that are not active decide as ever."""
        scan = self.scans[fold]
        layout = scan.layout
        rules = self.problem.rules(layout.binary)
        resting = self.folds.resting(fold, self.level, layout.n_classes, rules)
        return scan.decisions_after(self.problem, log) + resting


def chosen_line(tuned: Tuned, problem: Problem) -> str:
    """What was chosen, for people."""
    chosen, rows = tuned.chosen, tuned.effective
    beta = problem.parameters.resolve(rows, problem.n_classes or 2).beta
    rule = "as given" if chosen.stretch is None else chosen.rule
    return (
        f"{setting('eta', 'auto')} chose eta {chosen.eta:g}, beta {float(beta or 0):g} ({rule}): "
        f"the lowest loss of {len(tuned.candidates)} candidates, each tried on rows that it was "
        "not fitted on"
    )


def _empty(rows: int, used: Sequence[int], level: int) -> str:
    few = (
        f" whose hash is below 2^{64 - level} ({setting('tune_rows')} chose them)" if level else ""
    )
    return (
        f"{setting('eta', 'auto')} needs rows in both of its folds; of {rows:,} fitting rows{few} "
        f"they have {used[0]:,} and {used[1]:,}. Give {setting('eta')} a number"
    )

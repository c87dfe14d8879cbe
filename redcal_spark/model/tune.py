"""`eta: auto`: every candidate is fitted on each half of the fitting rows and tried on the other.

Exact and the same on every engine: folds by a hash, losses as fractions, ties by rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redcal_spark.backends.backend import Scan
from redcal_spark.core.folds import FOLDS, Folds
from redcal_spark.core.problem import Problem
from redcal_spark.core.tuned import Candidate, FoldFit, Tuned
from redcal_spark.errors import InputError
from redcal_spark.model.fit import fit_scanned
from redcal_spark.settings import setting

Told = Callable[[Candidate, int], Any]  # a candidate, and how many there are


def tuned(problem: Problem, scan: Scan, tell: Told | None = None) -> Problem:
    """The problem with the eta and beta that a scan of it bears out; as it is, if both are given.

    tell: hears of every candidate as it is done.
    """
    if not problem.parameters.tunes:
        return problem
    return problem.chosen(tune(problem, scan, tell))


def tune(problem: Problem, scan: Scan, tell: Told | None = None) -> Tuned:
    """All candidates, each on both folds of what a scan kept."""
    parameters, fit = problem.parameters, scan.gathered.fit
    folds = fit.folds
    assert folds is not None
    level = folds.level(problem.tune_rows)
    used = tuple(folds.used(folds.rows, fold, level) for fold in FOLDS)
    if not all(used):
        raise InputError(_empty(fit.rows, used, level))
    halves, candidates = scan.halves(level), list[Candidate]()
    for eta, stretch in parameters.candidates:
        fits = (_fit(problem, halves, folds, level, fold, eta, stretch) for fold in FOLDS)
        candidates.append(Candidate(eta, stretch, tuple(fits)))
        if tell is not None:
            tell(candidates[-1], len(parameters.candidates))
    active = sum(folds.used(folds.active, fold, level) for fold in FOLDS)
    return Tuned(
        *(tuple(candidates), fit.rows, level, used, active, problem.tune_rows, parameters.beta)
    )


def chosen_line(tuned: Tuned, problem: Problem) -> str:
    """What was chosen, for people."""
    chosen, rows = tuned.chosen, tuned.fit_rows
    beta = problem.parameters.resolve(rows, problem.n_classes or 2).beta
    rule = "as given" if chosen.stretch is None else chosen.rule
    return (
        f"{setting('eta', 'auto')} chose eta {chosen.eta:g}, beta {float(beta or 0):g} ({rule}): "
        f"the lowest loss of {len(tuned.candidates)} candidates, each tried on rows that it was "
        "not fitted on"
    )


def _fit(
    problem: Problem,
    halves: tuple[Scan, ...],
    folds: Folds,
    level: int,
    fold: int,
    eta: float,
    stretch: int | None,
) -> FoldFit:
    """A candidate fitted on one half and tried on the other."""
    own, other = halves[fold], halves[1 - fold]
    rows = own.gathered.fit.rows
    parameters = problem.parameters.candidate(eta, stretch, rows)
    pair = fit_scanned(replace(problem, parameters=parameters), own)
    d, losses = own.layout.n_classes, problem.losses
    after = other.decisions_after(pair) + folds.resting(1 - fold, level, d, losses)
    assert pair.resolved.beta is not None
    return FoldFit(
        rows=rows,
        beta=pair.resolved.beta,
        m=pair.resolved.m,
        patches=len(pair.log),
        rounds=pair.log.rounds,
        status=pair.status,
        loss=losses.rescaled_cost(after.labels),
        disputed=after.disputed,
    )


def _empty(rows: int, used: tuple[int, ...], level: int) -> str:
    few = (
        f" whose hash is below 2^{64 - level} ({setting('tune_rows')} chose them)" if level else ""
    )
    return (
        f"{setting('eta', 'auto')} needs rows in both of its folds; of {rows:,} fitting rows{few} "
        f"they have {used[0]:,} and {used[1]:,}. Give {setting('eta')} a number"
    )

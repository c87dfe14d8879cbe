"""The fast code and the slow oracle: the same log, field by field, the same end, the same scores.

The problems aim at ties, duplicates, scores on the grid and on the edge of the box, masses equal to
eta and means halfway between two patch values; see tests/problems.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings

from tests import oracle, problems
from tests.helpers import DRAWN, cuts, fit, fit_blocks, fitted, same_as, seeds
from tests.oracle import ALGORITHMS, Problem

SEEDS = range(65)  # for each of the four algorithms
WITH_EVENTS = ("redcal", "dc_then_redcal")


def check(problem: Problem, result: oracle.Result | None = None) -> None:
    """Through the public API, and block by block through the local engine."""
    result = result or oracle.fit(problem)
    pair = fit(problem)
    same_as(pair, result)
    assert pair.rows == len(problem.f1)
    assert fitted(pair, problem) == (result.f1, result.f2)
    n = len(problem.f1)
    same_as(fit_blocks(problem, [1] * n if n <= 8 else cuts(Random(n), n)), result)


@cache
def seeded(algorithm: str, seed: int) -> tuple[Problem, oracle.Result]:
    problem = problems.random_problem(seed, algorithm=algorithm)
    return problem, oracle.fit(problem)


def both_betas(problem: Problem) -> list[Problem]:
    """With and without adaptive beta, where that makes a difference."""
    if problem.algorithm not in WITH_EVENTS:
        return [problem]
    return [replace(problem, adaptive_beta=adaptive) for adaptive in (False, True)]


@pytest.mark.quick_cases(60)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", seeds(SEEDS, 30))
def test_seeded_problems(algorithm: str, seed: int) -> None:
    problem, result = seeded(algorithm, seed)
    check(problem, result)
    if algorithm in WITH_EVENTS:
        check(replace(problem, adaptive_beta=not problem.adaptive_beta))


@DRAWN
@given(problems.problems())
def test_small_drawn_problems(problem: Problem) -> None:
    check(problem)


@pytest.mark.slow
@DRAWN
@given(problems.seeded_problems())
def test_drawn_problems_of_full_size(problem: Problem) -> None:
    check(problem)


@pytest.mark.parametrize("name", problems.edge_cases())
def test_edge_cases(name: str) -> None:
    check(problems.edge_cases()[name])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(1_000, 2_000, 25))
def test_many_more_problems(algorithm: str, seed: int) -> None:
    for each in range(seed, seed + 25):
        for problem in both_betas(problems.random_problem(each, algorithm=algorithm)):
            check(problem)


@pytest.mark.slow
@settings(DRAWN, max_examples=2_000)
@given(problems.problems())
def test_many_more_small_drawn_problems(problem: Problem) -> None:
    check(problem)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_larger_problems(seed: int) -> None:
    check(problems.random_problem(seed, n=400, max_steps=200, max_rounds=10_000))


def test_the_problems_reach_what_they_are_for() -> None:
    """Agreement on problems where nothing happens would show nothing."""
    found: Counter[str] = Counter()
    moving: Counter[str] = Counter()
    for algorithm in ALGORITHMS:
        for seed in SEEDS:
            problem, result = seeded(algorithm, seed)
            moving[algorithm] += bool(result.log)
            found.update({result.status, "zero"} if result.zero_calibrations else {result.status})
            found.update({f"d={len(result.f1[0])}", f"losses={len(problem.losses)}"})
            found["binary"] += problem.binary
            found["vector labels"] += isinstance(problem.y[0], list)
            found["several K"] += len({len(costs) for costs in problem.losses.values()}) > 1
            found["inner"] += any(
                p["kind"] == "calibrate" and p["round"] is not None for p in result.log
            )
            found["mass = eta"] += problem.eta is not None and (
                problems.largest_mass(problem) == oracle.exact(problem.eta) * len(problem.f1)
            )
            found["coarse"] += problem.grid_bits is not None and problem.grid_bits <= 3
    assert all(moving[algorithm] >= 0.6 * len(SEEDS) for algorithm in ALGORITHMS)
    for what in ("converged", "capped", "stalled", "zero", "binary", "vector labels", "several K"):
        assert found[what] >= 5, what
    for what in ("inner", "mass = eta", "coarse", "d=2", "d=12", "losses=1", "losses=4"):
        assert found[what] >= 5, what

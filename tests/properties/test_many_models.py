"""Two, three and five models: the same log as the oracle's, patch by patch, on every path."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark import ReconciledPair
from tests import oracle, problems
from tests.helpers import (
    DRAWN,
    block_of,
    check_brier,
    cuts,
    fit,
    fit_blocks,
    fit_gathered,
    fitted,
    gathered,
    log_of,
    prefix,
    same_as,
    seeds,
    with_scores,
)
from tests.oracle import ALGORITHMS, Problem

SEEDS = range(120)
MODELS = (3, 5)


def check(problem: Problem) -> ReconciledPair:
    """Through the public API, and block by block through the local engine."""
    result = oracle.fit(problem)
    pair = fit(problem)
    same_as(pair, result)
    assert fitted(pair, problem) == tuple(result.f)
    assert pair.certificate is not None and pair.certificate.sound
    n = len(problem.f1)
    same_as(fit_blocks(problem, [1] * n if n <= 8 else cuts(Random(n), n)), result)
    return pair


@pytest.mark.quick_cases(18)
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", seeds(SEEDS, 6))
def test_seeded_problems(algorithm: str, models: int, seed: int) -> None:
    problem = problems.random_problem(seed, algorithm=algorithm, models=models, max_n=40, max_d=6)
    check(problem)
    if algorithm in ("redcal", "dc_then_redcal"):
        check(replace(problem, adaptive_beta=not problem.adaptive_beta))


@DRAWN
@given(st.sampled_from((2, 3, 5)).flatmap(lambda m: problems.problems(models=m)))
def test_small_drawn_problems(problem: Problem) -> None:
    check(problem)


@pytest.mark.slow
def test_the_seeds_see_what_many_models_bring() -> None:
    """Every pair, both orders of `model` and `other`, and models beyond the first two."""
    seen: set[Any] = set()
    for seed in range(40):
        for algorithm in ALGORITHMS:
            problem = problems.random_problem(seed, algorithm=algorithm, models=3, max_n=25)
            log = log_of(fit(problem))
            seen |= {(patch["kind"], patch["model"], patch["other"]) for patch in log}
    pairs = [(i, j) for i in (1, 2, 3) for j in (1, 2, 3) if i != j]
    for kind in ("reconcile", "score"):
        assert {(kind, *pair) for pair in pairs} <= seen
    assert {("calibrate", model, None) for model in (1, 2, 3)} <= seen


def test_two_models_log_what_they_always_did() -> None:
    """A third model that no one can disagree with changes nothing but the thresholds' rows."""
    for seed in range(30):
        problem = problems.random_problem(seed, algorithm="redcal")
        twin = replace(problem, more=[problem.f1])
        if oracle.fit(problem).log:
            continue
        assert log_of(fit(twin)) == []


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("seed", seeds(SEEDS, 4))
def test_resumed_from_any_prefix(models: int, seed: int) -> None:
    algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
    problem = problems.random_problem(seed, algorithm=algorithm, models=models, max_n=30, max_d=5)
    model, found, layout = gathered(problem, [7] * 6)
    whole = log_of(fit(problem))
    for steps in range(len(whole)):
        pair = fit_gathered(model, found, layout, prefix(whole[:steps]))
        assert log_of(pair) == whole


@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("seed", seeds(SEEDS, 8))
def test_every_patch_lowers_the_brier_score_and_fitting_again_gives_none(
    models: int, seed: int
) -> None:
    problem = problems.random_problem(seed, algorithm="redcal", models=models, max_n=40, max_d=5)
    pair = fit(problem)
    scores = check_brier(block_of(problem), pair.rules, pair.log)
    assert tuple(f.tolist() for f in scores) == fitted(pair, problem)
    if pair.status == "converged":
        beta = pair.resolved.beta
        again = replace(with_scores(problem, *fitted(pair, problem)), beta=float(beta or 0))
        assert log_of(fit(again)) == []


def test_ties_between_pairs_go_to_the_first() -> None:
    """Three models, two of which are the same: both pairs have the event, (1, 2) is taken."""
    costs = {"zero_one": [[0.0, 1.0], [1.0, 0.0]]}
    given: dict[str, Any] = {"losses": costs, "algorithm": "redcal", "alpha": 0.1, "eta": 0.25}
    one, two = [0.25] * 4, [0.75] * 4
    problem = Problem(one, two, [1, 1, 1, 0], more=[two], **given)
    first = log_of(check(problem))[0]
    assert (first["model"], first["other"], first["a1"], first["a2"]) == (1, 2, 0, 1)
    # the two that agree come first: the event's lower model is the one that says action 1
    turned = replace(problem, f1=two, more=[one])
    turned = replace(turned, f2=two)
    first = log_of(check(turned))[0]
    assert (first["model"], first["other"], first["a1"], first["a2"]) == (3, 1, 1, 0)

"""A row of weight w counts as w identical rows: the same log and the same sums, to the bit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redcal_spark import ReconciledPair
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.certificate.history_checks import differences
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics, Totals
from tests import oracle, problems, tune_oracle
from tests.helpers import (
    DRAWN,
    cuts,
    fit,
    fit_blocks,
    fitted,
    gathered,
    same_as,
    seeds,
)
from tests.oracle import ALGORITHMS, Problem
from tests.unit.test_tune import tuned_pair, vectors

ALIKE = ("small", "zeros", "uneven")  # few enough to be written out


@st.composite
def weighted(draw: Any, style: str | None = None) -> Problem:
    rng = draw(st.randoms(use_true_random=False))
    return problems.with_weights(problems.build(rng, max_n=10, max_d=4), rng, style)


def seeded(seed: int, algorithm: str, style: str | None = None) -> Problem:
    models = (2, 2, 3)[seed % 3]
    problem = problems.random_problem(seed, algorithm=algorithm, models=models)
    return problems.with_weights(problem, Random(seed), style)


def check(problem: Problem) -> None:
    """The same as the oracle has it, at once and block by block."""
    result = oracle.fit(problem)
    pair = fit(problem)
    same_as(pair, result)
    w = oracle.weights(problem)
    assert pair.rows == sum(w)
    assert pair.weights is not None
    found = pair.weights.rows, pair.weights.squares, pair.weights.largest
    assert found == (sum(x > 0 for x in w), sum(x * x for x in w), max(w))
    assert fitted(pair, problem) == tuple(result.f)  # rows of weight 0 are applied, too
    same_as(fit_blocks(problem, cuts(Random(len(w)), len(w))), result)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", seeds(range(40), 10))
def test_seeded_problems(algorithm: str, seed: int) -> None:
    check(seeded(seed, algorithm, problems.WEIGHTS[seed % len(problems.WEIGHTS)]))


@DRAWN
@given(weighted())
def test_drawn_problems(problem: Problem) -> None:
    check(problem)


# --- as if the rows were written out --------------------------------------------------------------


def histories(problem: Problem, threads: int = 1) -> tuple[ReconciledPair, list[Point]]:
    """What a fit gives, and the sums at every point."""
    model, found, layout = gathered(problem, cuts(Random(7), len(problem.f1)), threads)
    scan = LocalScan(found, layout, threads)
    from redcal_spark.model.fit import fit_scanned

    pair = fit_scanned(model.problem, scan)
    return pair, scan.histories(pair, None)["fit"]


def as_replicated(problem: Problem) -> None:
    """Patch by patch and sum by sum. beta: auto differs on purpose, so it is given here."""
    beta = problem.beta if problem.beta != "auto" else 0.01
    one = replace(problem, beta=beta)
    two = problems.replicated(one, oracle.weights(one))
    ours, points = histories(one)
    theirs, others = histories(two)
    assert ours.log == theirs.log
    assert (ours.status, ours.rows, ours.resolved) == (theirs.status, theirs.rows, theirs.resolved)
    assert ours.zero_calibrations == theirs.zero_calibrations
    assert [point.steps for point in points] == [point.steps for point in others]
    for here, there in zip(points, others, strict=True):
        assert differences(here.totals, there.totals) == []
        assert here.totals.weights is not None and there.totals.weights is None


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", seeds(range(100, 140), 8))
def test_as_if_rows_were_written_out(algorithm: str, seed: int) -> None:
    as_replicated(seeded(seed, algorithm, ALIKE[seed % len(ALIKE)]))


@pytest.mark.slow
@DRAWN
@given(weighted("small"))
def test_drawn_as_if_written_out(problem: Problem) -> None:
    as_replicated(problem)


def tuned_as_replicated(problem: Problem) -> None:
    """Copies of a row have its id, so that they fall into its fold; beta is given, for `auto` goes
    by effective rows. Then every number of every candidate is the same.
    """
    given = replace(vectors(problem), eta=None, beta=0.02, max_steps=20, max_rounds=5)
    w, n = oracle.weights(given), len(given.f1)
    ids = [i for i in range(n) for _ in range(w[i])]
    if tune_oracle.tune(given, list(range(n))) is None:  # a fold is empty
        return
    ours = tuned_pair(given, list(range(n))).tuned
    theirs = tuned_pair(problems.replicated(given, w), ids)
    assert ours is not None and theirs.tuned is not None
    active = theirs.tuned.active  # rows, which are fewer than their copies
    assert replace(ours, counts=None, active=active) == theirs.tuned


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("algorithm", ["redcal", "dc_then_redcal"])
@pytest.mark.parametrize("seed", seeds(range(200, 230), 4))
def test_tuned_as_if_rows_were_written_out(algorithm: str, seed: int) -> None:
    tuned_as_replicated(seeded(seed, algorithm, ALIKE[seed % len(ALIKE)]))


@settings(DRAWN, max_examples=8)  # eight candidates, each fitted twice, plainly
@given(weighted("zeros"), st.sampled_from(("redcal", "dc_then_redcal")))
def test_drawn_tuned_as_if_written_out(problem: Problem, algorithm: str) -> None:
    assume(problem.losses)  # of Reconcile there need be none
    tuned_as_replicated(replace(problem, algorithm=algorithm, alpha=problem.alpha or 0.05))


def test_auto_beta_is_by_the_effective_number_of_rows() -> None:
    """One heavy row of many makes the others say less: beta is larger than for as many rows."""
    problem = replace(seeded(3, "decision_calibration"), beta="auto", alpha=None, eta=None)
    n = len(problem.f1)
    heavy = replace(problem, w=[1] * (n - 1) + [50 * n], weight_unit=1.0)
    effective = (51 * n - 1) ** 2 // (n - 1 + (50 * n) ** 2)
    assert effective == 1
    beta = fit(heavy).resolved.beta
    assert beta == Fraction(1, 2) == oracle.resolve_beta(heavy)
    alike = replace(problem, w=[7] * n, weight_unit=1.0)
    assert fit(alike).resolved.beta == fit(replace(problem, w=None)).resolved.beta


# --- sums that overflow where someone is careless -------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_large_weights_are_exact(seed: int) -> None:
    """Weights that add up to nearly 2^37, against Python's integers."""
    problem = seeded(seed, "redcal", "large")
    vectors = replace(problem, y=[[float(i == 0) for i in range(d_of(problem))] for _ in problem.y])
    for one in (problem, vectors):
        _, found, _ = gathered(one, cuts(Random(seed), len(one.f1)))
        totals, w = found.fit.totals, oracle.weights(one)
        assert 2**35 < totals.rows == sum(w) < 2**37
        y = oracle.grid_labels(one)
        for model, scores in enumerate((one.f1, one.f2), 1):
            f = oracle.grid_scores(scores)
            assert totals.brier[model - 1] == oracle.brier_sum(f, y, w)
            metrics = Metrics(totals, found_losses(one))
            for place, name in enumerate(one.losses):
                assert metrics.decision_loss(place, model) == oracle.decision_loss(one, name, f)
                cells = metrics.losses.cells(place)
                sums = totals.scores[model - 1][cells].sum(axis=0).tolist()
                assert sums == [
                    sum(x * row[j] for x, row in zip(w, f, strict=True)) for j in range(len(f[0]))
                ]


def d_of(problem: Problem) -> int:
    return 2 if problem.binary else len(problem.f1[0])


def found_losses(problem: Problem) -> Any:
    from tests.helpers import reconciler

    return reconciler(problem).losses


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_patch_of_heavy_rows_lowers_the_brier_sum(algorithm: str) -> None:
    problem = seeded(11, algorithm, "large")
    pair = fit(problem)
    assert pair.log or pair.status == "converged"
    assert Totals.none(pair.rules, pair.n_classes).weights is None
    check(problem)


def test_squares_of_a_block_beyond_int64() -> None:
    """1,024 bad rows overflow int64 as they are; with weights of 3 a third of them do."""
    rows = 1_024
    wrong = Problem(
        [[0.0, 1.0]] * rows, [[1.0, 0.0]] * rows, [0] * rows, problems.ZERO_ONE, "redcal", 0.1, 0.1
    )
    _, found, _ = gathered(replace(wrong, w=[3] * rows))
    assert found.fit.totals.brier == (3 * rows * 2 * oracle.ONE**2, 0)
    assert 3 * rows * oracle.ONE**2 > 2**63

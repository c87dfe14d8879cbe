"""Row order, block size, block order and threads change nothing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark.backends.local import engine
from tests import problems
from tests.helpers import DRAWN, apply, cuts, fit, fit_blocks, log_of, reordered, seeds
from tests.oracle import ALGORITHMS, Problem

SEEDS = range(600, 632)


def numbered(seed: int) -> Problem:
    return problems.random_problem(seed, algorithm=ALGORITHMS[seed % 4])


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_shuffled_rows_give_the_same_log_and_the_same_rows(seed: int) -> None:
    problem = numbered(seed)
    pair, scores = fit(problem), apply(fit(problem), problem)
    order = list(range(len(problem.f1)))
    Random(seed).shuffle(order)
    turned = reordered(problem, order)
    other = fit(turned)
    assert log_of(other) == log_of(pair)
    assert (other.status, other.zero_calibrations) == (pair.status, pair.zero_calibrations)
    for found, expected in zip(apply(other, turned), scores, strict=True):
        back = np.empty_like(found)
        back[order] = found
        assert back.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_blocks_and_threads_give_the_same_log(seed: int) -> None:
    problem = numbered(seed)
    n, pair = len(problem.f1), fit(problem)
    sizes = cuts(Random(seed), n)
    found = [
        fit_blocks(problem, [1] * n),
        fit_blocks(problem, [1] * n, threads=2, reverse=True),
        fit_blocks(problem, sizes, reverse=True),
        fit_blocks(problem, sizes, threads=2),
        fit(problem, threads=2),
    ]
    for other in found:
        assert log_of(other) == log_of(pair)
        assert (other.status, other.zero_calibrations) == (pair.status, pair.zero_calibrations)


@pytest.mark.parametrize("seed", seeds(SEEDS, 16))
def test_an_event_patched_by_several_threads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = numbered(seed)
    expected = log_of(fit(problem, threads=1))
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 1)
    sizes = [3] * (len(problem.f1) // 3)
    assert log_of(fit_blocks(problem, sizes, threads=3)) == expected


@DRAWN
@given(problems.problems(), st.randoms(use_true_random=False))
def test_drawn_problems_in_drawn_orders(problem: Problem, rng: Random) -> None:
    order = list(range(len(problem.f1)))
    rng.shuffle(order)
    assert log_of(fit_blocks(reordered(problem, order), cuts(rng, len(order)))) == log_of(
        fit(problem)
    )


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_more_rows_than_one_chunk_of_the_kernel(algorithm: str) -> None:
    """The kernel works in chunks of at most 16,384 rows; here, cells of a chunk are many."""
    rng = np.random.default_rng(3)
    n = 20_000
    p1, p2 = rng.dirichlet([1.0] * 3, n), rng.dirichlet([1.0] * 3, n)
    rows = Problem(
        p1.tolist(),
        p2.tolist(),
        rng.integers(0, 3, n).tolist(),
        {"a": [[0, 1, 2], [2, 1, 0], [1, 0, 1]], "b": [[0, 3, 1], [1, 0, 2]]},
        algorithm,
        alpha=0.05,
        eta=0.02,
        beta=0.002,
        max_steps=25,
    )
    whole = fit(rows)
    assert len(whole.log) >= 3
    for sizes in ([n], [16_384], [1_000] * 20, [7, 9_000]):
        assert log_of(fit_blocks(rows, sizes, threads=2)) == log_of(whole)

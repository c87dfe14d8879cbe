"""Few rows at a time: the same scores to the bit as rows in blocks."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core import serving
from redcal_spark.core.blocks import Block
from redcal_spark.core.fixed_point import ONE, from_grid
from redcal_spark.core.rows import replay
from redcal_spark.core.serving import ROWS, serve
from tests import problems
from tests.helpers import Array, arrays, fit, quietly, seeds


def by_blocks(pair: ReconciledPair, scores: list[Array]) -> list[Array]:
    """Replayed as a table's rows are."""
    grids = [np.rint(own.astype(np.float64) * ONE).astype(np.int32) for own in scores]
    if pair.binary:
        grids = [np.stack([ONE - q, q], axis=1) for q in grids]
    done = replay(Block(tuple(grids)), pair.rules, pair.log)
    new = []
    for own, f, touched in zip(scores, done.f, done.touched, strict=True):
        values = own.astype(np.float64)
        values[touched] = from_grid(f[touched][:, 1] if pair.binary else f[touched])
        new.append(values)
    return new


def same(one: Any, two: Any) -> None:
    for ours, theirs in zip(one, two, strict=True):
        assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype


@pytest.mark.parametrize("seed", seeds(range(300), 60))
def test_random_problems(seed: int) -> None:
    problem = problems.random_problem(seed)
    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = fit(problem)
    f1, f2, _ = arrays(problem)
    scores = [f1.astype(np.float64), f2.astype(np.float64)]
    expected = by_blocks(pair, scores)
    served = serve(pair.serving, scores)
    if served is not None:  # else sums of scores are too large for one product
        same(served, expected)
    assert served is not None or f1.ndim == 2
    same(pair.apply(*scores), expected)
    for i in range(min(5, len(f1))):
        one = pair.apply(scores[0][i], scores[1][i])
        assert [np.asarray(x).tolist() for x in one] == [x[i].tolist() for x in expected]


@pytest.mark.parametrize("seed", seeds(range(300, 500), 40))
def test_leaps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calibrations at once, however short the round."""
    monkeypatch.setattr(serving, "LONG", 1)
    monkeypatch.setattr(serving, "FEW", 10_000)
    test_random_problems(seed)


def test_threads_share_leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """While hardly any is kept."""
    monkeypatch.setattr(serving, "LONG", 1)
    monkeypatch.setattr(serving, "KEPT", 1)
    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, 1_000)
    scores = rng.random((2, 1_000, 3)) + 0.5 * np.eye(3)[y]
    one, two = scores / scores.sum(axis=2, keepdims=True)
    made = Reconciler(losses={"a": rng.normal(size=(4, 3))}, alpha=0.01, eta=0.01, threads=1)
    pair = made.fit(one, two, y)
    expected = by_blocks(pair, [one, two])
    parts = [slice(start, start + 20) for start in range(0, 1_000, 20)]
    with ThreadPoolExecutor(4) as pool:
        for part, new in zip(
            parts * 3, pool.map(lambda p: pair.apply(one[p], two[p]), parts * 3), strict=True
        ):
            same(new, [own[part] for own in expected])


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("algorithm", ["redcal", "dc_then_redcal", "reconcile"])
@pytest.mark.parametrize("classes", [2, 4])
def test_several_models(algorithm: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, 1_500)
    noise = rng.random((4, 1_500, classes)) + 0.7 * np.eye(classes)[y]
    scores = list(noise / noise.sum(axis=2, keepdims=True))
    if classes == 2:
        scores = [own[:, 1] for own in scores]
    losses = {"a": rng.normal(size=(3, classes)), "b": rng.normal(size=(2, classes))}
    made = Reconciler(losses=losses, algorithm=algorithm, alpha=0.02, eta=0.02, threads=1)
    pair = made.fit(scores, y)
    assert {patch.model for patch in pair.log} >= {1, 2, 3}
    same(pair.apply(scores), by_blocks(pair, scores))
    one = pair.apply([own[7] for own in scores])
    assert [np.asarray(x).tolist() for x in one] == [x[7].tolist() for x in by_blocks(pair, scores)]


def test_sums_that_are_too_large_take_the_long_way() -> None:
    rng = np.random.default_rng(1)
    f1, f2 = rng.random((2, 400, 12))
    y = rng.integers(0, 12, 400)
    with quietly():
        made = Reconciler(losses={"a": rng.normal(size=(3, 12))}, alpha=0.01, eta=0.02)
        pair = made.fit(f1, f2, y)
        assert serve(pair.serving, [f1, f2]) is None
        same(pair.apply(f1, f2), by_blocks(pair, [f1, f2]))


def test_what_is_given_stays_as_it_was() -> None:
    pair = fit(problems.random_problem(3, binary=True, algorithm="redcal"))
    given = np.full((2, 50), 0.3), np.full((2, 50), 0.8)
    before = given[0].copy(), given[1].copy()
    pair.apply(given[0][0], given[1][0])
    same(given, before)
    many = np.random.default_rng(1).random((2, ROWS + 10))
    same(pair.apply(*many), by_blocks(pair, list(many)))

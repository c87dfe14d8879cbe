"""The cases of the contract: every engine gives the same log and the same rows for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any, Literal

import numpy as np

from redcal_spark import ReconciledPair
from tests import oracle, problems
from tests.helpers import Array, apply, arrays, fit, same_as
from tests.oracle import ALGORITHMS, Problem

Layout = Literal["even", "shuffled", "skewed", "empty"]
Budget = Literal["none", "small", "large"]

ROWS = {2: 1_200, 10: 600, 100: 250}
# (eta, beta) per problem: they leave 4 to 10 patches, so that a fit of jobs takes seconds.
THRESHOLDS: dict[tuple[str, int, int], tuple[float, float]] = {}


@dataclass(frozen=True)
class Case:
    """One fit of the contract."""

    algorithm: str
    classes: int
    losses: int
    partitions: int
    layout: Layout
    budget: Budget

    def __str__(self) -> str:
        return "-".join(str(getattr(self, field.name)) for field in fields(self))

    @property
    def problem(self) -> Problem:
        return made(self.algorithm, self.classes, self.losses)


VALUES: tuple[Sequence[Any], ...] = (
    ALGORITHMS,
    (2, 10, 100),
    (1, 5),
    (1, 2, 7, 64),
    ("even", "shuffled", "skewed", "empty"),
    ("none", "small", "large"),
)
ALL = [Case(*values) for values in product(*VALUES)]


def cover(size: int, seed: int = 5) -> list[Case]:
    """Cases that show every pair of values at least once, if so many are allowed; else a start."""
    rng = Random(seed)
    todo = {pair for case in ALL for pair in _pairs(case)}
    chosen: list[Case] = []
    while len(chosen) < size:
        drawn = rng.sample([case for case in ALL if case not in chosen], 200)
        best = max(drawn, key=lambda case: len(_pairs(case) & todo))
        chosen.append(best)
        todo -= _pairs(best)
    return chosen


def _pairs(case: Case) -> set[tuple[tuple[str, Any], ...]]:
    named = [(field.name, getattr(case, field.name)) for field in fields(case)]
    return set(combinations(named, 2))


@cache
def made(algorithm: str, d: int, losses: int) -> Problem:
    """Two noisy and biased views of one truth. d = 2 gives one column P(1)."""
    rng = np.random.default_rng([d, losses, ALGORITHMS.index(algorithm)])
    n = ROWS[d]
    truth = rng.dirichlet([8 / d] * d, n)
    views = []
    for power in (0.5, 2.0):  # one model is too timid, the other too bold
        bent = (0.7 * truth + 0.3 * rng.dirichlet([8 / d] * d, n)) ** power
        views.append(bent / bent.sum(axis=1, keepdims=True))
    y = [int(rng.choice(d, p=row)) for row in truth]
    f1, f2 = (v[:, 1].tolist() if d == 2 else v.tolist() for v in views)
    eta, beta = THRESHOLDS[algorithm, d, losses]
    costs = {f"l{i}": _costs(rng, 2 + i % 3, d) for i in range(losses)}
    return Problem(f1, f2, y, costs, algorithm, alpha=0.02, eta=eta, beta=beta, max_steps=12)


def _costs(rng: np.random.Generator, actions: int, d: int) -> list[list[float]]:
    """Action a suits the classes a, a + K, ..., more or less."""
    suits = np.arange(d) % actions == np.arange(actions)[:, None]
    costs: list[list[float]] = (rng.uniform(0.5, 1.5, (actions, d)) * ~suits).round(2).tolist()
    return costs


@cache
def expected(problem_id: tuple[str, int, int]) -> tuple[ReconciledPair, tuple[Array, Array]]:
    """What the local engine says, which for few classes is what the oracle says."""
    problem = made(*problem_id)
    pair = fit(problem)
    if problem_id[1] < 100:
        same_as(pair, oracle.fit(problem))
    return pair, apply(pair, problem)

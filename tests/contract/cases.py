"""The cases of the contract: every engine gives the same log and the same rows for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from redcal_spark import ReconciledPair
from tests import oracle, problems
from tests.helpers import Array, batches_of, fit, gathered, quietly, same_as
from tests.oracle import ALGORITHMS, Problem

Layout = Literal["even", "shuffled", "skewed", "empty"]
Budget = Literal["none", "small", "large"]
Scratch = Literal["files", "rows"]

ROWS = {2: 1_200, 10: 600, 100: 250}
# (eta, beta) per problem: they leave 4 to 10 patches, so that a fit of jobs takes seconds.
THRESHOLDS = {
    ("redcal", 2, 1): (0.02, 0.005),
    ("decision_calibration", 2, 1): (0.2, 0.005),
    ("dc_then_redcal", 2, 1): (0.005, 0.02),
    ("redcal", 2, 5): (0.07, 0.003),
    ("decision_calibration", 2, 5): (0.2, 0.03),
    ("dc_then_redcal", 2, 5): (0.1, 0.03),
    ("redcal", 10, 1): (0.07, 0.005),
    ("decision_calibration", 10, 1): (0.2, 0.02),
    ("dc_then_redcal", 10, 1): (0.07, 0.03),
    ("redcal", 10, 5): (0.1, 0.01),
    ("decision_calibration", 10, 5): (0.2, 0.03),
    ("dc_then_redcal", 10, 5): (0.2, 0.03),
    ("redcal", 100, 1): (0.1, 0.01),
    ("decision_calibration", 100, 1): (0.2, 0.03),
    ("dc_then_redcal", 100, 1): (0.07, 0.03),
    ("redcal", 100, 5): (0.1, 0.1),
    ("decision_calibration", 100, 5): (0.2, 0.03),
    ("dc_then_redcal", 100, 5): (0.1, 0.05),
}
RECONCILE = {2: 0.02, 10: 0.05, 100: 0.01}  # alpha; ten patches, then the cap


@dataclass(frozen=True)
class Case:
    """One fit of the contract."""

    algorithm: str
    classes: int
    losses: int
    partitions: int
    layout: Layout
    budget: Budget
    scratch: Scratch  # who writes it on Spark: tasks, or Spark
    models: int = 2

    def __str__(self) -> str:
        return "-".join(str(getattr(self, name)) for name in self.values)

    @property
    def values(self) -> list[str]:
        """What tells the cases apart; two models go without saying."""
        names = [field.name for field in fields(self)]
        return names if self.models > 2 else names[:-1]

    @property
    def problem(self) -> Problem:
        return made(self.algorithm, self.classes, self.losses, self.models)

    @property
    def expected(self) -> Expected:
        return expected(self.algorithm, self.classes, self.losses, self.models)

    @property
    def driver_budget(self) -> int:
        """None of the rows at the driver, single events, or all active rows."""
        small = self.expected.active_bytes // 3
        return {"none": 0, "small": small, "large": 2**28}[self.budget]


VALUES: tuple[Sequence[Any], ...] = (
    ALGORITHMS,
    (2, 10, 100),
    (1, 5),
    (1, 2, 7, 64),
    ("even", "shuffled", "skewed", "empty"),
    ("none", "small", "large"),
    ("files", "rows"),
)
ALL = [Case(*values) for values in product(*VALUES)]
# More than two models: every algorithm, and every way of a row to the driver.
MORE_MODELS = [
    Case("redcal", 10, 1, 3, "shuffled", "none", "files", 3),
    Case("redcal", 10, 5, 2, "even", "small", "rows", 3),
    Case("redcal", 2, 1, 7, "skewed", "large", "files", 5),
    Case("decision_calibration", 10, 1, 2, "even", "none", "rows", 3),
    Case("reconcile", 10, 1, 3, "empty", "none", "files", 3),
    Case("dc_then_redcal", 2, 5, 2, "shuffled", "small", "files", 3),
]
ALL_MORE_MODELS = [
    Case(algorithm, d, losses, 3, "shuffled", budget, "files", models)
    for algorithm, d, losses, models in product(ALGORITHMS, (2, 10), (1, 5), (3, 5))
    for budget in get_args(Budget)
]


def cover(among: Sequence[Case] = ALL, size: int | None = None, seed: int = 7) -> list[Case]:
    """Cases that show every pair of values at least once; or a start, of this size."""
    rng = Random(seed)
    todo = {pair for case in among for pair in pairs(case)}
    chosen: list[Case] = []
    while todo and len(chosen) != size:
        best = max(rng.sample(among, 200), key=lambda case: len(pairs(case) & todo))
        chosen.append(best)
        todo -= pairs(best)
    return chosen


def pairs(case: Case) -> set[tuple[tuple[str, Any], ...]]:
    named = [(name, getattr(case, name)) for name in case.values]
    return set(combinations(named, 2))


@cache
def made(algorithm: str, d: int, losses: int, models: int = 2) -> Problem:
    """Noisy and biased views of one truth. d = 2 gives one column P(1)."""
    rng = np.random.default_rng([d, losses, ALGORITHMS.index(algorithm)])
    n = ROWS[d]
    truth = rng.dirichlet([8 / d] * d, n)

    def view(power: float) -> list[Any]:
        bent = (0.7 * truth + 0.3 * rng.dirichlet([8 / d] * d, n)) ** power
        bent /= bent.sum(axis=1, keepdims=True)
        scores: list[Any] = bent[:, 1].tolist() if d == 2 else bent.tolist()
        return scores

    f1, f2 = view(0.5), view(2.0)  # one model is too timid, the other too bold
    y = [int(rng.choice(d, p=row)) for row in truth]
    costs = {f"l{i}": _costs(rng, 2 + i % 3, d) for i in range(losses)}
    more = [view(power) for power in (1.0, 0.7, 1.5)[: models - 2]]
    eta, beta = THRESHOLDS.get((algorithm, d, losses), (0.2, 0.02))
    alpha = RECONCILE[d] if algorithm == "reconcile" else 0.02
    return Problem(f1, f2, y, costs, algorithm, alpha, eta, beta, max_steps=10, more=more)


def _costs(rng: np.random.Generator, actions: int, d: int) -> list[list[float]]:
    """Action a suits the classes a, a + K, ..., more or less."""
    suits = np.arange(d) % actions == np.arange(actions)[:, None]
    costs: list[list[float]] = (rng.uniform(0.5, 1.5, (actions, d)) * ~suits).round(2).tolist()
    return costs


@dataclass(frozen=True)
class Expected:
    """What the local engine says, which for small problems is what the oracle says."""

    pair: ReconciledPair
    rows: pa.Table
    active_bytes: int


@cache
def expected(algorithm: str, d: int, losses: int, models: int = 2) -> Expected:
    return of_problem(made(algorithm, d, losses, models), compare=d < 100)


def of_problem(problem: Problem, compare: bool = True) -> Expected:
    pair = fit(problem)
    if compare:
        same_as(pair, oracle.fit(problem))
    _, found, _ = gathered(problem)
    size = sum(scan.active.nbytes for scan in found.fit.scans)
    with quietly():
        return Expected(pair, pair.apply(table(problem)), size)


def table(problem: Problem) -> pa.Table:
    """The rows with an id, as a lakehouse holds them."""
    return numbered(pa.Table.from_batches(batches_of(problem, [])))


def numbered(rows: pa.Table) -> pa.Table:
    return rows.add_column(0, "id", pa.array(range(len(rows)), pa.int64()))


def part_of(case_layout: Layout, rows: int, partitions: int, seed: int = 3) -> Array:
    """The partition of every row: even, at random, nearly all in one, or in few of them."""
    rng = np.random.default_rng(seed)
    even = np.arange(rows) % partitions
    if case_layout == "skewed":
        return np.where(rng.random(rows) < 0.95, 0, even)
    if case_layout == "empty":
        return even // 3 * 3
    return rng.permutation(even) if case_layout == "shuffled" else even


def same_rows(found: pa.Table, wanted: pa.Table) -> None:
    """Every column, bit by bit, whatever the order of the rows."""
    found, wanted = found.sort_by("id"), wanted.sort_by("id")
    assert found.column_names == wanted.column_names
    for name in wanted.column_names:
        assert bits(found.column(name)) == bits(wanted.column(name)), name


def bits(column: pa.ChunkedArray) -> bytes:
    """Numbers as their bytes: -0.0 is not 0.0."""
    array = column.combine_chunks()
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if pa.types.is_floating(array.type):
        return bytes(array.to_numpy(zero_copy_only=False).tobytes())
    return str(array.to_pylist()).encode()


def edge_cases() -> dict[str, Problem]:
    """Logs that turn on an exact half in rounding, on a tie, or on a mass exactly eta."""
    vectors: dict[str, Any] = {"losses": problems.ZERO_ONE, "algorithm": "decision_calibration"}
    row, other = [0.25, 0.75], [0.75, 0.25]
    return problems.edge_cases() | {
        # Mean residuals of .75 and .25 are 1.5 and .5 steps of 1/2: they become 2 and 0 steps.
        "half_up_and_half_down": Problem(
            [row] * 4, [other] * 4, [0] * 4, grid_bits=1, beta=0.01, **vectors
        ),
        # Two events of the same mass, and that mass is eta.
        "masses_tie_at_eta": problems.theorem_2(0.4, 0.2),
        "masses_tie": problems.theorem_2(0.2, 0.1),
        "reconcile_tie": problems.theorem_1(0.2),
    }

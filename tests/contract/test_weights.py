"""The contract with weights: every engine gives the oracle's log, and that of replicated rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import backends, oracle, problems
from tests.contract.cases import Expected, made, of_problem, table
from tests.contract.engines import Local, Spark, SparkFiles, check
from tests.oracle import ALGORITHMS, Problem

# Jobs for every step, single events at the driver, or all rows there.
BUDGETS = {"none": 0, "small": 3, "large": 0}
QUICK = [("redcal", "none"), ("dc_then_redcal", "none")]
if not backends.whole():
    QUICK = QUICK[:1]


@cache
def weighted(algorithm: str) -> tuple[Problem, Expected]:
    """Weights from 0 to 4, five of the rows 300 times as heavy."""
    problem = made(algorithm, 2, 1)
    rng = Random(17)
    heavy = problems.with_weights(problem, rng, "zeros")
    assert heavy.w is not None
    for row in rng.sample(range(len(heavy.w)), 5):
        heavy.w[row] = 900
    return heavy, of_problem(heavy)


def on_spark() -> Iterator[Any]:
    for algorithm in ALGORITHMS:
        for budget in BUDGETS:
            marks = [pytest.mark.spark]
            if (algorithm, budget) not in QUICK:
                marks.append(pytest.mark.slow)
            yield pytest.param(algorithm, budget, id=f"spark-{algorithm}-{budget}", marks=marks)


def budget_of(budget: str, wanted: Expected) -> int:
    return {"none": 0, "small": wanted.active_bytes // 3, "large": 2**28}[budget]


@pytest.mark.parametrize(("algorithm", "budget"), list(on_spark()))
def test_spark(spark: Any, scratch: str, algorithm: str, budget: str) -> None:
    problem, wanted = weighted(algorithm)
    backend = Spark(spark, scratch)
    rows = backend.rows(table(problem), 3, "shuffled")
    check(backend, problem, wanted, rows, budget_of(budget, wanted))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_local(algorithm: str) -> None:
    problem, wanted = weighted(algorithm)
    assert wanted.pair.log and any(patch.rows > 900 for patch in wanted.pair.log)
    backend = Local()
    check(backend, problem, wanted, backend.rows(table(problem), 7, "skewed"), 0)
    written = problems.replicated(problem, oracle.weights(problem))
    check(backend, written, of_problem(written, compare=False), table(written), 0)
    assert of_problem(written, compare=False).pair.log == wanted.pair.log


FILES = [
    pytest.param(False, id="spark-parquet"),
    pytest.param(True, id="spark-delta", marks=pytest.mark.slow),
]


@pytest.mark.spark
@pytest.mark.parametrize("delta", FILES[:1] if backends.name() == "cluster" else FILES)
def test_files(spark: Any, scratch: str, tmp_path: Path, delta: bool) -> None:
    problem, wanted = weighted("redcal")
    backend = SparkFiles(spark, scratch, tmp_path, delta)
    check(backend, problem, wanted, backend.rows(table(problem), 2, "even"), 0)

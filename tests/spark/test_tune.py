"""`eta: auto` on Spark: the candidates' numbers are those of the local engine, from one scan."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from redcal_spark.backends.spark.scan import SparkScan
from redcal_spark.backends.spark.scratch import Scratch
from tests.helpers import log_of, quietly, reconciler
from tests.problems import random_problem
from tests.unit.test_tune import ALPHA, table_of, vectors


@pytest.mark.parametrize(
    ("budget", "files", "algorithm", "tune_rows", "ids", "weights"),
    [
        (2**28, True, "redcal", 10**6, True, False),
        (2**28, True, "redcal", 25, False, True),
        (600, True, "redcal", 10**6, False, False),
        pytest.param(600, True, "redcal", 10**6, True, True, marks=pytest.mark.slow),
        pytest.param(600, False, "redcal", 40, True, True, marks=pytest.mark.slow),
        pytest.param(0, True, "redcal", 25, True, False, marks=pytest.mark.slow),
        pytest.param(2**28, True, "dc_then_redcal", 40, True, False, marks=pytest.mark.slow),
        pytest.param(600, True, "dc_then_redcal", 40, True, True, marks=pytest.mark.slow),
    ],
)
def test_the_same_as_in_memory(
    spark: Any,
    scratch: str,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
    files: bool,
    algorithm: str,
    tune_rows: int,
    ids: bool,
    weights: bool,
) -> None:
    shape: dict[str, Any] = {"n": 120, "d": 3, "beta": "auto", "vector_labels": False}
    limits: dict[str, Any] = {"max_rounds": 2, "max_steps": 5}
    problem = vectors(random_problem(21, algorithm=algorithm, **ALPHA, **shape, **limits))
    if weights:  # of halves of 2^30: sums of squares have more than 64 bits
        w = [Random(21 + i).randint(0, 3) * 2**29 for i in range(120)]
        problem = replace(problem, w=[x / 2 for x in w], weight_unit=0.5)
    table = table_of(problem, range(120) if ids else None)
    options: dict[str, Any] = {"id": "id" if ids else None, "tune_rows": tune_rows, "eta": "auto"}
    scans = []
    init = SparkScan.__init__

    def counted(*args: Any, **named: Any) -> None:
        scans.append(1)
        init(*args, **named)

    monkeypatch.setattr(SparkScan, "__init__", counted)
    if not files:
        monkeypatch.setattr(Scratch, "direct", False)
    with quietly():
        here = reconciler(problem, **options).fit(table)
        place: dict[str, Any] = {"scratch": scratch, "driver_budget": budget}
        frame = spark.createDataFrame(table).repartition(3)
        there = reconciler(problem, **options, **place).fit(frame)
    assert scans == [1]
    assert there.tuned == here.tuned and here.tuned is not None
    assert len({c.loss for c in here.tuned.candidates}) > 1
    assert log_of(there) == log_of(here)
    assert there.resolved == here.resolved
    assert (here.tuned.counts is not None) is weights

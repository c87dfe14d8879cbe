"""Real predictions, every step a Spark job; skipped where ../shared/data is absent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cases import of_problem, same_rows, table
from tests.contract.engines import Spark, check
from tests.helpers import quietly, reconciler, some_quick
from tests.real_data import load

SETS = {"nfl_elo": 4_000, "dermamnist": 1_500, "mnist_pycalib": 1_500, "imagenet_100": 800}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", some_quick(SETS, 2))
def test_real_sets_without_handover(spark: Any, scratch: str, name: str) -> None:
    # few patches are left at this eta: each is a job or two
    problem = load(name).take(SETS[name]).problem("redcal", eta=0.02, beta=0.002)
    wanted = of_problem(problem, compare=False)
    assert wanted.pair.status == "converged"
    assert len(wanted.pair.log) >= 2
    backend = Spark(spark, scratch)
    frame = backend.rows(table(problem), 2, "even")
    check(backend, problem, wanted, frame, 0)

    # what was reconciled has nothing left to reconcile
    again = wanted.pair.apply(frame).select("id", "label", *wanted.rows.column_names[4:6])
    again = again.toDF("id", "label", "model_1", "model_2")
    with quietly():
        second = reconciler(problem, id="id", scratch=scratch, driver_budget=0).fit(again)
    assert (len(second.log), second.status) == (0, "converged")
    same_rows(
        second.apply(again).select("id", "model_1_reconciled").toArrow(),
        wanted.rows.select(["id", "model_1_reconciled"]),
    )

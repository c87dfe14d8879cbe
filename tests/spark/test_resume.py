"""A run that goes on from a part of its log ends as if it had never stopped."""

from __future__ import annotations

from typing import Any

import pytest

from redcal_spark.backends.spark.frames import layout_of
from redcal_spark.backends.spark.scan import SparkScan
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.model.fit import fit_scanned
from tests.contract.cases import expected, made, table
from tests.helpers import log_of, prefix, quietly, reconciler

CUTS = [
    (("redcal", 2, 5), 2),  # inside a round
    (("redcal", 2, 5), 4),  # at the end of one
    (("dc_then_redcal", 10, 5), 2),  # inside the calibration everywhere
    (("dc_then_redcal", 10, 5), 6),
    (("reconcile", 2, 1), 3),
    (("decision_calibration", 10, 1), 3),
]


def go_on(spark: Any, scratch: str, problem: tuple[str, int, int], cut: int, budget: int) -> Any:
    log = log_of(expected(*problem).pair)
    frame = spark.createDataFrame(table(made(*problem))).repartition(3)
    with quietly():
        model = reconciler(made(*problem))
        layout = layout_of(frame, model.columns, model.problem.n_classes)
        place = Scratch(spark, scratch)
        try:
            scan = SparkScan(frame, model.problem, layout, place, budget)
            return fit_scanned(model.problem, scan, prefix(log[:cut]))
        finally:
            place.close()


def every_cut() -> list[Any]:
    """Every other cut, with one of the budgets; all with both in the slow tests."""
    budgets = ("none", "events")
    return [
        pytest.param(*cut, budget, marks=() if i % 4 == 3 * j else pytest.mark.slow)
        for i, cut in enumerate(CUTS)
        for j, budget in enumerate(budgets)
    ]


@pytest.mark.parametrize(("problem", "cut", "budget"), every_cut())
def test_from_a_part_of_the_log(
    spark: Any, scratch: str, problem: tuple[str, int, int], cut: int, budget: str
) -> None:
    size = 0 if budget == "none" else expected(*problem).active_bytes - 1
    pair = go_on(spark, scratch, problem, cut, size)
    assert log_of(pair) == log_of(expected(*problem).pair)
    assert pair.status == expected(*problem).pair.status


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(("redcal", 2, 5), marks=pytest.mark.slow),
        ("dc_then_redcal", 2, 5),
        pytest.param(("reconcile", 2, 1), marks=pytest.mark.slow),
    ],
)
def test_rewriting_after_every_patch_changes_nothing(
    spark: Any, scratch: str, problem: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When to rewrite is decided by measured time, so that tests must force it."""
    monkeypatch.setattr(Stored, "rewrite_pays", property(lambda self: bool(self.pending)))
    pair = go_on(spark, scratch, problem, 0, 0)
    assert log_of(pair) == log_of(expected(*problem).pair)

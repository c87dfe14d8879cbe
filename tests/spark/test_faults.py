"""A task that fails is tried again, and counts once. Killed executors: on_cluster.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cases import expected, made, table
from tests.contract.engines import Spark, check
from tests.spark.faulty import Fault, Faults, attempts

PROBLEM = ("redcal", 2, 1)
MANIFEST = 1  # of what a scan's task gives: groups, then its file, which is closed by then


@pytest.mark.parametrize(
    ("task", "number", "fault", "at", "budget"),
    [
        pytest.param("ScanTask", 0, "raise", 0, 0, marks=pytest.mark.slow),
        ("ScanTask", 0, "kill worker", MANIFEST, 2**28),
        ("KeepTask", 1, "kill worker", 0, 0),
        ("AskTask", 2, "raise", 0, 0),
        pytest.param("AskTask", 2, "kill worker", 0, 0, marks=pytest.mark.slow),
    ],
)
def test_a_task_that_fails_once(
    spark: Any,
    scratch: str,
    faults: Faults,
    task: str,
    number: int,
    fault: Fault,
    at: int,
    budget: int,
) -> None:
    """It has given rows back before it fails, its file may be whole, and none of it must count."""
    marker = faults(task, fault, number, at)
    backend = Spark(spark, scratch)
    rows = backend.rows(table(made(*PROBLEM)), 2, "even")
    check(backend, made(*PROBLEM), expected(*PROBLEM), rows, budget)
    assert marker.exists()
    assert attempts(marker) >= 2

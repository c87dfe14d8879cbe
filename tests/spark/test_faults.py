"""A task that fails is tried again, and counts once. Killed executors: on_cluster.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cases import expected, made, table
from tests.contract.engines import Spark, check
from tests.spark.faulty import Fault, Faults, attempts

PROBLEM = ("redcal", 2, 1)


@pytest.mark.parametrize(
    ("task", "number", "fault"),
    [
        ("ScanTask", 0, "raise"),
        ("KeepTask", 1, "kill worker"),
        ("AskTask", 2, "raise"),
        ("AskTask", 2, "kill worker"),
    ],
)
def test_a_task_that_fails_once(
    spark: Any, scratch: str, faults: Faults, task: str, number: int, fault: Fault
) -> None:
    """It has given rows back before it fails, and these must not count."""
    marker = faults(task, fault, number)
    backend = Spark(spark, scratch)
    rows = backend.rows(table(made(*PROBLEM)), 2, "even")
    check(backend, made(*PROBLEM), expected(*PROBLEM), rows, 0)
    assert marker.exists()
    assert attempts(marker) >= 2

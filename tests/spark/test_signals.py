"""SIGTERM in the middle of Spark's jobs: processes with sessions of their own, and so few."""

from __future__ import annotations

import pytest

from tests.e2e.test_signals import ended
from tests.spark.test_runs import ONLY_CLASSIC, Lake, lake  # noqa: F401


@ONLY_CLASSIC
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        ("TERM", "scan"),
        pytest.param("TERM", "inside a calibration", marks=pytest.mark.slow),
        pytest.param("TERM", "write of the rows", marks=pytest.mark.slow),
        pytest.param("INT", "scan", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run(lake: Lake, number: str, moment: str) -> None:  # noqa: F811
    lake.tree["reconcile"]["eta"] = 0.05
    lake.tree["engine"]["driver_budget"] = 0
    ended(lake, number, moment, "run", "--engine", "spark")

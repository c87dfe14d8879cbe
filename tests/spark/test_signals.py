"""SIGTERM in the middle of Spark's jobs: processes with sessions of their own, and so few."""

from __future__ import annotations

import pytest

from tests.e2e.test_signals import ended
from tests.spark.test_runs import ONLY_CLASSIC, Lake, lake  # noqa: F401


def few_patches(work: Lake) -> None:
    work.tree["reconcile"]["eta"] = 0.05
    work.tree["engine"]["driver_budget"] = 0


@pytest.mark.slow
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
    few_patches(lake)
    ended(lake, number, moment, "run", "--engine", "spark")


@ONLY_CLASSIC
@pytest.mark.slow
def test_a_signal_ends_all_of_it(lake: Lake) -> None:  # noqa: F811
    """As `timeout` and systemd do it: to every process. The ledger is written without Spark."""
    few_patches(lake)
    ended(lake, "TERM", "scan", "run", "--engine", "spark", first="$(pgrep -P $PPID java)")

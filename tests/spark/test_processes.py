"""The contract again, on Spark Connect and on a cluster: each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import backends

ROOT = Path(__file__).parents[2]
CONTRACT = "tests/contract"
PATIENCE = 1_500  # seconds; the tests in it have their own

pytestmark = pytest.mark.timeout(PATIENCE + 60)


def passed(backend: str, marks: str, *paths: str) -> int:
    """How many tests passed in a pytest process: all of them."""
    arguments = [*paths, "-q", "-m", marks, "-p", "no:cacheprovider"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=os.environ | {backends.VARIABLE: backend},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert found.returncode == 0, f"{found.stdout[-6_000:]}\n{found.stderr[-2_000:]}"
    closing = found.stdout.strip().splitlines()[-1]
    counted = re.search(r"(\d+) passed", closing)
    assert counted is not None, closing
    assert not re.search("failed|error|skipped|warning", closing), closing
    return int(counted[1])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("backend", "marks", "least"),
    [
        ("connect", "not slow", 11),
        ("cluster", "not slow", 8),
        pytest.param("connect", "slow", 7, marks=pytest.mark.slow),
        pytest.param("cluster", "slow", 6, marks=pytest.mark.slow),
    ],
)
def test_contract(backend: str, marks: str, least: int) -> None:
    assert passed(backend, f"spark and {marks}", CONTRACT, f"tests/spark/on_{backend}.py") >= least

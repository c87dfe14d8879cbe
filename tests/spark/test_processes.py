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


def suite(backend: str, *paths: str) -> str:
    """The closing line of a pytest process, which must succeed."""
    arguments = [*paths, "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=os.environ | {backends.VARIABLE: backend},
        capture_output=True,
        text=True,
        timeout=570,
    )
    assert found.returncode == 0, f"{found.stdout[-6_000:]}\n{found.stderr[-2_000:]}"
    return found.stdout.strip().splitlines()[-1]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("backend", "paths", "least"),
    [
        ("connect", [CONTRACT, "tests/spark/on_connect.py"], 28),
        ("cluster", [CONTRACT, "tests/spark/on_cluster.py"], 26),
    ],
)
def test_contract(backend: str, paths: list[str], least: int) -> None:
    closing = suite(backend, *paths)
    found = re.match(r"(\d+) passed", closing)
    assert found is not None, closing
    assert int(found[1]) >= least
    assert not re.search("failed|error|skipped|warning", closing), closing

"""What only a cluster shows. Not collected by itself: test_processes.py names this file.

The last test leaves one worker behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from redcal_spark.errors import UsageError
from tests import backends
from tests.contract.cases import expected, made, table
from tests.contract.engines import Spark, check
from tests.helpers import quietly, reconciler, refused
from tests.spark.faulty import Fault, Faults, attempts

PROBLEM = ("redcal", 2, 1)
MISSING = ("redcal_spark", "pandas", "threadpoolctl", "deltalake", "pydantic", "yaml", "rich")


def imports(python: str, module: str) -> bool:
    found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, cwd="/")
    return found.returncode == 0


def test_workers_have_numpy_pyarrow_and_pyspark_alone(spark: Any) -> None:
    python = str(backends.running().python)
    assert all(imports(python, module) for module in backends.WORKER_PACKAGES)
    assert not any(imports(python, module) for module in MISSING)

    def look(batches: Any) -> Any:
        import importlib.util
        import os
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        found = [name for name in MISSING if importlib.util.find_spec(name)]
        told = [sys.executable, os.environ.get("PYTHONPATH", ""), ",".join(found)]
        yield pa.RecordBatch.from_pydict({"told": told})

    assert len(backends.running().workers) == 2
    told = spark.range(2).mapInArrow(look, "told string").collect()
    assert told[0][0] == python
    # the package is there once it was shipped, and only in Spark's own folder for artifacts
    assert told[2][0] in ("", "redcal_spark")


def test_a_cluster_needs_a_place_that_every_worker_sees(spark: Any) -> None:
    problem = made(*PROBLEM)
    frame = spark.createDataFrame(table(problem))
    with quietly():
        model = reconciler(problem, driver_budget=0)
        told = refused(UsageError, lambda: model.fit(frame))
    assert told == (
        "scratch: is required, because this Spark session is not local; "
        "give a path or a catalog schema that every worker can reach"
    )


def fit(spark: Any, scratch: str, budget: int = 0) -> None:
    backend = Spark(spark, scratch)
    rows = backend.rows(table(made(*PROBLEM)), 2, "even")
    check(backend, made(*PROBLEM), expected(*PROBLEM), rows, budget)


@pytest.mark.parametrize("task", [pytest.param("KeepTask", marks=pytest.mark.slow), "AskTask"])
def test_speculative_copies_of_a_task(spark: Any, scratch: str, faults: Faults, task: str) -> None:
    marker = faults(task, "slow")
    fit(spark, scratch)
    assert attempts(marker) >= 2


@pytest.mark.parametrize(
    ("task", "number"), [pytest.param("KeepTask", 1, marks=pytest.mark.slow), ("AskTask", 2)]
)
def test_an_executor_is_killed_in_the_middle_of_a_task(
    spark: Any, scratch: str, faults: Faults, task: str, number: int
) -> None:
    fault: Fault = "kill executor"
    marker = faults(task, fault, number)
    fit(spark, scratch)
    assert marker.exists()
    assert attempts(marker) >= 2


def test_a_worker_is_killed_with_its_executor(spark: Any, scratch: str, faults: Faults) -> None:
    marker = faults("AskTask", "kill executor", 1)
    worker = backends.running().workers[0]
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    fit(spark, scratch)
    assert marker.exists()

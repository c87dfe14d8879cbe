"""A model as SQL in Spark: bit for bit what `apply` gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair
from tests import sql_cases
from tests.helpers import seeds

ROOT = Path(__file__).parents[2]


def queried(spark: Any, pair: ReconciledPair, rows: pa.Table) -> pa.Table:
    """By a view, so that the text is what a user would send."""
    spark.createDataFrame(rows).createOrReplaceTempView("redcal_rows")
    try:
        return spark.sql(pair.to_sql("redcal_rows", "spark")).toArrow()
    finally:
        spark.catalog.dropTempView("redcal_rows")


@pytest.mark.parametrize("seed", seeds(range(200), 4))
def test_random_problems(spark: Any, seed: int) -> None:
    pair, rows = sql_cases.random_case(seed)
    sql_cases.same(queried(spark, pair, rows), pair, rows)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("form", ["arrays", "columns"])
def test_the_largest_model(form: str) -> None:
    command = [sys.executable, "-m", "tests.spark.largest_sql", form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["nfl_elo", *(pytest.param(x, marks=pytest.mark.slow) for x in sql_cases.LARGER)]
)
def test_real_sets(spark: Any, name: str) -> None:
    pair, rows = sql_cases.real_case(name)
    sql_cases.same(queried(spark, pair, rows), pair, rows)

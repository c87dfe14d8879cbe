"""A model as SQL in Spark: bit for bit what `apply` gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair
from tests import sql_cases
from tests.helpers import seeds


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
@pytest.mark.parametrize("columns", [False, True])
def test_the_largest_model(spark: Any, columns: bool) -> None:
    pair, rows = sql_cases.largest_case(columns)
    sql_cases.same(queried(spark, pair, rows), pair, rows)


@pytest.mark.parametrize(
    "name", ["nfl_elo", *(pytest.param(x, marks=pytest.mark.slow) for x in sql_cases.LARGER)]
)
def test_real_sets(spark: Any, name: str) -> None:
    pair, rows = sql_cases.real_case(name)
    sql_cases.same(queried(spark, pair, rows), pair, rows)

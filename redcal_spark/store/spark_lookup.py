"""Rows by their id, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.functions import col

from redcal_spark.engines.spark_frames import column, table_of
from redcal_spark.store.spark_tables import SparkTable, explained


def rows_with(
    table: Any, id: str, value: Any, names: Sequence[str], most: int
) -> tuple[pa.Table, int]:
    """The first few rows whose id is this value, and how many there are."""
    assert isinstance(table, SparkTable)
    with explained(table.explain):
        same = table.frame.where(col(column(id)) == value)
        found = table_of(same.limit(most), names)
        return found, found.num_rows if found.num_rows < most else same.count()

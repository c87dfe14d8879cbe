"""How much Spark hands to a worker's Python at once, and a word where that is much."""

from __future__ import annotations

import logging
import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from redcal_spark.core.columns import Layout

log = logging.getLogger(__name__)

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST = 64 << 20  # what Spark itself takes for enough, from 4.1 on


def warn_of_large_batches(spark: SparkSession, layout: Layout) -> None:
    """Say what to set where rows are so wide that a worker's memory goes beyond 512 MiB.

    A worker holds two batches at a time: measured, 911 MiB with those of 256 MiB.
    """
    row = 8 * layout.n_classes * layout.columns.n_models
    size = batch_bytes(row, _number(spark, RECORDS, 10_000), _number(spark, BYTES, MOST))
    if size > MOST:
        log.warning(
            "rows of %d kB: this Spark hands %d MiB of them to Python at once, and a worker may "
            "take 1 GiB; set %s to 64m",
            row // 1_000,
            size >> 20,
            BYTES,
        )


def batch_bytes(row: int, records: int, most: int) -> int:
    """The size of a batch of rows of so many bytes; records: 0 or less is no bound."""
    return min(row * records, most) if records > 0 else most


def _number(spark: SparkSession, key: str, default: int) -> int:
    try:
        told = spark.conf.get(key, None)
    except PySparkException:  # serverless does not tell
        return default
    found = re.match(r"-?\d+", told or "")
    return int(found[0]) if found else default

"""How much Spark hands to a worker's Python at once, and a word where that stays much."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from redcal_spark.core.columns import Layout

log = logging.getLogger(__name__)

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST = 64 << 20  # what Spark itself takes for enough, from 4.1 on
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """While our jobs run, Python gets 64 MiB at once, as by default from Spark 4.1 on.

    A worker holds two batches at a time. Spark 4.0 makes them of 256 MiB; a setting of the session
    is the only way to bound them. One that is smaller stays; ours is taken back at the end.
    """
    own = None
    bounded = False
    if _bytes(spark) > MOST:
        with suppress(PySparkException):  # some may not be changed, as on serverless
            own = spark.conf.get(BYTES, None)
            spark.conf.set(BYTES, str(MOST))
            bounded = True
    try:
        yield
    finally:
        if bounded:
            with suppress(PySparkException):  # a session that is gone
                _put_back(spark, own)


def _put_back(spark: SparkSession, own: str | None) -> None:
    if own is None:
        spark.conf.unset(BYTES)
    else:
        spark.conf.set(BYTES, own)


def warn_of_large_batches(spark: SparkSession, layout: Layout) -> None:
    """Say what to set where rows are wide and batches are large in spite of `small_batches`."""
    row = 8 * layout.n_classes * layout.columns.n_models
    size = batch_bytes(row, _records(spark), _bytes(spark))
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


def bytes_of(text: str) -> int:
    """A size as Spark writes it: 268435456b, 64m, 64MB; a bare number is bytes."""
    parts = re.fullmatch(r"\s*(-?\d+)\s*([kmgtp]?)b?\s*", text.lower())
    return int(parts[1]) * 1_024 ** POWERS[parts[2]] if parts else MOST


def _bytes(spark: SparkSession) -> int:
    try:  # not with a default: then Spark does not tell its own
        return bytes_of(spark.conf.get(BYTES) or "")
    except PySparkException:  # serverless does not tell
        return MOST


def _records(spark: SparkSession) -> int:
    try:
        return int(spark.conf.get(RECORDS) or "10000")
    except (PySparkException, ValueError):
        return 10_000

"""How many tasks run side by side; Spark Connect has no other way to ask."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pyarrow.compute as pc
from pyspark.sql import SparkSession

MANY = 1 << 14  # rows, so that no core is left without one

_known: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def cores(spark: SparkSession) -> int:
    """The partitions that Spark makes unasked: one per core. Looked up once a session."""
    if spark not in _known:
        parts = spark.range(0, MANY).selectExpr("spark_partition_id() AS part").toArrow()
        _known[spark] = max(1, pc.count_distinct(parts["part"]).as_py())
    return _known[spark]

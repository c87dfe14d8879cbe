"""Which Spark this is, and what is said of one that is too old."""

from __future__ import annotations

import re
from typing import Any

import pyspark

from redcal_spark.errors import UsageError
from redcal_spark.settings import setting

OLDEST = (4, 0)


def need_pyspark_4() -> None:
    """Refuse a PySpark that lacks what the engine is built on, in words."""
    _check("PySpark", pyspark.__version__)


def need_spark_4(spark: Any) -> None:
    """The same, for a session: its server may be older than PySpark here."""
    need_pyspark_4()
    _check("Spark", spark.version)


def _check(what: str, version: str) -> None:
    numbers = re.findall(r"\d+", version)[:2]
    if len(numbers) == 2 and tuple(map(int, numbers)) < OLDEST:
        raise UsageError(
            f"redcal needs Spark 4.0 or later, and this is {what} {version} (Databricks 17.3 and "
            "EMR spark-8.0 are the first with 4.0). Fit where there is one, or with "
            f"{setting('engine', 'local')}, which needs no Spark. A model that is exported as SQL "
            "(redcal export --format sql) can be applied here, without this package"
        )

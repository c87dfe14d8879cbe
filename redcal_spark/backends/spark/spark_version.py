"""Which Spark this is, and what is said of one that is too old or lacks what it needs."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import pyspark

from redcal_spark.errors import UsageError
from redcal_spark.settings import setting

OLDEST, NEWEST = (4, 0), (4, 2)  # with a Delta


def need_pyspark_4() -> None:
    """Refuse a PySpark that lacks what the engine is built on, in words."""
    _check("PySpark", pyspark.__version__)
    if find_spec("pandas") is None:  # `mapInArrow` asks for it, though no rows go through it
        raise UsageError(
            "PySpark needs pandas at the driver, and there is none; install it there: pip install "
            "'pandas>=2.2,<3' (the extra redcal-spark[spark] brings it). Workers need none"
        )


def need_spark_4(spark: Any) -> None:
    """The same, for a session: its server may be older than PySpark here."""
    need_pyspark_4()
    _check("Spark", spark.version)


def newer_than_delta(version: str = pyspark.__version__) -> str:
    """What may be wrong if Delta's jars are not found: a Spark that has none yet."""
    if _numbers(version) <= NEWEST:
        return ""
    return f" (this is PySpark {version}, and this release knows a Delta for 4.0 to 4.2)"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _check(what: str, version: str) -> None:
    numbers = _numbers(version)
    if len(numbers) == 2 and numbers < OLDEST:
        raise UsageError(
            f"redcal needs Spark 4.0 or later, and this is {what} {version} (Databricks 17.3 and "
            "EMR spark-8.0 are the first with 4.0). Fit where there is one, or with "
            f"{setting('engine', 'local')}, which needs no Spark. A model that is exported as SQL "
            "(redcal export --format sql) can be applied here, without this package"
        )

"""The rows of the table: a platform, or a pair of Spark and Delta, and its libraries."""

from __future__ import annotations

from dataclasses import dataclass, field

ENGINES = ("local", "classic", "connect")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")


@dataclass(frozen=True)
class Row:
    """libraries: at the versions that the platform has; no others may replace them.

    without_delta: nobody makes Delta's jars for this Spark, so that the local engine alone runs.
    """

    name: str
    platform: str
    spark: str
    delta: str
    python: str
    libraries: dict[str, str] = field(default_factory=dict)
    without_delta: bool = False

    @property
    def engines(self) -> tuple[str, ...]:
        return ENGINES[:1] if self.without_delta else ENGINES

    @property
    def brings(self) -> list[str]:
        """What is there before the package comes."""
        pins = [f"{name}=={version}" for name, version in self.libraries.items()]
        pandas = [] if "pandas" in self.libraries else ["pandas>=2.2,<3"]
        delta = [] if self.without_delta else [f"delta-spark=={self.delta}"]
        return [f"pyspark=={self.spark}", *delta, *pins, *pandas, *CONNECT]


def _of(pyarrow: str, pandas: str, numpy: str, pydantic: str) -> dict[str, str]:
    return {"pyarrow": pyarrow, "pandas": pandas, "numpy": numpy, "pydantic": pydantic}


OLDEST, NEWEST = "oldest", "newest"
ROWS = (
    Row(OLDEST, "oldest pair", "4.0.0", "4.0.0", "3.11"),
    Row("4.0", "Spark 4.0, last release", "4.0.5", "4.4.0", "3.11"),
    Row("4.1-first", "Spark 4.1, first Delta", "4.1.1", "4.1.0", "3.11"),
    Row("4.1", "Spark 4.1, last release", "4.1.4", "4.4.0", "3.11"),
    Row(NEWEST, "newest pair", "4.2.0", "4.4.0", "3.11"),
    Row(
        "databricks-17",
        "Databricks 17.3 LTS, serverless 4",
        *("4.0.1", "4.0.1", "3.12"),
        _of("19.0.1", "2.2.3", "2.1.3", "2.10.6"),
    ),
    Row(
        "databricks-18",
        "Databricks 18 LTS, serverless 5; Fabric 2.0",
        *("4.1.1", "4.2.0", "3.12"),
        _of("21.0.0", "2.2.3", "2.1.3", "2.10.6"),
    ),
    Row(
        "databricks-19",
        "Databricks 19, serverless 6",
        *("4.2.0", "4.4.0", "3.12"),
        _of("21.0.0", "2.3.3", "2.3.5", "2.13.5"),
    ),
    Row("emr-8", "EMR spark-8.0", "4.0.2", "4.0.0", "3.11"),
    Row("emr-8-3.13", "EMR spark-8.0, Python 3.13", "4.0.2", "4.0.0", "3.13"),
    Row("newest-3.13", "newest pair, Python 3.13", "4.2.0", "4.4.0", "3.13"),
    # delta-spark itself asks for at most 4.2.0; its jars are those of 4.2
    Row("4.2-last", "Spark 4.2, last release", "4.2.1", "4.4.0", "3.11"),
    Row(
        "index",
        "newest Spark on the index",
        *("4.3.0", "none for it", "3.13"),
        {"pandas": "3.1.1"},
        without_delta=True,
    ),
)

"""Scratch of a Spark run: where blocks are written, and read back; removed at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from redcal_spark.backends.counters import Counters
from redcal_spark.backends.spark.errors import over_scratch
from redcal_spark.backends.spark.scratch_folders import (
    PREFIX,
    absolute,
    is_leftover,
    is_path,
    remove_folder,
    run_name,
)
from redcal_spark.backends.spark.tasks import DDL
from redcal_spark.errors import UsageError
from redcal_spark.settings import setting


class Scratch:
    """A place that every worker sees: a path, or a schema of the catalog. Emptied at the end."""

    def __init__(self, spark: SparkSession, place: str | None, counters: Counters | None = None):
        self.spark = spark
        self.counters = counters or Counters()
        self.place = _local_place(spark) if place is None else absolute(place)
        self.name = run_name()
        self._made: list[str] = []

    def write(self, frame: DataFrame) -> DataFrame:
        """Write blocks and read them back with a known schema; nothing is computed twice."""
        place = self._next()
        self.counters.jobs += 1
        writer = (
            frame.write.option("compression", "none")
            # A cell of 4 MB overruns the heap when Parquet looks at sizes every 100 rows only.
            .option("parquet.page.size.row.check.min", "1")
            .option("parquet.page.size.row.check.max", "1")
            .option("parquet.block.size.row.check.min", "1")
            .option("parquet.block.size.row.check.max", "1")
            .option("parquet.block.size", str(8 * 2**20))
            .option("parquet.enable.dictionary", "false")
        )
        with over_scratch(place, self.name, from_input=len(self._made) == 1):
            if is_path(place):
                writer.mode("overwrite").parquet(place)
                return self.spark.read.schema(DDL).parquet(place)
            writer.mode("overwrite").format("parquet").saveAsTable(quoted(place))
            return self.spark.read.table(quoted(place))

    def collected(self, frame: DataFrame) -> Iterator[tuple[str, Any]]:
        """Rows of (kind, data) at the driver."""
        self.counters.jobs += 1
        with over_scratch(str(self.place), self.name):
            table: pa.Table = frame.select("kind", "data").toArrow()
        for kind, data in zip(table.column("kind"), table.column("data"), strict=True):
            yield kind.as_py(), data.as_buffer()

    def _next(self) -> str:
        if self.place is None:
            raise UsageError(
                f"{setting('scratch')}: is required, because this Spark session is not local; "
                "give a path or a catalog schema that every worker can reach"
            )
        if not self._made:
            self.remove_leftovers()
        number = len(self._made)
        made = (
            f"{self.place}/{self.name}/{number}"
            if is_path(self.place)
            else (f"{self.place}.{self.name}_{number}")
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        """Remove all that was written here."""
        if not self._made or self.place is None:
            return
        made, self._made = self._made, []
        if is_path(self.place):
            self._remove_path(f"{self.place}/{self.name}", made)
        else:
            for table in made:
                self.spark.sql(f"DROP TABLE IF EXISTS {quoted(table)}")

    def _remove_path(self, folder: str, parts: Sequence[str]) -> None:
        if remove_folder(folder):
            return
        # Not visible from here (an object store, another machine): empty it through Spark.
        nothing = self.spark.createDataFrame([], DDL)
        for part in parts:
            nothing.write.mode("overwrite").parquet(part)

    def remove_leftovers(self) -> list[str]:
        """Remove what runs left that died."""
        assert self.place is not None
        if is_path(self.place):
            root = Path(self.place.removeprefix("file://").removeprefix("file:"))
            dead = [p for p in sorted(root.glob(f"{PREFIX}_*")) if is_leftover(p.name)]
            for folder in dead:
                remove_folder(str(folder))
            return [folder.name for folder in dead]
        try:
            listed = f"SHOW TABLES IN {quoted(self.place)} LIKE '{PREFIX}*'"
            found = self.spark.sql(listed).collect()
        except AnalysisException as err:
            raise UsageError(f"{setting('scratch')}: no schema {self.place}") from err
        names = [row["tableName"] for row in found]
        dead_tables = [n for n in names if is_leftover(n.rsplit("_", 1)[0])]
        for name in dead_tables:
            self.spark.sql(f"DROP TABLE IF EXISTS {quoted(f'{self.place}.{name}')}")
        return dead_tables


def quoted(name: str) -> str:
    """A table's name for SQL, each part in backticks."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def _local_place(spark: SparkSession) -> str | None:
    """A temporary folder is good enough where the workers are this machine."""
    try:
        master = spark.conf.get("spark.master", "")
    except PySparkException:
        return None
    if str(master).startswith("local"):
        return str(Path(tempfile.gettempdir(), "redcal-scratch"))
    return None

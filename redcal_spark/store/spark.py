"""The store on Spark: Delta by path and by catalog name, Parquet, CSV.

DataFrame reads and writes and SQL only, so that it works on Spark Connect too. Identifiers are
quoted, values never pasted into SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from redcal_spark.engines.spark import quoted
from redcal_spark.engines.spark_frames import arrow_schema, column, spark_schema
from redcal_spark.errors import InputError, RunError
from redcal_spark.store.base import Commit, Mode, run_of, version_at
from redcal_spark.store.delta_types import unstorable
from redcal_spark.store.deltars import DeltaRsStore
from redcal_spark.store.files import FileTable, first_line
from redcal_spark.store.inputs import Side
from redcal_spark.store.spark_join import join_frames

TRIES = 20  # of a write that lost a race for the next version


@dataclass(frozen=True)
class Place:
    """Where a table is: a path, or a name in the catalog."""

    name: str

    @property
    def is_path(self) -> bool:
        return "/" in self.name or self.name.startswith(".") or Path(self.name).exists()

    @property
    def sql(self) -> str:
        """The table in SQL."""
        if self.is_path:
            return "delta.`" + self.name.replace("`", "``") + "`"
        return quoted(self.name)

    @property
    def absolute(self) -> Place:
        """Spark resolves relative paths against the folder its server was started in."""
        if self.is_path and "://" not in self.name:
            return Place(str(Path(self.name).absolute()))
        return self


class SparkTable:
    """One version of a table, as a DataFrame."""

    def __init__(self, name: str, frame: DataFrame, identity: dict[str, Any], files: Any = None):
        self.name = name
        self.frame = frame
        self._identity = identity
        self._files: FileTable | None = files

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.frame)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows at the driver: for small tables."""
        frame = self.frame if columns is None else self.frame.select(*map(column, columns))
        yield from frame.toArrow().to_batches()

    def first(self, columns: Sequence[str]) -> pa.RecordBatch | None:
        """A few rows, to look at."""
        found = self.frame.select(*map(column, columns)).limit(64).toArrow().to_batches()
        return next((batch for batch in found if batch.num_rows), None)

    def count(self) -> int | None:
        return None

    def identity(self) -> dict[str, Any]:
        return self._identity if self._files is None else self._files.identity()

    def explain(self, err: Exception) -> Exception:
        """Why a pass over the rows failed: files are read here to tell, in words."""
        if self._files is not None:
            try:
                for _ in self._files.batches():
                    pass
            except InputError as found:
                return found
        return RunError(f"{self.name}: {told(err)}")


class SparkStore:
    """Tables are paths that the workers see, or names in the catalog."""

    name = "spark"

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self._local = DeltaRsStore()  # for what can be seen of paths without reading tables

    def open(
        self,
        name: str,
        version: int | str | None = None,
        separator: str = ",",
        fractions: Sequence[str] = (),
    ) -> SparkTable:
        place = Place(name).absolute
        if place.is_path and not Path(name, "_delta_log").is_dir() and "://" not in name:
            return self._open_files(name, version, separator, fractions)
        pinned = self._pinned(name, place, version)
        reader = self.spark.read.option("versionAsOf", str(pinned["version"]))
        try:
            if place.is_path:
                frame = reader.format("delta").load(place.name)
            else:
                frame = reader.table(place.sql)
        except PySparkException as err:
            raise InputError(f"{name}: cannot be read: {first_line(err)}") from err
        return SparkTable(name, frame, pinned)

    def _open_files(
        self, name: str, version: int | str | None, separator: str, fractions: Sequence[str]
    ) -> SparkTable:
        # the embedded store tells what is wrong with files, in the same words
        table = self._local.open(name, version, separator, fractions)
        assert isinstance(table, FileTable)
        files = [str(Path(f).absolute()) for f in table.files]
        if table.kind == "parquet":
            reader = self.spark.read
            if Path(name).is_dir():
                reader = reader.option("basePath", str(Path(name).absolute()))
            return SparkTable(name, reader.parquet(*files), table.identity(), table)
        frame = (
            self.spark.read.schema(spark_schema(table.schema))
            .options(header=True, sep=separator, multiLine=True, escape='"', mode="FAILFAST")
            .csv(files)
        )
        return SparkTable(name, frame, table.identity(), table)

    def _pinned(self, name: str, place: Place, version: int | str | None) -> dict[str, Any]:
        """The version to read, as a number, so that every pass reads the same rows."""
        try:
            entries = self.spark.sql(f"DESCRIBE HISTORY {place.sql}").select("version", "timestamp")
            found = [(int(r["version"]), _utc(r["timestamp"])) for r in entries.collect()]
            detail = self.spark.sql(f"DESCRIBE DETAIL {place.sql}").select("id").collect()[0]
        except PySparkException as err:
            if not place.is_path:
                raise InputError(f"{name}: no such table in the catalog") from err
            raise InputError(f"{name}: not a readable Delta table: {first_line(err)}") from err
        newest = max(v for v, _ in found)
        if version is None:
            chosen = newest
        elif isinstance(version, int):
            if version not in {v for v, _ in found}:
                gone = " (older ones may have been cleaned up)" if version < newest else ""
                raise InputError(f"{name}: has no version {version}; the newest is {newest}{gone}")
            chosen = version
        else:
            chosen = version_at(name, found, version)
        return {"kind": "delta", "table": name, "version": int(chosen), "id": detail["id"]}

    def join(
        self, main: SparkTable, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ) -> SparkTable:
        tables = [main.identity(), *(side.table.identity() for side in sides)]
        frame = join_frames(main, sides, id, policy)
        return SparkTable(main.name, frame, {"kind": "join", "tables": tables})

    def check_target(self, name: str, key: str) -> str | None:
        place = Place(name)
        return self._local.check_target(name, key) if place.is_path else None

    def check_schema(self, schema: pa.Schema) -> list[str]:
        return unstorable(schema)

    def write(
        self,
        name: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: Mode,
        commit: Commit,
    ) -> int:
        """Write rows that are at the driver."""
        table = pa.Table.from_batches(list(batches), schema)
        frame = self.spark.createDataFrame(table)
        return self.write_frame(name, frame, mode, commit)

    def write_frame(self, name: str, frame: DataFrame, mode: Mode, commit: Commit) -> int:
        """Write a frame as one version. A repeat of the same phase of a run is skipped by Delta."""
        place = Place(name).absolute
        writer = (
            frame.write.format("delta")
            .mode(mode)
            .option("userMetadata", commit.user_metadata)
            .option("txnAppId", f"{commit.run_id}:{name}")
            .option("txnVersion", str(commit.phase))
        )
        if mode == "overwrite":
            writer = writer.option("overwriteSchema", "true")
        try:
            if place.is_path:
                writer.save(place.name)
            else:
                writer.saveAsTable(place.sql)
        except PySparkException as err:
            raise RunError(f"{name}: could not be written: {told(err)}") from err
        return self._version_of(name, commit)

    def _version_of(self, name: str, commit: Commit) -> int:
        for version, run_id in self._writers(name, 100):
            if run_id == commit.run_id:
                return version
        raise RunError(f"{name}: the version just written is not in its history")

    def rows_written(self, name: str, version: int) -> int:
        sql = f"DESCRIBE HISTORY {Place(name).absolute.sql}"
        found = self.spark.sql(sql).where(col("version") == version).select("operationMetrics")
        return int(found.collect()[0]["operationMetrics"].get("numOutputRows", 0))

    def _writers(self, name: str, limit: int) -> list[tuple[int, str | None]]:
        sql = f"DESCRIBE HISTORY {Place(name).absolute.sql} LIMIT {limit:d}"
        rows = self.spark.sql(sql).select("version", "userMetadata").collect()
        return [(int(r["version"]), run_of(r["userMetadata"])) for r in rows]

    def upsert(self, name: str, rows: pa.Table, key: str, commit: Commit) -> None:
        place = Place(name).absolute
        source = self.spark.createDataFrame(rows)
        if not self._exists(place):
            self._create(place, source.limit(0))
        target = place.sql if not place.is_path else f"spark_catalog.{place.sql}"
        for left in reversed(range(TRIES)):
            try:
                merge = source.alias("source").mergeInto(
                    place.sql, expr(f"source.{quoted(key)} = {target}.{quoted(key)}")
                )
                merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
                return
            except PySparkException as err:
                if not left or "CONCURRENT" not in str(err).upper():
                    raise RunError(f"{name}: could not be written: {told(err)}") from err

    def _create(self, place: Place, empty: DataFrame) -> None:
        writer = empty.write.format("delta").mode("ignore")
        if place.is_path:
            writer.save(place.name)
        else:
            writer.saveAsTable(place.sql)

    def _exists(self, place: Place) -> bool:
        if place.is_path and "://" not in place.name:
            return Path(place.name, "_delta_log").is_dir()
        try:
            self.spark.sql(f"DESCRIBE DETAIL {place.sql}").collect()
        except PySparkException:
            return False
        return True

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        place = Place(name).absolute
        if not self._exists(place):
            return None
        if place.is_path:
            frame = self.spark.read.format("delta").load(place.name)
        else:
            frame = self.spark.read.table(place.sql)
        for name_, value in (equal or {}).items():
            if name_ not in frame.columns:
                has = ", ".join(frame.columns)
                raise RunError(f"{name}: is another kind of table: no column {name_!r}, but {has}")
            frame = frame.where(col(column(name_)) == value)
        return frame.toArrow()

    def last_writer(self, name: str) -> str | None:
        if not self._exists(Place(name).absolute):
            return None
        return self._writers(name, 1)[0][1]


def _utc(time: datetime) -> datetime:
    """Spark gives local times without a zone."""
    return time.astimezone(UTC)


def told(err: Exception) -> str:
    """What Spark says, without its stack."""
    return first_line(err)[:500]

"""Tables of a few rows on Spark: looked up, merged into, compacted, dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, expr

from redcal_spark.backends.local.folders import missing_folders, remove_empty
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.spark.errors import is_sparks
from redcal_spark.backends.spark.merge import saying
from redcal_spark.backends.spark.scratch import remove_folder
from redcal_spark.backends.spark.tables import again, explained, unwritten
from redcal_spark.backends.store import RECENT, Commit, writer_of
from redcal_spark.errors import RunError


class SparkSmallTables:
    """What a store does with its ledger and with tables that runs write beside the rows."""

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self._made: dict[str, list[Path]] = {}  # folders made for tables, innermost first
        self._local = DeltaRsStore()  # for what can be seen of paths without reading tables

    def history(self, name: str, limit: int | None = None) -> list[Row]:
        """Versions and what their commits say of themselves, newest first."""
        most = "" if limit is None else f" LIMIT {limit:d}"
        sql = f"DESCRIBE HISTORY {Place(name).absolute.sql}{most}"
        return self.spark.sql(sql).select("version", "userMetadata", "operationMetrics").collect()

    def merge(
        self,
        name: str,
        rows: pa.Table,
        same: Mapping[str, str],
        commit: Commit,
        *,
        insert: bool = True,
        update: bool = True,
    ) -> None:
        place = Place(name).absolute
        source = self.spark.createDataFrame(rows)
        if not self._exists(place):
            if not insert:
                return
            self._made[name] = missing_folders(place.name) if place.is_path else []
            self._create(place, name, source.limit(0))
        equal = " and ".join(
            f"source.{quoted(s)} = {place.in_merge}.{quoted(t)}" for t, s in same.items()
        )
        new = {*rows.column_names} - {*self._frame(place).columns}

        def merge() -> None:
            merging = source.alias("source").mergeInto(place.sql, expr(equal))
            if new:  # a ledger of an earlier release
                merging = merging.withSchemaEvolution()
            if update:
                merging = merging.whenMatched().updateAll()
            if insert:
                merging = merging.whenNotMatched().insertAll()
            merging.merge()

        with explained(partial(unwritten, name)):
            again(merge)

    def delete(self, name: str, key: str, values: Sequence[str], commit: Commit) -> int:
        place = Place(name).absolute
        if not values or not self._exists(place):
            return 0
        count = self._frame(place).where(col(quoted(key)).isin(list(values))).count()
        if not count:
            return 0
        gone = self.spark.createDataFrame([(value,) for value in values], "gone string")
        same = f"source.gone = {place.in_merge}.{quoted(key)}"

        def delete() -> None:  # a DELETE in SQL takes no parameters
            merging = gone.alias("source").mergeInto(place.sql, expr(same))
            merging.whenMatched().delete().merge()

        with explained(partial(unwritten, name)), saying(self.spark, commit):
            again(delete)
        return count

    def compact(self, name: str, commit: Commit) -> tuple[int, int]:
        place = Place(name).absolute
        if not self._exists(place):
            return 0, 0

        def files() -> int:
            detail = self.spark.sql(f"DESCRIBE DETAIL {place.sql}").select("numFiles").collect()
            return int(detail[0][0])

        before = files()
        with explained(partial(unwritten, name)), saying(self.spark, commit):
            again(lambda: self.spark.sql(f"OPTIMIZE {place.sql}").collect())
        return before, files()

    def exists(self, name: str) -> bool:
        return self._exists(Place(name).absolute)

    def drop(self, name: str) -> None:
        place = Place(name).absolute
        if not place.is_path:
            self.spark.sql(f"DROP TABLE IF EXISTS {place.sql}")
            return
        remove_folder(place.name)
        remove_empty(self._made.pop(name, []))

    def _create(self, place: Place, name: str, empty: DataFrame) -> None:
        """An empty table, unless someone else has made it meanwhile."""
        writer = empty.write.format("delta").mode("ignore")
        try:
            if place.is_path:
                writer.save(place.name)
            else:
                writer.saveAsTable(place.sql)
        except Exception as err:
            if not is_sparks(err):
                raise
            if not self._exists(place):
                raise unwritten(name, err) from err

    def _exists(self, place: Place) -> bool:
        if place.is_here:  # a first write that died leaves a log without a commit
            return self._local.exists(place.name)
        try:
            self.spark.sql(f"DESCRIBE DETAIL {place.sql}").collect()
        except PySparkException:
            return False
        return True

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        place = Place(name).absolute
        if not self._exists(place):
            return None
        frame = self._frame(place)
        for name_, value in (equal or {}).items():
            if name_ not in frame.columns:
                has = ", ".join(frame.columns)
                raise RunError(f"{name}: is another kind of table: no column {name_!r}, but {has}")
            frame = frame.where(col(quoted(name_)) == value)
        return frame.toArrow()

    def _frame(self, place: Place) -> DataFrame:
        """The newest version."""
        if place.is_path:
            return self.spark.read.format("delta").load(place.name)
        return self.spark.read.table(place.sql)

    def last_writer(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        return writer_of(entry.asDict() for entry in self.history(name, RECENT))

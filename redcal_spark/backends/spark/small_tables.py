"""Tables of a few rows on Spark: looked up, merged into, compacted, dropped.

Where Spark and this process see the same files, delta-rs does it: a MERGE of one row takes it some
milliseconds, and Spark a second. At S3 it must: Spark's commits there may undo those of others.
Catalog names, other object stores and tables that delta-rs does not know well enough are Spark's.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from redcal_spark.backends.comments import UNSAID, Comments
from redcal_spark.backends.local.folders import missing_folders, remove_empty
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.location import error_line
from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.object_stores import Options
from redcal_spark.backends.spark.catalog import commented, described
from redcal_spark.backends.spark.errors import is_sparks, message_of
from redcal_spark.backends.spark.merge import saying
from redcal_spark.backends.spark.scratch import remove_folder
from redcal_spark.backends.spark.session import on_databricks
from redcal_spark.backends.spark.tables import again, explained, unread, unwritten
from redcal_spark.backends.store import ENTRY, RECENT, Commit, rows_of, writer_of
from redcal_spark.config.addresses import canonical, in_hadoop, scheme_of
from redcal_spark.errors import RunError

log = logging.getLogger(__name__)

SINGLE_DRIVER = "S3SingleDriverLogStore"
MISSING = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND")
OUT_OF_REACH = (
    "Spark's Delta commits to S3 without a condition, so that two writers may undo each other; the "
    "tables of runs are committed by this process, and it cannot reach them: give it credentials "
    "(storage_options, or the environment), or use a log store that keeps writers apart "
    "(spark.delta.logStore.s3a.impl)"
)


class SparkSmallTables:
    """What a store does with its ledger and with tables that runs write beside the rows."""

    def __init__(self, spark: SparkSession, options: Options | None = None):
        self.spark = spark
        self._made: dict[str, list[Path]] = {}  # folders made for tables, innermost first
        self._local = DeltaRsStore(options)
        # folders, and whether Spark sees what we put there
        self._shared: dict[Path | str, bool] = {}
        self._columns: dict[str, set[str]] = {}  # of tables that we wrote

    def quick(self, name: str) -> DeltaRsStore | None:
        """Who can change this table without a Spark job, if there is someone."""
        place = Place(name)
        if place.is_address:  # two ways to commit would not know of each other
            ours = self.loses_commits(name) and self._seen_by_spark(place)
        else:
            ours = self._seen_by_spark(place) and self._local.check_target(name, "") is None
        return self._local if ours else None

    def to_change(self, name: str) -> DeltaRsStore | None:
        """As `quick`, for a change: refused where Spark's own commit might undo another's."""
        quick = self.quick(name)
        if quick is None and self.loses_commits(name):
            raise RunError(f"{name}: {OUT_OF_REACH}")
        return quick

    def _seen_by_spark(self, place: Place) -> bool:
        """Whether a path means the same to Spark as here; tried once for a folder.

        A server may be on another machine, or have another file system for such paths.
        """
        if place.is_address:
            return self._reached(place.name)
        if not place.is_here:
            return False
        folder = next(p for p in Path(place.absolute.name).parents if p.is_dir())
        if folder not in self._shared:
            self._shared[folder] = self._probed(folder)
        return self._shared[folder]

    def _probed(self, folder: Path) -> bool:
        try:
            with tempfile.TemporaryDirectory(prefix=".redcal_probe_", dir=folder) as probe:
                Path(probe, "file").touch()
                return bool(self.spark.read.text(probe).schema)
        except OSError:
            return False
        except Exception as err:
            if not is_sparks(err):
                raise
            return False

    def _reached(self, name: str) -> bool:
        """Whether this process and Spark see the same objects; tried once for a folder."""
        above = canonical(name).rpartition("/")[0]
        if above not in self._shared:
            probe = self._local.at(f"{above}/.redcal_probe_{secrets.token_hex(6)}/file")
            try:
                probe.write(b"")
                seen = self.spark.read.text(in_hadoop(probe.uri)).schema
                self._shared[above] = bool(seen)
            except OSError as err:
                log.info("%s: this process cannot reach it: %s", above, error_line(err))
                self._shared[above] = False
            except Exception as err:
                if not is_sparks(err):
                    raise
                log.info("%s: Spark cannot reach it: %s", above, message_of(err))
                self._shared[above] = False
            finally:
                with suppress(OSError):
                    probe.above.remove()
        return self._shared[above]

    def history(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """Versions and what their commits say of themselves, newest first."""
        if self._seen_by_spark(Place(name)):
            entries = self._local.history(name, limit)
            if entries is not None:
                return entries
        most = "" if limit is None else f" LIMIT {limit:d}"
        sql = f"DESCRIBE HISTORY {Place(name).absolute.sql}{most}"
        return [entry.asDict() for entry in self.spark.sql(sql).select(*ENTRY).collect()]

    def merge(
        self,
        name: str,
        rows: pa.Table,
        same: Mapping[str, str],
        commit: Commit,
        *,
        insert: bool = True,
        update: bool = True,
    ) -> int:
        if (quick := self.to_change(name)) is not None:
            return quick.merge(name, rows, same, commit, insert=insert, update=update)
        place = Place(name).absolute
        source = self.spark.createDataFrame(rows)
        if not self._known(place):
            if not insert:
                return 0
            self._made[name] = missing_folders(place.name) if place.is_path else []
            self._create(place, name, source.limit(0), Comments.of(rows.schema))
        columns = self._columns.get(place.sql) or set(self._frame(place).columns)
        equal = " and ".join(f"source.{quoted(s)} = target.{quoted(t)}" for t, s in same.items())
        evolving = not {*rows.column_names} <= columns  # a ledger of an earlier release
        # a MERGE of the DataFrame API does not tell how many rows it changed
        head = f"MERGE {'WITH SCHEMA EVOLUTION ' * evolving}INTO {place.sql} AS target USING "
        tail = (
            f" AS source ON {equal}"
            + " WHEN MATCHED THEN UPDATE SET *" * update
            + " WHEN NOT MATCHED THEN INSERT *" * insert
        )
        text = "{source}".join(part.replace("{", "{{").replace("}", "}}") for part in (head, tail))

        def merge() -> int:
            answer = self.spark.sql(text, source=source).collect()
            return int(answer[0].asDict().get("num_affected_rows", 0)) if answer else 0

        try:
            with explained(partial(unwritten, name)):
                changed = again(merge)
        except RunError:
            if not self._forgotten(place):
                raise
            return self.merge(name, rows, same, commit, insert=insert, update=update)
        self._columns[place.sql] = columns | {*rows.column_names}
        return changed

    def delete(self, name: str, key: str, values: Sequence[str], commit: Commit) -> int:
        if (quick := self.to_change(name)) is not None:
            return quick.delete(name, key, values, commit)
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
        if (quick := self.to_change(name)) is not None:
            return quick.compact(name, commit)
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

    def has(self, path: str) -> bool:
        """Whether this process sees anything at a path."""
        try:
            return self._local.at(path).exists()
        except OSError:
            return False

    def _known(self, place: Place) -> bool:
        """Whether a table is there; of one that we wrote nobody is asked again."""
        return place.sql in self._columns or self._exists(place)

    def _forgotten(self, place: Place) -> bool:
        """Whether a table that we wrote is gone: someone removed it."""
        if place.sql not in self._columns or self._exists(place):
            return False
        del self._columns[place.sql]
        return True

    def drop(self, name: str) -> None:
        place = Place(name).absolute
        self._columns.pop(place.sql, None)
        if self._seen_by_spark(place):
            self._local.drop(name)
            return
        if not place.is_path:
            self.spark.sql(f"DROP TABLE IF EXISTS {place.sql}")
            return
        if place.is_address:
            log.warning("%s stays: this process cannot reach it to remove it", name)
            return
        remove_folder(place.name)
        remove_empty(self._made.pop(name, []))

    def _create(self, place: Place, name: str, empty: DataFrame, said: Comments) -> None:
        """An empty table, unless someone else has made it meanwhile."""
        if place.is_path:
            said = UNSAID
        writer = described(commented(empty, said).write.format("delta").mode("ignore"), said)
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
        if place.is_here or (place.is_address and self._seen_by_spark(place)):
            # a first write that died leaves a log without a commit
            return self._local.exists(place.name)
        try:
            self.spark.sql(f"DESCRIBE DETAIL {place.sql}").collect()
        except PySparkException as err:
            if place.is_address and not any(word in str(err) for word in MISSING):
                raise unread(place.name, err) from err  # no answer is none
            return False
        return True

    def read(self, name: str, equal: Mapping[str, str] | None = None) -> pa.Table | None:
        if (quick := self.quick(name)) is not None:
            return quick.read(name, equal)
        place = Place(name).absolute
        if not self._known(place):
            return None
        try:
            return self._chosen(name, place, equal or {}).toArrow()
        except PySparkException:
            if not self._forgotten(place):
                raise
            return None

    def _chosen(self, name: str, place: Place, equal: Mapping[str, str]) -> DataFrame:
        frame = self._frame(place)
        for name_, value in equal.items():
            if name_ not in frame.columns:
                has = ", ".join(frame.columns)
                raise RunError(f"{name}: is another kind of table: no column {name_!r}, but {has}")
            frame = frame.where(col(quoted(name_)) == value)
        return frame

    def _frame(self, place: Place) -> DataFrame:
        """The newest version."""
        if place.is_path:
            return self.spark.read.format("delta").load(place.name)
        return self.spark.read.table(place.sql)

    def last_writer(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        return writer_of(self.history(name, RECENT))

    def loses_commits(self, name: str) -> bool:
        """Whether Delta's log store for this address commits without a condition.

        So does the only one for S3 that needs no other service, in all releases that are known.
        """
        if scheme_of(name) != "s3" or on_databricks():  # its commits go through a service
            return False
        keys = [f"spark.delta.logStore.{part}" for part in ("s3a.impl", "s3.impl", "class")]
        chosen = [self.spark.conf.get(key, None) for key in keys]
        return all(each is None or SINGLE_DRIVER in each for each in chosen)

    def written(
        self, name: str, commit: Commit, among: int | None = None
    ) -> tuple[int, int] | None:
        place = Place(name).absolute
        if not self._known(place):
            return None
        try:
            entries = self.history(name, among)
        except PySparkException:
            if not self._forgotten(place):
                raise
            return None
        ours = [row for row in entries if commit.wrote(row["userMetadata"])]
        if not ours:
            return None
        # the rows are in the first of them, a change of how they are laid out may follow
        return int(ours[0]["version"]), max(rows_of(row["operationMetrics"]) for row in ours)

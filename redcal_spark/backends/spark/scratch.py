"""Scratch of a Spark run: where blocks are written, and read back; removed at the end."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from redcal_spark.backends.counters import Counters
from redcal_spark.backends.location import Location, error_line
from redcal_spark.backends.names import quoted
from redcal_spark.backends.object_stores import Options
from redcal_spark.backends.processes import start_of
from redcal_spark.backends.spark.arrow_batches import small_batches
from redcal_spark.backends.spark.cells import DDL, KINDS, SeenTask, SinkOf
from redcal_spark.backends.spark.errors import over_scratch, workers_in_words
from redcal_spark.backends.spark.frames import map_in_arrow
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.statistics import Kind, MergeTask
from redcal_spark.backends.spark.watch import Tell, Watch
from redcal_spark.backends.spark.written import Manifest, Written, WrittenFiles, WrittenRows
from redcal_spark.config.addresses import ADDRESS, in_hadoop, scheme_of
from redcal_spark.errors import UsageError
from redcal_spark.settings import setting

log = logging.getLogger(__name__)

PREFIX = "redcal_scratch"
LARGE = 2**20  # bytes that a task says of its rows, from which on others add them up
TOGETHER = 256 * 2**20  # bytes that the driver gets of these
LEASE = timedelta(hours=48)  # older scratch of another host is nobody's


@dataclass(frozen=True)
class Statistics:
    """What the tasks of a job say of their rows, and about how many bytes each."""

    kind: Kind
    bytes: int = 0


class Scratch:
    """A place that every worker sees: a path, or a schema of the catalog. Emptied at the end."""

    def __init__(
        self,
        spark: SparkSession,
        place: str | None,
        counters: Counters | None = None,
        options: Options | None = None,
    ):
        self.spark = spark
        self._options = options or {}  # of an object store, to remove what is there
        self.counters = counters or Counters()
        self.place = _local_place(spark) if place is None else absolute(place)
        self.name = run_name()
        self._made: list[str] = []
        self._elsewhere: str | None = None  # a folder for reports alone
        self._batches = ExitStack()
        self._batches.enter_context(small_batches(spark))

    @cached_property
    def direct(self) -> bool:
        """Whether tasks may write files of their own: a folder that driver and workers see."""
        if self.place is None or not is_path(self.place) or ADDRESS.match(self.place):
            return False
        return _is_shared(self.spark, self.place, self.name)

    @cached_property
    def reports(self) -> str | None:
        """A folder in which tasks can tell the driver how far they are, if there is one."""
        if self.direct:
            return f"{self.place}/{self.name}"
        place = _local_place(self.spark)
        if place is None or not _is_shared(self.spark, place, self.name):
            return None
        self._elsewhere = f"{place}/{self.name}"
        return self._elsewhere

    def watched(self, tell: Tell, total: int | None = None) -> Watch:
        """How far a job is. total: what all of it is."""
        return Watch(self.spark, self.reports, tell, total)

    def passing(self, name: str, size: int) -> Watch:
        """How far a pass over so many bytes of cells is."""
        return self.watched(lambda done: self.counters.heard(name, done, size), size)

    def write(self, job: Callable[[SinkOf], DataFrame], statistics: Statistics) -> Written:
        """Write what the tasks of a job put into the sink that it is given.

        What they say of it comes from the same committed write: a task that was tried twice counts
        once.
        """
        place = self._next()
        if self.direct:
            os.makedirs(place)
            with over_scratch(place, self.name, from_input=len(self._made) == 1):
                rows = list(self._collected(merged(job(SinkOf(place)), statistics)))
            return WrittenFiles(self.spark, place, Manifest(rows))
        frame = self._written(job(SinkOf()), place)
        small = frame.where(~col("kind").isin(list(KINDS)))
        manifest = Manifest(self.collected(merged(small, statistics)))
        return WrittenRows(frame, self.collected, manifest)

    def _written(self, frame: DataFrame, place: str) -> DataFrame:
        """Write blocks and read them back with a known schema; nothing is computed twice."""
        self.counters.jobs += 1
        writer = (
            frame.write.option("compression", "none")
            # A cell of 4 MB overruns the heap when Parquet looks at sizes every 100 rows only.
            .option("parquet.page.size.row.check.min", "1")
            .option("parquet.page.size.row.check.max", "1")
            .option("parquet.block.size.row.check.min", "1")
            .option("parquet.block.size.row.check.max", "1")
            # Few groups of rows in each: one that is fetched is found by Parquet's own statistics.
            .option("parquet.block.size", str(2**20))
            .option("parquet.enable.dictionary", "false")
        )
        with over_scratch(place, self.name, from_input=len(self._made) == 1):
            if is_path(place):
                writer.mode("overwrite").parquet(place)
                return self.spark.read.schema(DDL).parquet(place)
            writer.mode("overwrite").format("parquet").saveAsTable(_in_sql(place))
            return self.spark.read.table(_in_sql(place))

    def collected(self, frame: DataFrame) -> Iterator[tuple[str, Any]]:
        """Rows of (kind, data) at the driver."""
        with over_scratch(str(self.place), self.name):
            yield from self._collected(frame)

    def _collected(self, frame: DataFrame) -> Iterator[tuple[str, Any]]:
        self.counters.jobs += 1
        table: pa.Table = frame.select("kind", "data").toArrow()
        waiting = table.to_batches()[::-1]
        del table  # a batch is given back when its rows were used: they are copied one by one
        while waiting:
            batch = waiting.pop()
            for kind, data in zip(batch.column("kind"), batch.column("data"), strict=True):
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
        self._batches.close()
        if self._elsewhere is not None:
            remove_folder(self._elsewhere)
        made, self._made = self._made, []
        if self.place is None or not made:
            if vars(self).get("direct"):  # reports were there
                remove_folder(f"{self.place}/{self.name}")
            return
        if is_path(self.place):
            self._remove_path(f"{self.place}/{self.name}", made)
        else:
            for table in made:
                self.spark.sql(f"DROP TABLE IF EXISTS {_in_sql(table)}")

    def _remove_path(self, folder: str, parts: Sequence[str]) -> None:
        if remove_folder(folder):
            return
        if scheme_of(folder) is not None:
            try:
                Location(folder, self._options).remove()
                return
            except OSError as err:
                why = error_line(err)
                log.warning("%s: only emptied: this process cannot reach it: %s", folder, why)
        # Not visible from here: empty it through Spark.
        nothing = self.spark.createDataFrame([], DDL)
        for part in parts:
            nothing.write.mode("overwrite").parquet(part)

    def remove_leftovers(self) -> list[str]:
        """Remove what runs left that died."""
        assert self.place is not None
        if scheme_of(self.place) is not None:
            return self._remove_objects(Location(self.place, self._options))
        if is_path(self.place):
            root = Path(self.place.removeprefix("file://").removeprefix("file:"))
            dead = [p for p in sorted(root.glob(f"{PREFIX}_*")) if is_leftover(p.name)]
            for folder in dead:
                remove_folder(str(folder))
            return [folder.name for folder in dead]
        try:
            listed = f"SHOW TABLES IN {_in_sql(self.place)} LIKE '{PREFIX}*'"
            tables = self.spark.sql(listed).collect()
        except AnalysisException as err:
            raise UsageError(f"{setting('scratch')}: no schema {self.place}") from err
        names = [row["tableName"] for row in tables]
        dead_tables = [n for n in names if is_leftover(n.rsplit("_", 1)[0])]
        for name in dead_tables:
            self.spark.sql(f"DROP TABLE IF EXISTS {_in_sql(f'{self.place}.{name}')}")
        return dead_tables

    def _remove_objects(self, root: Location) -> list[str]:
        try:
            dead = [name for name in root.folders() if is_leftover(name)]
            for name in dead:
                root.below(name).remove()
        except OSError as err:
            log.warning("%s: runs that died may have left files: %s", root.name, error_line(err))
            return []
        return dead


def _in_sql(name: str) -> str:
    """A table's name for SQL, each part in backticks."""
    return ".".join(map(quoted, name.split(".")))


def _local_place(spark: SparkSession) -> str | None:
    """A temporary folder is good enough where the workers are one machine."""
    try:
        local = str(spark.conf.get("spark.master", "")).startswith("local")
    except PySparkException:
        return None
    return str(Path(tempfile.gettempdir(), "redcal-scratch")) if local else None


# By session and place. A session of Connect may be local to a server on another machine.
_shared: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()


def _is_shared(spark: SparkSession, place: str, name: str) -> bool:
    known = _shared.setdefault(spark, {})
    if place not in known:
        known[place] = shared(spark, place, name)
        if not known[place]:
            log.info("%s: Spark's workers do not see this folder as the driver does", place)
    return known[place]


def shared(spark: SparkSession, place: str, name: str) -> bool:
    """Whether a worker sees a folder of the driver's, and the driver what a worker writes there."""
    folder = Path(place, name, "seen")
    try:
        folder.mkdir(parents=True)
        (folder / "driver").write_text(name)
        ship_package(spark)
        ask = SeenTask(str(folder), name)
        with workers_in_words():
            answer = map_in_arrow(spark.range(0, 1, 1, 1), ask, DDL).toArrow()["data"][0].as_py()
        return bool(answer) and (folder / "worker").read_text() == name
    except OSError:
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()


def merged(frame: DataFrame, statistics: Statistics) -> DataFrame:
    """What tasks say, added up on workers where it is much: the driver's memory is not theirs."""
    if statistics.bytes < LARGE:
        return frame
    parts = max(1, min(8, TOGETHER // statistics.bytes))
    return map_in_arrow(frame.repartition(parts, "portion"), MergeTask(statistics.kind), DDL)


def run_name() -> str:
    """A name that tells when, where and by whom scratch was made."""
    now = datetime.now(UTC)
    return f"{PREFIX}_{now:%Y%m%d%H%M%S}_{os.getpid()}_{secrets.token_hex(3)}_{_host()}"


def _host() -> str:
    """This machine, in signs that a table's name may have; catalogs turn capitals to small."""
    return re.sub(r"\W", "_", socket.gethostname())[:32].lower()


def is_leftover(name: str) -> bool:
    """Whether the run that made this scratch is dead: its process is gone, or it is too old."""
    match = re.fullmatch(rf"{PREFIX}_(\d{{14}})_(\d+)_[0-9a-f]{{6}}_(\w*)(/.*)?", name)
    if match is None:
        return False
    made = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    if datetime.now(UTC) - made > LEASE:
        return True
    return match[3] == _host() and int(match[2]) != os.getpid() and start_of(int(match[2])) is None


def is_path(place: str) -> bool:
    """A path or URI, not the name of a catalog schema."""
    return "/" in place or place.startswith(".")


def absolute(place: str) -> str:
    """Relative to the working folder: Spark's own is the one that its server was started in."""
    local = is_path(place) and not ADDRESS.match(place)
    return os.path.abspath(place) if local else in_hadoop(place).rstrip("/")


def remove_folder(path: str) -> bool:
    """Remove a folder that this machine sees. False if it is elsewhere."""
    local = Path(path.removeprefix("file://").removeprefix("file:"))
    if "://" in path and not path.startswith("file:"):
        return False
    if not local.exists():
        return False
    for wait in (0.0, 0.1, 0.5):  # a task that lost a race may still be writing
        time.sleep(wait)
        shutil.rmtree(local, ignore_errors=True)
        if not local.exists():
            break
    return True

"""The Spark engine: blocks in scratch storage, one small statistics row a task.

Only DataFrames, `mapInArrow`, writes and reads: classic Spark, Spark Connect and serverless alike.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from redcal_spark.blocks import Block
from redcal_spark.counters import Counters, Pass
from redcal_spark.engines.base import Engine, Region
from redcal_spark.engines.local import LocalEngine
from redcal_spark.engines.scratch import PREFIX, is_leftover, is_path, remove_folder, run_name
from redcal_spark.errors import UsageError
from redcal_spark.events import Disagreement
from redcal_spark.fixed_point import Ints
from redcal_spark.gather import Gathered, Scanner
from redcal_spark.history import Point, added, history, points, segments
from redcal_spark.kernel import Rules, Scan, scan
from redcal_spark.metrics import Totals
from redcal_spark.packing import Array, unpack, unpack_changes, unpack_gathered
from redcal_spark.parallel import ordered
from redcal_spark.patches import Patch
from redcal_spark.statistics import GapSums, Residuals, Sums
from redcal_spark.tasks import (
    DDL,
    AskTask,
    HistoryTask,
    KeepTask,
    Question,
    ScanTask,
    State,
    add_up,
    blocks_of,
)

log = logging.getLogger(__name__)

DRIVER_BUDGET = 256 * 2**20
Keep = Literal["all", "active", "frozen"] | Disagreement


class Scratch:
    """A place that every worker sees: a path, or a schema of the catalog. Emptied at the end."""

    def __init__(self, spark: SparkSession, place: str | None, counters: Counters | None = None):
        self.spark = spark
        self.counters = counters or Counters()
        self.place = place if place is not None else _local_place(spark)
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
        if is_path(place):
            writer.mode("overwrite").parquet(place)
            return self.spark.read.schema(DDL).parquet(place)
        writer.mode("overwrite").format("parquet").saveAsTable(quoted(place))
        return self.spark.read.table(quoted(place))

    def collected(self, frame: DataFrame) -> Iterator[tuple[str, Any]]:
        """Rows of (kind, data) at the driver."""
        self.counters.jobs += 1
        table: pa.Table = frame.select("kind", "data").toArrow()
        for kind, data in zip(table.column("kind"), table.column("data"), strict=True):
            yield kind.as_py(), data.as_buffer()

    def _next(self) -> str:
        if self.place is None:
            raise UsageError(
                "engine.scratch: must name a path or a catalog schema that every worker sees, "
                "since this session is not a local one"
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
            raise UsageError(f"engine.scratch: no schema {self.place}") from err
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


_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def ship_package(spark: SparkSession) -> None:
    """Send this package to the workers, once a session: they need not have it installed."""
    if spark not in _shipped:
        spark.addArtifacts(archive(), pyfile=True)
        _shipped.add(spark)


@cache
def archive() -> str:
    """This package as a zip file. It stays while the process lives: executors fetch it late."""
    # as a resource: with `--py-files` the driver itself has the package as a zip file only
    files = dict(_sources(resources.files("redcal_spark"), "redcal_spark"))
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    folder = tempfile.mkdtemp(prefix="redcal-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"redcal_spark_{digest}.zip")
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():  # dated alike, so that the same package is the same file
            packed.writestr(zipfile.ZipInfo(name), text)
    return str(path)


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.is_dir():
            yield from _sources(part, f"{path}/{part.name}")
        elif part.name.endswith(".py"):
            yield f"{path}/{part.name}", part.read_bytes()


class Stored:
    """Blocks in scratch, with patches that were found since and are replayed on every pass."""

    def __init__(self, scratch: Scratch, frame: DataFrame, rules: Rules, round: int | None = None):
        self.scratch = scratch
        self.rules = rules
        self.round = round
        self.pending: list[Patch] = []
        self._frame = frame
        self._blocks = frame.where(col("kind") == "fit").select("data")
        self._quickest: float | None = None  # seconds of a pass with nothing to replay
        self._wasted = 0.0  # seconds spent on replaying since the blocks were written
        self._rewrite_cost: float | None = None

    @property
    def state(self) -> State:
        return State(self.rules, tuple(self.pending), self.round)

    def ask(self, question: Question, model: int = 0) -> dict[str, Array]:
        """One pass: statistics of the rows as patched so far."""
        frame = self._blocks.mapInArrow(AskTask(self.state, question, model), DDL)
        with self.scratch.counters.timed(question) as made:
            total = self._added_up(frame, made)
        self._spent(made.seconds)
        return total

    def _added_up(self, frame: DataFrame, made: Pass) -> dict[str, Array]:
        """Statistics of all tasks, and how much they went over."""
        total: dict[str, Array] = {}
        made.rows = made.bytes = 0
        for _, data in self.scratch.collected(frame):
            told, found = unpack(data)
            made.rows, made.bytes = made.rows + told["rows"], made.bytes + told["bytes"]
            add_up(total, found)
        return total

    def _spent(self, seconds: float) -> None:
        if self._quickest is None or seconds < self._quickest:
            self._quickest = seconds
        self._wasted += seconds - self._quickest

    @property
    def rewrite_pays(self) -> bool:
        """Rent or buy: once replaying has cost as much as a rewrite would, rewrite.

        That is never more than twice as dear as knowing the future.
        """
        cost = self._rewrite_cost or 3.0 * (self._quickest or 0.0)
        return bool(self.pending) and self._wasted > cost

    def kept(self, keep: Keep) -> DataFrame:
        """Some rows as patched so far, as blocks and statistics; not computed yet."""
        return self._blocks.mapInArrow(KeepTask(self.state, keep), DDL)

    def rewrite(self, keep: Keep) -> dict[str, Array]:
        """Write the rows as patched so far; the statistics come with the same committed write."""
        with self.scratch.counters.timed("rewrite") as made:
            self._frame = self.scratch.write(self.kept(keep))
            if keep == "all" and self.pending:
                self.round = self.pending[-1].round  # inside a round its event stays frozen
            self._blocks = self._frame.where(col("kind") == "fit").select("data")
            self.pending = []
            found = self.statistics(self._frame, made)
        self.scratch.counters.scratch_bytes += made.bytes or 0
        self._rewrite_cost = made.seconds
        self._wasted, self._quickest = 0.0, None
        return found

    def statistics(self, written: DataFrame, made: Pass) -> dict[str, Array]:
        """Those that were written with blocks."""
        return self._added_up(written.where(col("kind") == "statistics"), made)


def nameless(frame: DataFrame) -> DataFrame:
    """The columns by number: `mapInArrow` takes a dot in a name for a field of a struct."""
    return frame.toDF(*[f"c{number}" for number in range(len(frame.columns))])


class SparkScan:
    """The one scan of a DataFrame, and the engine that goes on from it."""

    def __init__(
        self,
        frame: DataFrame,
        scanner: Scanner,
        vectors: tuple[str, ...],
        scratch: Scratch,
        driver_budget: int = DRIVER_BUDGET,
        threads: int | None = None,
    ):
        ship_package(scratch.spark)
        self.scanner = scanner
        self.scratch = scratch
        self.driver_budget = driver_budget
        self.threads = threads
        task = ScanTask(scanner, tuple(frame.columns), vectors)
        self.written = scratch.write(nameless(frame).mapInArrow(task, DDL))
        self.gathered = Gathered.nothing(scanner.rules, scanner.layout.n_classes)
        self.bytes = 0
        for _, data in scratch.collected(self.written.where(col("kind") == "statistics")):
            found, size = unpack_gathered(data)
            self.gathered.merge(found)
            self.bytes += size
        scratch.counters.scratch_bytes += self.bytes

    @property
    def row_bytes(self) -> int:
        """Of a packed row."""
        layout = self.scanner.layout
        label_bytes = 4 * layout.n_classes if layout.label == "vector" else 4
        return 8 * layout.n_classes + label_bytes

    @property
    def active_rows(self) -> int:
        """Of both splits."""
        return self.bytes // self.row_bytes

    @property
    def fits_the_driver(self) -> bool:
        """Whether the active rows of both splits do."""
        return self.bytes <= self.driver_budget

    def engine(self, rules: Rules) -> Engine:
        """Local if the active rows of both splits fit the driver's budget, else distributed."""
        if self.fits_the_driver:
            log.info("handing over: %s bytes of active rows go to the driver", f"{self.bytes:,}")
            found: dict[str, list[Block]] = {"fit": [], "judge": []}
            with self.scratch.counters.timed("collect") as made:
                made.rows, made.bytes = self.active_rows, self.bytes
                blocks = self.written.where(col("kind") != "statistics")
                for kind, data in self.scratch.collected(blocks):
                    found[kind] += blocks_of([data])
            for kind, part in (("fit", self.gathered.fit), ("judge", self.gathered.judge)):
                part.scans = _scans(found[kind], self.scanner.rules, self.threads)
            fit = self.gathered.fit
            return LocalEngine(fit.scans, fit.rows, rules, self.threads)
        stored = Stored(self.scratch, self.written, rules)
        counts = list(self.gathered.fit.totals.events)
        rows, budget = self.gathered.fit.rows, self.driver_budget
        return SparkEngine(stored, rows, counts, self.row_bytes, budget, self.threads)

    def histories(self, rules: Rules, log: Sequence[Patch]) -> dict[str, list[Point]]:
        """The one pass after the fit, over the active rows of both splits where they are."""
        parts = self.gathered.parts
        if self.fits_the_driver:
            spread = partial(ordered, threads=self.threads)
            return {
                name: history(part.totals, part.scans, rules, log, spread)
                for name, part in parts.items()
            }
        cut = segments(log, self.gathered.rows)
        task = HistoryTask(rules, tuple(tuple(segment) for segment in cut))
        blocks = self.written.where(col("kind") != "statistics")
        changes: dict[str, list[list[Totals]]] = {name: [] for name in parts}
        for kind, data in self.scratch.collected(blocks.mapInArrow(task, DDL)):
            changes[kind].append(unpack_changes(data))
        return {
            name: points(part.totals, cut, added(changes[name], len(cut)))
            for name, part in parts.items()
        }


def _scans(blocks: Sequence[Block], rules: Rules, threads: int | None) -> list[Scan]:
    return list(ordered(partial(scan, rules=rules, everywhere=True), blocks, threads))


class SparkEngine:
    """Every step a job over the blocks in scratch, until what is left fits the driver."""

    def __init__(
        self,
        stored: Stored,
        rows: int,
        counts: list[Ints],
        row_bytes: int,
        driver_budget: int,
        threads: int | None = None,
    ):
        self.rows = rows
        self.totals: Totals | None = None
        self._stored = stored
        self._counts: list[Ints] | None = counts
        self._row_bytes = row_bytes
        self._budget = driver_budget
        self._threads = threads
        self._local: LocalEngine | None = None
        self._event: LocalEngine | None = None  # of the rows of one event, while it is frozen

    def disagreements(self) -> Sequence[Ints]:
        if self._local is not None:
            return self._local.disagreements()
        if self._counts is None:
            self._counts = self._count()
        return self._counts

    def _count(self) -> list[Ints]:
        if self._stored.rewrite_pays:
            return _event_counts(self._stored.rewrite("active"), self._stored.rules)
        counts = _event_counts(self._stored.ask("events"), self._stored.rules)
        # A row may be in an event of several losses, so this is at least what is active.
        if self._fits(sum(int(c.sum()) for c in counts)):
            blocks = self._collect("active")
            scans = _scans(blocks, self._stored.rules, self._threads)
            self._local = LocalEngine(scans, self.rows, self._stored.rules, self._threads)
        return counts

    def freeze(self, event: Disagreement | None) -> Region:
        if self._local is not None:
            return self._local.freeze(event)
        if event is None:
            return _Everywhere(self)
        assert self._counts is not None
        rows = int(self._counts[event.loss][event.a1, event.a2])
        return self._region(event, rows)

    def _region(self, keep: Keep, rows: int, round: int | None = None) -> Region:
        if self._fits(rows):
            return _HandedOver(self, self._collect(keep))
        scratch = self._stored.scratch
        with scratch.counters.timed("event") as made:
            made.rows, made.bytes = rows, rows * self._row_bytes
            frame = scratch.write(self._stored.kept(keep))
        scratch.counters.scratch_bytes += made.bytes
        return _Frozen(self, Stored(scratch, frame, self._stored.rules, round), frame)

    def _fits(self, rows: int) -> bool:
        return rows * self._row_bytes <= self._budget

    def _collect(self, keep: Keep) -> list[Block]:
        scratch = self._stored.scratch
        with scratch.counters.timed("collect") as made:
            found = scratch.collected(self._stored.kept(keep))
            blocks = blocks_of([data for kind, data in found if kind == "fit"])
            made.rows = sum(block.rows for block in blocks)
            made.bytes = sum(block.nbytes for block in blocks)
        return blocks

    def replay(self, log: Sequence[Patch]) -> Region | None:
        if self._local is not None:
            return self._local.replay(log)
        self._stored.pending += log
        self._counts = None
        if not log or log[-1].kind == "score" or log[-1].round is None:
            return None
        first = next(p for p in reversed(log) if p.kind == "reconcile")
        return self._region("frozen", first.rows, log[-1].round)

    def gaps(self) -> GapSums:
        if self._local is not None:
            return self._local.gaps()
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        found = self._stored.ask("gaps")
        scores = found["scores_1"], found["scores_2"]
        return GapSums(found["rows"], found["labels"], scores)

    def patch(self, patch: Patch) -> None:
        if self._local is not None:
            self._local.patch(patch)
        else:
            self._stored.pending.append(patch)

    def round_closed(self, patches: Sequence[Patch]) -> None:
        """The rows of a region join the others: its patches are replayed on them from now on."""
        self._stored.pending += patches
        self._counts = None
        if self._event is not None:
            self._event.close()
            self._event = None

    def close(self) -> None:
        for local in (self._event, self._local):
            if local is not None:
                local.close()


class _Everywhere:
    """All rows, where they are."""

    def __init__(self, engine: SparkEngine):
        self._engine = engine
        self._stored = engine._stored

    def sums(self) -> Sums:
        return _sums(self._stored.ask("sums"))

    def residuals(self, model: int) -> Residuals:
        if self._stored.rewrite_pays:
            self._stored.rewrite("all")
        return _residuals(self._stored.ask("residuals", model))

    def patch(self, patch: Patch) -> None:
        self._stored.pending.append(patch)

    def close(self) -> None:
        self._engine.round_closed([])


class _Frozen(_Everywhere):
    """The rows of an event, as blocks of their own."""

    def __init__(self, engine: SparkEngine, stored: Stored, written: DataFrame):
        super().__init__(engine)
        self._stored = stored
        self._patches: list[Patch] = []
        self._written = written

    def sums(self) -> Sums:
        return _sums(self._stored.statistics(self._written, Pass("event")))

    def patch(self, patch: Patch) -> None:
        super().patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        self._engine.round_closed(self._patches)


class _HandedOver:
    """The rows of an event at the driver; what is found there is replayed on the stored rows."""

    def __init__(self, engine: SparkEngine, blocks: list[Block]):
        self._engine = engine
        self._patches: list[Patch] = []
        rules = engine._stored.rules
        local = LocalEngine(_scans(blocks, rules, 1), engine.rows, rules, engine._threads)
        self._region = local.freeze(None)
        engine._event = local

    def sums(self) -> Sums:
        return self._region.sums()

    def residuals(self, model: int) -> Residuals:
        return self._region.residuals(model)

    def patch(self, patch: Patch) -> None:
        self._region.patch(patch)
        self._patches.append(patch)

    def close(self) -> None:
        self._engine.round_closed(self._patches)


def _event_counts(found: dict[str, Array], rules: Rules) -> list[Ints]:
    none = [np.zeros((x.n_actions, x.n_actions), np.int64) for x in rules.losses.losses]
    return [found.get(f"events.{i}", zero) for i, zero in enumerate(none)]


def _sums(found: dict[str, Array]) -> Sums:
    scores = found["sum_scores_1"], found["sum_scores_2"]
    return Sums(int(found["sum_rows"][0]), found["sum_labels"], scores)


def _residuals(found: dict[str, Array]) -> Residuals:
    return Residuals(found["counts"], found["labels"], found["scores"])

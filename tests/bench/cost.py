"""What a pass takes of the processors, and from how many cores on Spark beats one machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.backends.spark.cells import FROM_ROWS, STATISTICS, row
from redcal_spark.backends.spark.frames import layout_of
from redcal_spark.backends.spark.scan import SparkScan
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.session import local_session
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import CellSource, add_up
from redcal_spark.config.schema import Read
from redcal_spark.core.additive import Array
from redcal_spark.core.kernel import Rules
from redcal_spark.core.packing import pack, unpack_block
from redcal_spark.core.rows import Rows
from redcal_spark.core.sums import residuals
from tests import backends
from tests.bench.memory import descendants
from tests.bench.speed import FIT, LOSSES, WORST, Fits, Sizes, embedded, table_of
from tests.bench.timing import Ratio, Result, seconds

ROOT = Path(__file__).parents[2]
EXECUTORS = 4  # of the cluster, a core each, on the two cores of this machine
WHERE = ONE, BOTH, MANY = "1 core", "2 cores", f"{EXECUTORS} executors"
READS: tuple[Read, ...] = ("direct", "spark")


# --- a pass ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PassBefore:
    """A pass as it was first built: both models are looked at, and every row is copied."""

    rules: Rules
    source: CellSource = FROM_ROWS

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: dict[str, Array] = {}
        for _, packed in self.source(batches):
            add_up(total, residuals(Rows(unpack_block(packed), self.rules), 1).to_arrays())
        yield row(STATISTICS, 0, pack({}, total))


def passes(sizes: Sizes) -> Result:
    """The CPU seconds of all processes for one pass; before, cells came through the JVM."""
    with table_of(sizes, sizes.some) as table, tempfile.TemporaryDirectory() as made:
        spark = local_session(master="local[2]")
        problem = Reconciler(
            losses=LOSSES, model_1="scores_a", model_2="scores_b", label="label", **WORST
        ).problem
        frame = spark.read.parquet(table)
        layout = layout_of(frame, problem.columns, problem.n_classes)
        works: dict[str, Callable[[], Any]] = {}
        try:
            for name, direct in (("now", True), ("Spark's", False)):
                scratch = Scratch(spark, f"{made}/{name}")
                scratch.__dict__["direct"] = direct
                scan = SparkScan(frame, problem, layout, scratch, 0)
                stored = Stored(scratch, scan.written, problem.fitting_rules(layout))
                works[name] = partial(stored.ask, "residuals", 1)
            rules = stored.rules
            works["before"] = lambda: stored.written.passed(
                lambda cells: PassBefore(rules, cells)
            ).toArrow()
            spent = spent_of(works, sizes.repeats)
        finally:
            spark.stop()
    what = f"a pass over {scan.bytes / 1e6:.0f} MB, all active, CPU seconds, against before"
    return Result(
        [
            Ratio(what, spent["now"], spent["before"], "cost", 0.4),
            Ratio("the same on Spark's scratch", spent["Spark's"], spent["before"], "cost", None),
        ]
    )


def cpu_seconds() -> float:
    """Of this process, its JVM and its workers so far."""
    ticks = 0
    for process in [Path("/proc/self"), *descendants(os.getpid())]:
        with contextlib.suppress(OSError, IndexError):
            told = (process / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            ticks += sum(int(told[i]) for i in (11, 12))
    return ticks / os.sysconf("SC_CLK_TCK")


def spent_of(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least CPU seconds of each, in turns."""
    least = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            before = cpu_seconds()
            work()
            least[name] = min(least[name], cpu_seconds() - before)
    return least


# --- COST -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Seconds of a fit on one and on two cores, and of the embedded engine on two.

    A fit takes fixed + shared / cores.
    """

    one: float
    two: float
    embedded: float

    @property
    def shared(self) -> float:
        return max(0.0, 2 * (self.one - self.two))

    @property
    def fixed(self) -> float:
        return max(0.0, self.one - self.shared)

    @property
    def cores(self) -> float:
        """From so many on, Spark is quicker."""
        left = self.embedded - self.fixed
        return self.shared / left if left > 0 else float("inf")

    def __str__(self) -> str:
        if self.cores == float("inf"):
            end = f"{seconds(self.fixed)} are more than {seconds(self.embedded)}: never"
        else:
            end = (
                f"{seconds(self.shared)} / ({seconds(self.embedded)} - {seconds(self.fixed)}) = "
                f"{self.cores:.1f} cores"
            )
        return (
            f"1 core {seconds(self.one)}, 2 cores {seconds(self.two)}, embedded on 2 cores "
            f"{seconds(self.embedded)}: {seconds(self.fixed)} + {seconds(self.shared)} / cores, "
            f"so {end}"
        )


def cost(sizes: Sizes) -> Result:
    """COST: the number of cores from which on Spark beats the embedded engine on its two."""
    ratios: list[Ratio] = []
    notes: list[str] = []
    for rows, repeats in ((sizes.some, sizes.repeats), (sizes.many, 1)):
        with table_of(sizes, rows) as table, table_of(sizes, sizes.few) as few:
            found = {where: _apart(table, few, where, repeats) for where in WHERE}
        assert len({str(one["log"]) for one in found.values()}) == 1, "the logs differ"
        base = found[BOTH]["embedded"]
        for read, words in (("direct", "direct"), ("spark", "the DataFrame scan")):
            told = {where: one[read] for where, one in found.items()}
            notes.append(f"COST, {rows:,} rows, {words}: {Cost(told[ONE], told[BOTH], base)}")
            ratios += [
                Ratio(f"fit {rows:,} rows, {words}, {where}", spent, base, "cost")
                for where, spent in told.items()
            ]
    notes.append(
        "on 1 core Spark's driver, its JVM and its worker share that core, and nothing else runs "
        f"on the other one; the {EXECUTORS} executors are processes of a standalone cluster, a "
        "core each, and share both: they show what being apart costs, not what more cores give"
    )
    return Result(ratios, notes)


def _apart(table: str, few: str, where: str, repeats: int) -> dict[str, Any]:
    """In a process of its own: a session has the cores that it was started with."""
    command = [sys.executable, "-m", "tests.bench.cost", table, few, where, str(repeats)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def _session(where: str, folder: Path) -> Iterator[Any]:
    if where != MANY:
        cores = WHERE.index(where) + 1
        os.sched_setaffinity(0, range(cores))  # else a JVM takes what its worker leaves
        with backends.stopped(local_session(master=f"local[{cores}]")) as spark:
            yield spark
        return
    hosts = backends.HOSTS[:1]
    quick = {**backends.ON_CLUSTER, "spark.speculation": "false", "spark.executor.cores": "1"}
    del quick["spark.executor.extraJavaOptions"]
    with backends.cluster(folder, hosts, cores=EXECUTORS) as made:
        found = backends.cluster_session(made.url, sys.executable, quick)
        with backends.stopped(found) as spark:
            yield spark


def main(table: str, few: str, where: str, repeats: str) -> None:
    with tempfile.TemporaryDirectory() as made, _session(where, Path(made)) as spark:
        works = {read: SparkBackend(spark, f"{made}/scratch", read=read) for read in READS}
        fitted = Fits(table, Path(made), FIT)
        for work in works.values():
            fitted.run("warm", work, few)
        for _ in range(int(repeats)):
            if where == BOTH:
                fitted.run("embedded", embedded())
            for read, work in works.items():
                fitted.run(read, work)
    print(json.dumps(fitted.seconds | {"log": fitted.logs["direct"]}))


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {"passes": passes, "cost": cost}

if __name__ == "__main__":
    main(*sys.argv[1:])

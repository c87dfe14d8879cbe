"""One measurement of `make bench-scale`, in this process: `scale_run CASE FOLDER` prints JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.backend import Backend
from redcal_spark.core.kernel import Rules
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import pack_changes, unpack_changes
from redcal_spark.core.patches import PatchLog
from redcal_spark.runs import start
from redcal_spark.runs.job import Job
from redcal_spark.runs.outcome import Outcome
from redcal_spark.settings import DriverBudget
from tests.bench import data, tables
from tests.bench.memory import peak_bytes, peaks_below
from tests.bench.scale_plan import Case
from tests.bench.timing import best, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE_AT_MOST = 2 * 10**9  # bytes on disk of a table that `read_table` may hold in memory
TASKS = (2, 402)  # of empty jobs, whose difference tells what a task costs
FAMILIES = ((1, 10, 10), (10, 10, 10), (100, 50, 100))  # losses, K, d


class Bench:
    """A case, its table, and where it may write."""

    def __init__(self, case: Case, folder: Path):
        self.case = case
        self.folder = folder
        self.table = str(folder.parent / "tables" / (case.table or ""))
        self.losses = data.losses(case.losses, case.rows.classes, case.rows.actions)

    def job(self, number: int, work: Backend | None, **given: Any) -> Job:
        """A place of its own for every run: nothing is found done, no session remembers it."""
        target = self.folder / f"run_{number}" / "rows"
        table = given.pop("table", self.table)
        given = self.case.parameters | given
        return tables.job(table, target, self.losses, work, given=self.case.columns, **given)

    @property
    def columns(self) -> list[str]:
        return list(self.case.rows.schema.names)

    def first_rows(self) -> pa.Table:
        """Those of the first row group."""
        with pq.ParquetFile(tables.files_of(self.table)[0]) as file:
            return file.read_row_group(0)

    @property
    def table_bytes(self) -> int:
        """On disk."""
        return sum(path.stat().st_size for path in tables.files_of(self.table))

    def warm(self) -> None:
        """Bring the table to where the system caches files, so that all find it there."""
        for path in tables.files_of(self.table):
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def fit_told(job: Job, outcome: Outcome, active: int) -> dict[str, Any]:
    """What a fit did and what it took."""
    assert outcome.pair is not None
    passes, log = job.work.counters.passes, outcome.pair.log
    return {
        "status": outcome.row.status,
        "phases": json.loads(outcome.row.timings or "{}"),
        "counters": json.loads(outcome.row.counters or "{}"),
        "patches": len(log),
        "log": digest(log),
        "touched": sum(patch.rows for patch in log),
        "rounds": rounds_of(log),
        "active_bytes": active,
        "passes": [asdict(one) for one in passes],
    }


def digest(log: PatchLog) -> str:
    """Equal of equal logs only: fits in processes of their own are compared by it."""
    lines = "\n".join(patch.to_line() for patch in log)
    return hashlib.sha256(lines.encode()).hexdigest()


def rounds_of(log: PatchLog) -> list[list[int]]:
    """Per round the rows of its event, and how many patches followed the first."""
    found: list[list[int]] = []
    for patch in log:
        if patch.kind == "reconcile":
            found.append([patch.rows, 0])
        elif found and patch.round is not None:
            found[-1][1] += 1
    return found


def fit_here(bench: Bench) -> dict[str, Any]:
    """Fits first: what the readers hold must not be taken for theirs."""
    bench.warm()
    runs = []
    for number in range(bench.case.repeats):
        job = bench.job(number, None)
        active = tables.active_bytes(job)
        runs.append((timed_outcome(job), job, active))
    (seconds, outcome), job, active = min(runs, key=lambda run: run[0][0])
    peak = peak_bytes()
    small = bench.table_bytes <= WHOLE_AT_MOST
    readers = {name: read for name, read in tables.READERS.items() if small or name != "read_table"}
    bare = best(
        {name: lambda r=r: r(bench.table, bench.columns) for name, r in readers.items()},  # type: ignore[misc]
        bench.case.repeats,
    )
    return {
        "seconds": seconds,
        "bare": min(bare.values()),
        "readers": bare,
        "peaks": {"process": peak},
        "table_bytes": bench.table_bytes,
        **fit_told(job, outcome, sum(active)),
    }


def timed_outcome(job: Job) -> tuple[float, Outcome]:
    found: list[Outcome] = []
    return timed(lambda: found.append(start.fit(job))), found[0]


@contextlib.contextmanager
def on_spark(bench: Bench) -> Iterator[tuple[SparkSession, Callable[[int | None], Backend]]]:
    """A session, warmed up by a fit of the first rows, and what makes the work of a job."""
    from redcal_spark.backends.spark.backend import SparkBackend
    from redcal_spark.backends.spark.session import local_session

    spark = local_session(master=f"local[{bench.case.cores}]")

    def work(budget: int | None = None) -> Backend:
        scratch = str(bench.folder / "scratch")
        room: DriverBudget = "auto" if budget is None else budget
        return SparkBackend(spark, scratch, room, read=bench.case.read)

    try:
        if bench.case.table is not None:
            few = bench.folder / "few.parquet"
            # so many and so divided that there is a task for every worker: one that starts while
            # a fit is timed takes seconds
            pq.write_table(bench.first_rows(), few, row_group_size=10_000)
            start.fit(bench.job(-1, work(0), table=str(few), max_steps=2))
        yield spark, work
    finally:
        spark.stop()


def fit_there(bench: Bench) -> dict[str, Any]:
    """In turns with a bare read by Spark of the same columns."""
    bench.warm()
    with on_spark(bench) as (spark, work), peaks_below() as peaks:
        frame = spark.read.parquet(bench.table).select(*bench.columns)
        runs, bare = [], []
        for number in range(bench.case.repeats):
            job = bench.job(number, work(None))
            runs.append((timed_outcome(job), job))
            bare.append(timed(lambda: frame.write.format("noop").mode("overwrite").save()))
    (seconds, outcome), job = min(runs, key=lambda run: run[0][0])
    told = {"seconds": seconds, "bare": min(bare), "peaks": peaks, "cores": bench.case.cores}
    return told | {"table_bytes": bench.table_bytes} | fit_told(job, outcome, scanned_bytes(job))


def scanned_bytes(job: Job) -> int:
    """Of the active rows that a scan on Spark wrote to scratch."""
    return next(one.bytes or 0 for one in job.work.counters.passes if one.name == "scan")


def worst(bench: Bench) -> dict[str, Any]:
    """Everything is active and stays where Spark keeps it."""
    bench.warm()
    with on_spark(bench) as (_, work), peaks_below() as peaks:
        job = bench.job(0, work(0))
        seconds, outcome = timed_outcome(job)
    told = {"seconds": seconds, "peaks": peaks, "cores": bench.case.cores}
    return told | fit_told(job, outcome, scanned_bytes(job))


# --- apply ----------------------------------------------------------------------------------------


def pair_of(bench: Bench) -> ReconciledPair:
    """Fitted on the table's first rows, in memory: it is the log that is needed."""
    made = Reconciler(
        losses=bench.losses,
        model_1="scores_a",
        model_2="scores_b",
        label="label",
        id="id",
        **bench.case.parameters,
    )
    return made.fit(bench.first_rows())


def apply_here(bench: Bench) -> dict[str, Any]:
    """Against reading and writing columns as many and as large as its own, batch by batch."""
    bench.warm()
    pair, ours, bare = pair_of(bench), bench.folder / "applied" / "rows", bench.folder / "bare"

    def run() -> None:
        shutil.rmtree(ours.parent, ignore_errors=True)
        start.apply(tables.job(bench.table, ours, bench.losses, **bench.case.parameters), pair)

    times = [timed(run) for _ in range(bench.case.repeats)]
    peak = peak_bytes()
    output = bench.folder / "output.parquet"
    tables.copy(ours, output)
    copied = best({"bare": tables.copies(output, bare)["streamed"]}, bench.case.repeats)
    told = {"seconds": min(times), "peaks": {"process": peak}, "patches": len(pair.log)}
    return told | copied


def apply_there(bench: Bench) -> dict[str, Any]:
    """Against writing the same columns, without computing any."""
    from tests.bench.spark import Copy

    bench.warm()
    pair = pair_of(bench)
    with on_spark(bench) as (spark, work), peaks_below() as peaks:
        frame = spark.read.parquet(bench.table)
        applied = pair.apply(frame)
        copied = frame.mapInArrow(Copy(applied.columns[len(frame.columns) :]), applied.schema)
        runs, bare = [], []
        for number in range(bench.case.repeats):
            job = bench.job(number, work(None))
            runs.append(timed(lambda job=job: start.apply(job, pair)))  # type: ignore[misc]
            target = str(bench.folder / f"bare_{number}")
            bare.append(timed(lambda to=target: copied.write.format("delta").save(to)))  # type: ignore[misc]
            for written in (f"run_{number}", f"bare_{number}"):
                shutil.rmtree(bench.folder / written)
    told = {"seconds": min(runs), "bare": min(bare), "peaks": peaks, "cores": bench.case.cores}
    return told | {"patches": len(pair.log)}


# --- the driver -----------------------------------------------------------------------------------


def driver(bench: Bench) -> dict[str, Any]:
    """What a task costs that does nothing, and what adding up its statistics costs the driver.

    The tasks need no Python, which is the workers' cost; what is left is mostly the scheduler's.
    """
    with on_spark(bench) as (spark, _):
        jobs: dict[str, Callable[[], Any]] = {
            str(n): lambda n=n: spark.range(0, n, 1, n).toArrow()  # type: ignore[misc]
            for n in TASKS
        }
        for run in jobs.values():
            run()
        empty = best(jobs, bench.case.repeats)
    few, many = TASKS
    return {
        "cores": bench.case.cores,
        "task_seconds": (empty[str(many)] - empty[str(few)]) / (many - few),
        "empty_job": empty[str(few)],
        "statistics": [statistics(*family) for family in FAMILIES],
    }


def statistics(losses: int, actions: int, classes: int) -> dict[str, Any]:
    """One point of history for some losses: bytes a task sends, and seconds to add them up."""
    family = data.losses(losses, classes, actions)
    found = Totals.none(Rules(family, (0,) * losses, None, False), classes)
    packed = pack_changes([found])

    repeats = 20

    def add() -> None:
        for _ in range(repeats):
            sum(unpack_changes(packed), start=found)

    seconds = best({"add": add}, 3)["add"] / repeats
    told = {"losses": losses, "actions": actions, "classes": classes}
    return told | {"bytes": len(packed), "seconds": seconds}


RUNS: dict[tuple[str, str], Callable[[Bench], dict[str, Any]]] = {
    ("fit", "local"): fit_here,
    ("fit", "spark"): fit_there,
    ("apply", "local"): apply_here,
    ("apply", "spark"): apply_there,
    ("worst", "spark"): worst,
    ("driver", "spark"): driver,
}


def main(arguments: list[str]) -> int:
    """FOLDER is emptied at the end."""
    case, folder = Case.from_json(json.loads(arguments[0])), Path(arguments[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    warnings.simplefilter("ignore")  # random costs may be equal on the grid
    try:
        found = RUNS[case.kind, case.engine](Bench(case, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

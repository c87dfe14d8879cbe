"""The Spark engine against the embedded one, in one process, with the patch logs compared.

Tables are those of `tests.bench.scale_data`: d = K = 10, 10 % of the rows disagree.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from redcal_spark import Reconciler
from redcal_spark.backends.backend import Backend
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.backends.spark.session import local_session
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target
from redcal_spark.core.roles import UNKNOWN
from redcal_spark.runs import start
from redcal_spark.settings import DRIVER_BUDGET
from tests.bench import data, scale_data, tables
from tests.bench.memory import peaks_below
from tests.bench.scale_plan import BASE, Case
from tests.bench.timing import Ratio, Result, timed

FIT = Case("fit", "spark", BASE, 0).parameters
WORST = Case("worst", "spark", BASE, 0).parameters
LOSSES = data.losses(1, BASE.classes, BASE.actions)
SCHEMA = "redcal_bench_scratch"  # of the session's catalog: Spark writes what is in it
MIB = 2**20
WORKER, BESIDE = 512, 500  # MiB of a worker, and of the driver beside its budget


@dataclass(frozen=True)
class Sizes:
    """tables: a folder in which tables are kept; None: one that is removed."""

    few: int = 1_000_000
    some: int = 10_000_000
    many: int = 100_000_000
    repeats: int = 3
    tables: Path | None = None


QUICK = Sizes(4_000, 8_000, 16_000, 1)


@contextlib.contextmanager
def table_of(sizes: Sizes, rows: int, like: scale_data.Rows = BASE) -> Iterator[str]:
    """A table of so many rows, in files that the system has in its cache."""
    with tempfile.TemporaryDirectory(prefix="redcal-bench-") as made:
        kind = "rows" if like == BASE else f"rows_{like.disagreement:g}"
        folder = (sizes.tables or Path(made)) / f"{kind}_{rows}"
        if not folder.exists():
            scale_data.write(like, rows, folder)
        for path in tables.files_of(str(folder)):
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass
        yield str(folder)


@dataclass
class Fits:
    """Fits of one table, each by a whole job, and what became of them."""

    table: str
    folder: Path
    parameters: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def run(self, name: str, work: Backend, table: str | None = None) -> None:
        """The best of those with this name is kept; every log must be the same."""
        target = self.folder / uuid4().hex / "rows"
        few = {} if table is None else {"max_steps": 2}  # of a session that gets warm
        job = tables.job(table or self.table, target, LOSSES, work, **self.parameters | few)
        outcomes: list[Any] = []
        spent = timed(lambda: outcomes.append(start.fit(job)))
        shutil.rmtree(target.parent, ignore_errors=True)
        if table is not None:
            return
        timings = json.loads(outcomes[0].row.timings)
        log = [patch.to_json() for patch in outcomes[0].pair.log]
        assert self.logs.setdefault(name, log) == log
        assert all(other == log for other in self.logs.values()), "the logs differ"
        known = self.phases.setdefault(name, timings)
        for phase, seconds in timings.items():
            known[phase] = min(known[phase], seconds)
        self.seconds[name] = min(spent, self.seconds.get(name, spent))

    def ratio(self, what: str, name: str, target: float | None, phase: str | None = None) -> Ratio:
        """Against the embedded engine."""
        if phase is None:
            return Ratio(what, self.seconds[name], self.seconds["embedded"], "cost", target)
        ours, theirs = self.phases[name][phase], self.phases["embedded"][phase]
        return Ratio(what, ours, theirs, "cost", target)

    @property
    def patches(self) -> int:
        return len(self.logs["embedded"])


@contextlib.contextmanager
def fits(
    sizes: Sizes, rows: int, parameters: dict[str, Any], master: str = "local[2]"
) -> Iterator[tuple[Fits, Callable[..., Backend], dict[str, int]]]:
    """Fits, who makes a Spark backend for one, and the peaks of processes in bytes.

    The session is warm: it has fitted a few rows.
    """
    with table_of(sizes, rows) as table, tempfile.TemporaryDirectory() as made:
        folder, spark = Path(made), local_session(master=master)

        def on_spark(
            budget: Any = "auto", read: Any = "direct", scratch: str | None = None
        ) -> Backend:
            return SparkBackend(spark, scratch or str(folder / "scratch"), budget, read=read)

        try:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA} LOCATION '{folder / 'schema'}'")
            fitted = Fits(table, folder, parameters)
            with table_of(sizes, min(rows, 20_000)) as few:
                for read in ("direct", "spark"):
                    fitted.run("warm", on_spark(0, read), few)
                fitted.run("warm", on_spark(0, "direct", SCHEMA), few)
            with peaks_below() as peaks:
                yield fitted, on_spark, peaks
        finally:
            spark.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            spark.stop()


def embedded() -> Backend:
    return LocalBackend(DeltaRsStore())


def fit_many(sizes: Sizes) -> Result:
    """The largest table, with the default budget and with one that its active rows exceed."""
    with fits(sizes, sizes.many, FIT) as (fitted, on_spark, peaks):
        fitted.run("over", on_spark(DRIVER_BUDGET))
        fitted.run("over, Spark's", on_spark(DRIVER_BUDGET, "direct", SCHEMA))
        bounded = dict(peaks)
        fitted.run("embedded", embedded())
        fitted.run("direct", on_spark())
        fitted.run("frame", on_spark("auto", "spark"))
    rows = f"{sizes.many:,} rows"
    over = f"fit phase after the scan, {rows}, active rows over a budget of 256 MiB"
    return Result(
        [
            fitted.ratio(f"fit {rows}, direct", "direct", 1.5),
            fitted.ratio("the same through the DataFrame scan", "frame", 5),
            fitted.ratio(f"{over}, Spark's scratch", "over, Spark's", 5, "fit"),
            fitted.ratio(f"{over}, direct scratch", "over", 2, "fit"),
            fitted.ratio(f"scan {rows}, direct", "direct", 1.5, "scan"),
        ],
        [
            f"{rows}: {fitted.patches} patches, the same in all",
            f"{rows}, driver_budget 256 MiB: {memory(bounded, DRIVER_BUDGET)}",
        ],
    )


def memory(peaks: dict[str, int], budget: int) -> str:
    """What a worker and the driver held at most, before anything else ran at the driver."""
    most = budget // MIB + BESIDE
    worker, driver = (peaks.get(name, 0) / MIB for name in ("worker", "driver"))
    met = "yes" if worker <= WORKER and driver <= most else "NO"
    return (
        f"largest worker {worker:.0f} MiB (at most {WORKER}), "
        f"driver {driver:.0f} MiB (at most {most}): {met}"
    )


def fit_some(sizes: Sizes) -> Result:
    with fits(sizes, sizes.some, FIT) as (fitted, on_spark, _):
        for _ in range(sizes.repeats):
            fitted.run("embedded", embedded())
            fitted.run("direct", on_spark())
            fitted.run("frame", on_spark("auto", "spark"))
    rows = f"{sizes.some:,} rows"
    return Result(
        [
            fitted.ratio(f"fit {rows}, direct", "direct", 2),
            fitted.ratio(f"fit {rows} through the DataFrame scan", "frame", None),
            fitted.ratio(f"scan {rows}, direct", "direct", 1.5, "scan"),
        ],
        [f"{rows}: {fitted.patches} patches, the same in all"],
    )


def fit_few(sizes: Sizes) -> Result:
    with fits(sizes, sizes.few, FIT) as (fitted, on_spark, _):
        for _ in range(sizes.repeats):
            fitted.run("embedded", embedded())
            fitted.run("direct", on_spark())
    what = f"fit {sizes.few:,} rows, second of a session, path tables"
    spent = ", ".join(f"{name} {s:.2f} s" for name, s in fitted.phases["direct"].items())
    return Result([fitted.ratio(what, "direct", 4)], [f"{sizes.few:,} rows on Spark: {spent}"])


def worst(sizes: Sizes) -> Result:
    """All rows are active, at the driver or not; and what both kinds of processes hold then."""
    with fits(sizes, sizes.some, WORST) as (fitted, on_spark, peaks):
        fitted.run("jobs", on_spark(0))
        jobs = dict(peaks)
        fitted.run("embedded", embedded())
        fitted.run("direct", on_spark())
    rows = f"{sizes.some:,} rows, all active, dc_then_redcal, {fitted.patches} steps"
    return Result(
        [
            fitted.ratio(f"worst case ({rows})", "direct", 3),
            fitted.ratio("the same with driver_budget 0: a job a step", "jobs", None),
        ],
        [f"worst case, driver_budget 0: {memory(jobs, 0)}"],
    )


def rows_out(sizes: Sizes) -> Result:
    """Reconciled rows written, by Spark and by tasks, against the embedded engine."""
    times, _ = _written(sizes, BASE, ("embedded", "direct", "spark"))
    what = f"apply {sizes.some:,} rows, writer"
    return Result(
        [
            Ratio(f"{what} direct", times["direct"], times["embedded"], "cost", 1.5),
            Ratio(f"{what} spark", times["spark"], times["embedded"], "cost"),
        ]
    )


def touched(sizes: Sizes) -> Result:
    """Only rows that patches touched, a tenth of all, against all rows."""
    like = replace(BASE, disagreement=0.145)  # patches touch some of these rows
    times, share = _written(sizes, like, ("spark", "direct", "spark touched", "direct touched"))
    what = f"apply {sizes.some:,} rows, rows touched ({share:.0%}), against rows all"
    return Result(
        [
            Ratio(f"{what}, writer {name}", times[f"{name} touched"], times[name], "cost", 0.3)
            for name in ("spark", "direct")
        ]
    )


def _written(
    sizes: Sizes, like: scale_data.Rows, ways: Sequence[str]
) -> tuple[dict[str, float], float]:
    """Seconds by who writes what, and the share of rows that patches touched."""
    with table_of(sizes, sizes.some, like) as table, tempfile.TemporaryDirectory() as out:
        spark = local_session(master="local[2]")
        try:
            return _write_all(spark, table, Path(out), sizes.repeats, ways)
        finally:
            spark.stop()


def _write_all(
    spark: SparkSession, table: str, out: Path, repeats: int, ways: Sequence[str]
) -> tuple[dict[str, float], float]:
    pair = Reconciler(
        losses=LOSSES, model_1="scores_a", model_2="scores_b", label="label", id="id", **FIT
    ).fit(spark.read.parquet(table))
    counts: dict[str, int] = {}
    times: dict[str, float] = {}

    def write(way: str) -> None:
        work = embedded() if way == "embedded" else SparkBackend(spark)
        target = Target(
            table=str(out / uuid4().hex),
            direct=way.startswith("direct"),
            touched_only=way.endswith("touched"),
        )
        source, commit = work.store.open(table), Commit(uuid4().hex, "bench")

        def put() -> None:
            made = (pair, target, UNKNOWN)
            _, counts[way] = work.write_rows(source, made, commit, lambda _: None, lambda: None)

        spent = timed(put)
        times[way] = min(spent, times.get(way, spent))
        shutil.rmtree(target.table)

    for number in range(min(2, repeats)):
        for way in ways:
            if number == 0 or way != "spark":  # a minute
                write(way)
    whole = {counts[way] for way in ways if not way.endswith("touched")}
    part = {counts[way] for way in ways if way.endswith("touched")}
    assert len(whole) == 1 and len(part) <= 1, counts
    return times, max(part, default=0) / max(whole)


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {
    "fit_few": fit_few,
    "fit_some": fit_some,
    "worst": worst,
    "rows_out": rows_out,
    "touched": touched,
    "fit_many": fit_many,
}

"""The Spark engine against Spark written the obvious way, and against bare passes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from redcal_spark import Reconciler
from redcal_spark.backends.spark.cells import row
from redcal_spark.backends.spark.frames import layout_of
from redcal_spark.backends.spark.scan import SparkScan
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.session import local_session
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import CellSource
from tests.bench import data
from tests.bench.obvious_spark import Obvious
from tests.bench.timing import Ratio, Result, best, timed

ALPHA, ETA, BETA = 1e-3, 1e-2, 1e-5


@dataclass(frozen=True)
class Sizes:
    rows: int = 1_000_000
    many: int = 10_000_000
    repeats: int = 3
    obvious_steps: int = 10


QUICK = Sizes(4_000, 8_000, 1, 2)


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    folder = tempfile.mkdtemp(prefix="redcal-bench-")
    spark = local_session(master="local[2]")
    spark.sparkContext.setCheckpointDir(folder)  # for the obvious one
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def table(spark: SparkSession, rows: int, **noise: float) -> Iterator[DataFrame]:
    """A Parquet table of several files, as a cluster would have written it."""
    folder = Path(tempfile.mkdtemp(prefix="redcal-bench-"))
    try:
        for i in range(4):
            part = folder / f"part-{i}.parquet"
            data.write_parquet(part, rows // 4, 10, seed=i, **noise)  # type: ignore[arg-type]
        yield spark.read.parquet(str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def costs() -> Any:
    return np.array(data.losses(1, 10).losses[0].costs)


def reconciler(**given: Any) -> Reconciler:
    return Reconciler(
        losses={"loss": costs()},
        alpha=ALPHA,
        eta=given.pop("eta", ETA),
        beta=given.pop("beta", BETA),
        model_1="scores_a",
        model_2="scores_b",
        label="label",
        **given,
    )


def obvious(sizes: Sizes) -> Result:
    """Per step and for the whole fit, against the obvious way."""
    with session() as spark, table(spark, sizes.rows, noise=0.35, tilt=0.2) as frame:
        reconciler(max_steps=2).fit(frame)  # the first job of a session is slow
        whole = best({"fit": lambda: reconciler().fit(frame)}, sizes.repeats)["fit"]
        pair = reconciler().fit(frame)
        steps = min(len(pair.log), 40)
        distributed = timed(lambda: reconciler(driver_budget=0, max_steps=steps).fit(frame))
        plain = Obvious(frame, costs(), ALPHA, ETA, BETA)
        plain.run(sizes.obvious_steps)
        per_step = sum(plain.seconds) / max(len(plain.seconds), 1)
        return Result(
            [
                Ratio(
                    f"a step, {sizes.rows:,} rows, driver_budget 0, against obvious Spark",
                    distributed / max(steps, 1),
                    per_step,
                    "quicker",
                    15,
                ),
                Ratio(
                    f"the whole fit ({len(pair.log)} patches), against obvious Spark",
                    whole,
                    per_step * len(pair.log),
                    "quicker",
                    50,
                ),
            ],
            [
                f"obvious Spark ran {len(plain.seconds)} steps and is extrapolated to the fit's "
                f"{len(pair.log)}; ours with driver_budget 0 ran {steps}, its scan included"
            ],
        )


@dataclass(frozen=True)
class CountBytes:
    """Looks at every byte of the cells, for their checksums, and does nothing else."""

    cells: CellSource

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield row("bytes", sum(zlib.crc32(cell) > 0 for _, cell in self.cells(batches)), b"")


def iteration(sizes: Sizes) -> Result:
    """One pass with all statistics over blocks, against one that only counts their bytes."""
    with session() as spark, table(spark, sizes.rows * 3 // 2) as frame:
        made = reconciler(algorithm="dc_then_redcal")  # keeps all rows
        layout = layout_of(frame, made.columns, made.problem.n_classes)
        scratch = Scratch(spark, None)
        try:
            scan = SparkScan(frame, made.problem, layout, scratch, 0)
            stored = Stored(scratch, scan.written, made.problem.rules(layout.binary))
            times = best(
                {
                    "ours": lambda: stored.ask("events"),
                    "bytes": lambda: stored.written.passed(CountBytes).toArrow(),
                },
                4 * sizes.repeats,
            )
        finally:
            scratch.close()
        what = f"an iteration over {scan.bytes / 1e6:.0f} MB of blocks, against counting bytes"
        return Result([Ratio(what, times["ours"], times["bytes"], "cost", 1.6)])


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([total], pa.int64())], names=["rows"])


def whole(sizes: Sizes) -> Result:
    """Fit with handover and apply, against bare passes over the same columns."""
    with session() as spark, table(spark, sizes.many) as frame:
        columns = ["scores_a", "scores_b", "label"]
        made = reconciler(eta=5e-3)
        pair = made.fit(frame)
        jobs = count_jobs(spark, lambda: made.fit(frame))
        out = tempfile.mkdtemp(prefix="redcal-bench-")
        applied = pair.apply(frame)
        copied = frame.mapInArrow(Copy(applied.columns[len(frame.columns) :]), applied.schema)
        memory: dict[str, float] = {}
        try:
            with peaks(memory):
                times = best(
                    {
                        "fit": lambda: made.fit(frame),
                        "scan": lambda: (
                            frame.select(*columns).mapInArrow(count_rows, "rows bigint").collect()
                        ),
                        "apply": lambda: written(applied, out),
                        "copy": lambda: written(copied, out),
                    },
                    sizes.repeats,
                )
        finally:
            shutil.rmtree(out, ignore_errors=True)
        return Result(
            [
                Ratio(
                    f"fit with handover, {sizes.many:,} rows, against a bare mapInArrow scan",
                    times["fit"],
                    times["scan"],
                    "cost",
                    1.6,
                ),
                Ratio(
                    f"apply {len(pair.log)} patches, against writing the same columns",
                    times["apply"],
                    times["copy"],
                    "cost",
                    1.4,
                ),
            ],
            [
                f"the fit took {jobs} Spark jobs (at most 4: 3 and a handover)",
                f"largest Python worker {memory.get('worker', 0):.0f} MiB (at most 512), "
                f"driver {memory.get('driver', 0):.0f} MiB (at most 256 + 500)",
            ],
        )


DOUBLES = pa.list_(pa.float64())  # as new scores are, whatever the old ones were


@dataclass(frozen=True)
class Copy:
    """The columns of an applied frame, without computing any: scores copied, the rest constant."""

    added: list[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            n = batch.num_rows
            new = [
                *(batch.column(name).cast(DOUBLES) for name in ("scores_a", "scores_b")),
                *([pa.array(["3"] * n)] * 4),
                *([pa.array(np.ones(n, np.bool_))] * 2),
            ]
            names = [*batch.schema.names, *self.added]
            yield pa.RecordBatch.from_arrays([*batch.columns, *new], names=names)


def written(frame: DataFrame, folder: str) -> None:
    frame.write.mode("overwrite").option("compression", "zstd").parquet(folder)


def count_jobs(spark: SparkSession, work: Callable[[], Any]) -> int:
    spark.sparkContext.setJobGroup("redcal-bench", "counted")
    work()
    found = spark.sparkContext.statusTracker().getJobIdsForGroup("redcal-bench")
    spark.sparkContext.setJobGroup("redcal-rest", "not counted")
    return len(list(found))


@contextlib.contextmanager
def peaks(found: dict[str, float]) -> Iterator[None]:
    """Resident MiB at most, of this process and of Spark's Python workers, looked at often."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    line = Path("/proc", pid, "cmdline").read_bytes()
                    pages = int(Path("/proc", pid, "statm").read_text().split()[1])
                    mine = int(pid) == os.getpid()
                    if mine or b"pyspark.daemon" in line:
                        name = "driver" if mine else "worker"
                        found[name] = max(found.get(name, 0.0), pages * 4096 / 2**20)
            time.sleep(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


MEASUREMENTS = {
    "obvious": obvious,
    "iteration": iteration,
    "spark_fit": whole,
}

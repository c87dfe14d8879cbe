"""Statistics that merge on the way: many losses over very many input splits."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark import Reconciler
from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.backends.spark.session import local_session
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import pack_changes
from redcal_spark.model.fit import fit_scanned
from tests.bench.memory import peaks_below
from tests.bench.speed import MIB, WORKER
from tests.bench.timing import Result, seconds

DRIVER = 1_024  # MiB, at most
SMALL = {  # a split a file, whatever its size
    "spark.sql.files.maxPartitionBytes": "1k",
    "spark.sql.files.openCostInBytes": "1k",
}


@dataclass(frozen=True)
class Sizes:
    splits: int = 10_000
    rows: int = 2  # of a split
    losses: int = 100
    actions: int = 50
    classes: int = 100


QUICK = Sizes(20, 3, 5, 4, 10)


def splits(sizes: Sizes) -> Result:
    """By tasks that read files, and through the DataFrame scan; the logs are the embedded one's."""
    rng, notes = np.random.default_rng(1), []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="redcal-bench-") as made:
        warnings.simplefilter("ignore")  # random costs may be equal on the grid
        folder = Path(made, "rows")
        _write(folder, sizes, rng)
        shape = sizes.actions, sizes.classes
        model = Reconciler(
            losses={f"l{i}": rng.uniform(0, 1, shape).round(3) for i in range(sizes.losses)},
            alpha=0.01,
            eta=0.05,
            beta=0.01,
            max_steps=3,
            model_1="scores_a",
            model_2="scores_b",
            label="label",
            id="id",
        )
        spark = local_session(master="local[2]", **SMALL)
        try:
            logs = []
            for read in ("direct", "spark"):
                work = SparkBackend(spark, f"{made}/scratch", 0, read=read)
                with peaks_below() as peaks:
                    pair, told = _fit(work, folder, model)
                logs.append(_lines(pair))
                driver, worker = (peaks[name] / MIB for name in ("driver", "worker"))
                kept = driver <= DRIVER and worker <= WORKER
                notes.append(
                    f"{sizes.losses} losses, K = {sizes.actions}, d = {sizes.classes}, "
                    f"{sizes.splits:,} input splits, read: {read}, spark.driver.maxResultSize as "
                    f"it is: {told}; driver {driver:.0f} MiB (at most {DRIVER}), "
                    f"worker {worker:.0f} MiB (at most {WORKER}): {'yes' if kept else 'NO'}"
                )
        finally:
            spark.stop()
        here = _lines(model.fit(pq.read_table(folder)))
        assert all(log == here for log in logs), "the logs differ"
    size = len(pack_changes([Totals.none(model.problem.rules(False), sizes.classes)])) / 1e6
    notes.append(f"a task tells {size:.0f} MB of each split there, so that not one a split may")
    return Result([], notes)


def _fit(work: SparkBackend, folder: Path, model: Reconciler) -> tuple[Any, str]:
    """The fit and the pass after it, where nothing goes to the driver; in words, how long."""
    begin = perf_counter()
    scan = work.scan(work.store.open(str(folder)), model.problem, None, lambda _: None)
    try:
        scanned = perf_counter()
        pair = fit_scanned(model.problem, scan)
        scan.histories(pair, None)
    finally:
        scan.close()
    after = perf_counter() - scanned
    return pair, f"scan {seconds(scanned - begin)}, {len(pair.log)} patches {seconds(after)}"


def _lines(pair: Any) -> list[dict[str, Any]]:
    return [patch.to_json() for patch in pair.log]


def _write(folder: Path, sizes: Sizes, rng: np.random.Generator) -> None:
    folder.mkdir()
    classes = sizes.classes
    for number in range(sizes.splits):
        one = rng.dirichlet(np.ones(classes), sizes.rows).astype(np.float32)
        two = one * rng.uniform(0.5, 2, one.shape).astype(np.float32)
        two /= two.sum(axis=1, keepdims=True)
        ids = np.arange(sizes.rows) + number * sizes.rows
        labels = rng.integers(0, classes, sizes.rows)
        scores = {"scores_a": one.tolist(), "scores_b": two.tolist()}
        table = pa.table({"id": ids, "label": labels, **scores})
        pq.write_table(table, folder / f"{number}.parquet")


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {"splits": splits}

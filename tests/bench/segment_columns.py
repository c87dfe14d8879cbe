"""What columns that split the rows cost a scan."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark import Reconciler
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.core.arrow import batches
from redcal_spark.core.scan import each_alone
from redcal_spark.runs import start
from tests.bench import data, tables
from tests.bench.core import ALPHA, ETA, Sizes
from tests.bench.timing import Ratio, Result, best

TEXTS = pa.array([f"value {k}" for k in range(20)])
COLUMNS = [f"segment {i}" for i in range(3)]


def segmented(sizes: Sizes) -> Result:
    """The scan with columns of 20 texts each that split the rows, against that without."""
    rng, table = np.random.default_rng(6), data.many_models(sizes.rows // 4, 10, 2)
    for name in COLUMNS:
        table = table.append_column(name, TEXTS.take(pa.array(rng.integers(0, 20, len(table)))))
    runs: dict[str, Callable[[], object]] = {}
    for count in (0, 1, 3):
        made = Reconciler(
            losses=data.losses(1, 10), alpha=ALPHA, eta=ETA, segments=COLUMNS[:count], threads=1
        )
        runs[str(count)] = partial(_scan_table, made, table)
    times = best(runs, sizes.repeats)
    what = f"scan: {len(table):,} rows, d = K = 10, {{}} of 20 values against none"
    each = times["0"] + (times["3"] - times["0"]) / 3
    return Result(
        [
            Ratio(what.format("a segment column"), times["1"], times["0"], "cost"),
            Ratio(what.format("each of three segment columns"), each, times["0"], "cost"),
        ],
        ["segments: rows are in memory; most of it is that Arrow must look up the texts"],
    )


def _scan_table(made: Reconciler, table: pa.Table) -> None:
    gather_pieces(made.problem, each_alone(batches(table)), table.schema, "rows", threads=1)


def segmented_fit(sizes: Sizes) -> Result:
    """A whole fit of a Parquet table, on all cores, with such columns and without."""
    rng, rows = np.random.default_rng(6), 2 * sizes.rows
    table = data.many_models(rows, 10, 2).rename_columns(["label", "scores_a", "scores_b"])
    table = table.append_column("id", pa.array(np.arange(rows)))
    for name in COLUMNS:
        table = table.append_column(name, TEXTS.take(pa.array(rng.integers(0, 20, rows))))
    with tempfile.TemporaryDirectory(prefix="redcal-bench-") as made:
        path = str(Path(made, "scores.parquet"))
        pq.write_table(table, path, compression="zstd")
        del table
        runs: dict[str, Callable[[], object]] = {
            str(count): partial(_fit_table, path, Path(made), count) for count in (0, 1, 3)
        }
        times = best(runs, sizes.repeats)
    what = f"fit: {rows:,} rows of Parquet, d = K = 10, {{}} of 20 values against none"
    each = times["0"] + (times["3"] - times["0"]) / 3
    return Result(
        [
            Ratio(what.format("a segment column"), times["1"], times["0"], "cost", 1.1),
            Ratio(what.format("each of three segment columns"), each, times["0"], "cost", 1.1),
        ]
    )


def _fit_table(path: str, folder: Path, count: int) -> None:
    target = folder / uuid4().hex / "rows"
    losses = data.losses(1, 10)
    start.fit(tables.job(path, target, losses, segments=COLUMNS[:count], max_steps=20))


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {
    "segments": segmented,
    "segmented_fit": segmented_fit,
}

"""What columns that split the rows cost a scan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.core.arrow import batches
from redcal_spark.core.scan import each_alone
from tests.bench import data
from tests.bench.core import ALPHA, ETA, Sizes
from tests.bench.timing import Ratio, Result, best


def segmented(sizes: Sizes) -> Result:
    """The scan with columns of 20 texts each that split the rows, against that without."""
    rng, table = np.random.default_rng(6), data.many_models(sizes.rows // 4, 10, 2)
    texts = pa.array([f"value {k}" for k in range(20)])
    columns = [f"segment {i}" for i in range(3)]
    for name in columns:
        table = table.append_column(name, texts.take(pa.array(rng.integers(0, 20, len(table)))))
    runs: dict[str, Callable[[], object]] = {}
    for count in (0, 1, 3):
        made = Reconciler(
            losses=data.losses(1, 10), alpha=ALPHA, eta=ETA, segments=columns[:count], threads=1
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


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {"segments": segmented}

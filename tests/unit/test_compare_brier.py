"""A comparison tells the Brier score that users of one column P(1) know."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from redcal_spark import Reconciler
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.core.arrow import batches, from_numpy
from redcal_spark.core.history import history
from redcal_spark.runs.compare import Compared, mean_brier
from tests.helpers import fit_gathered, gather


def test_one_column_has_the_mean_square() -> None:
    one, two, y = np.array([0.25, 0.5]), np.array([0.75, 0.5]), np.array([0, 1])
    reconciler = Reconciler(losses={"l": [[0, 1], [1, 0]]}, alpha=0.9, eta=0.9, threads=1)
    table = from_numpy(reconciler.columns, [one, two], y)
    gathered, layout = gather(reconciler, batches(table), table.schema)
    pair = fit_gathered(reconciler, gathered, layout)
    points = history(gathered.fit.totals, gathered.fit.scans, pair.rules, pair.log)
    found = Compared(pair, 0.0, {"fit": points}, LocalScan(gathered, layout))
    # (1/16 + 1/4) / 2 and (9/16 + 1/4) / 2
    assert mean_brier(found.metrics("fit")[0]) == Fraction(9, 32)

"""Segments as tasks of Spark send them, without Spark: the sums of the embedded engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.spark.cells import FROM_ROWS
from redcal_spark.backends.spark.tasks import HistoryTask, ScanTask
from redcal_spark.backends.spark.written import Told
from redcal_spark.core.history import Holdout, added, points, segments
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import gathered_of, unpack, unpack_changes
from redcal_spark.core.scan import ScanResult
from redcal_spark.core.segments import by_value, chosen, coded
from redcal_spark.core.splits import ColumnSplit
from redcal_spark.model.fit import fit_scanned
from tests.e2e.test_segments import segmented
from tests.e2e.work import CLASSES, LOSSES
from tests.helpers import gather

SPLIT = ColumnSplit("fold", "train", "test")


def model() -> Reconciler:
    given: dict[str, Any] = {"losses": LOSSES, "alpha": 0.005, "eta": 0.01, "beta": 0.02}
    given |= {"model_1": "a", "model_2": "b", "label": "outcome", "id": "case"}
    given |= {"classes": CLASSES, "weight": "w", "weight_unit": 0.5}
    return Reconciler(**given, segments=["region", "late"], threads=1)


def same(one: Totals, two: Totals) -> None:
    assert one.segments is not None and two.segments is not None
    for ours, theirs in zip(one.segments.sums, two.segments.sums, strict=True):
        assert {c: list(x) for c, x in ours.items()} == {c: list(x) for c, x in theirs.items()}
    assert [dict(x) for x in one.segments.texts] == [dict(x) for x in two.segments.texts]


def test_tasks_of_spark_say_the_same() -> None:
    rows = segmented(weights=True)
    asked, names = model(), rows.column_names
    batches = rows.to_batches(max_chunksize=170)
    found, layout = gather(asked, batches, rows.schema, SPLIT)
    scanner = asked.problem.scanner(layout, SPLIT)
    sent = [
        row
        for part in (batches[:2], batches[2:])
        for row in ScanTask(scanner, tuple(names))(iter(part))
    ]
    lines = [line for row in sent for line in row.to_pylist()]
    told = Told((line["kind"], line["data"]) for line in lines)
    total = ScanResult.nothing(scanner.rules, layout.n_classes)
    for data in told.statistics:
        total.merge(gathered_of(*unpack(data)))
    same(total.fit.totals, found.fit.totals)
    same(total.holdout.totals, found.holdout.totals)

    scan = LocalScan(found, layout, 1)
    pair = fit_scanned(asked.problem, scan)
    assert len(pair.log) > 3
    here = scan.histories(pair, None)
    cut = segments(pair.log, found.fit.counted)
    holdout = Holdout(False, found.holdout.totals.heaviest)
    task = HistoryTask(pair.rules, tuple(map(tuple, cut)), holdout, FROM_ROWS)
    for kind in ("fit", "holdout"):
        cells = [row for row in sent if row["kind"][0].as_py() == kind]
        changes = [
            unpack_changes(data)
            for some in (cells[::2], cells[1::2])
            for answer in task(iter(some))
            for data in answer.column("data").to_pylist()
        ]
        start = getattr(total, kind).totals
        pairing = holdout if kind == "holdout" else None
        there = points(start, cut, added(changes, len(cut)), pairing)
        for one, two in zip(there, here[kind], strict=True):
            same(one.totals, two.totals)


def test_sums_by_value_are_exact_whatever_their_size() -> None:
    rng = np.random.default_rng(2)
    places = rng.integers(0, 3, 500)
    for x in (
        rng.integers(-(2**62), 2**62, 500),
        rng.integers(0, 2, 500),
        rng.integers(-(2**20), 2**50, 500),
        rng.integers(0, 2**60, 500).astype(object) * 10**20,
    ):
        for w in (None, rng.integers(0, 2**27, 500)):
            exact = [
                sum(
                    int(value) * (1 if w is None else int(w[i]))
                    for i, value in enumerate(x.tolist())
                    if places[i] == place
                )
                for place in range(3)
            ]
            assert by_value(places, 3, x, w) == exact


def test_null_is_no_text() -> None:
    column = coded(pa.array(["null", None, "a", None]))
    assert column.texts == ("null", None, "a")
    assert len(set(column.hashes.tolist())) == 3
    numbers = coded(pa.array([3, None, 3, -1]))
    assert numbers.texts == ("3", None, "-1")
    assert chosen([], []).segments == ()

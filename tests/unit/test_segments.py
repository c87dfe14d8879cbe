"""Segments as tasks of Spark send them, without Spark: the sums of the embedded engine."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from redcal_spark import Reconciler
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.spark.cells import FROM_ROWS
from redcal_spark.backends.spark.tasks import HistoryTask, ScanTask
from redcal_spark.backends.spark.written import Manifest
from redcal_spark.core.chosen_segments import chosen
from redcal_spark.core.history import Holdout, added, points, segments
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import gathered_of, unpack, unpack_changes
from redcal_spark.core.scan import ScanResult
from redcal_spark.core.segment_numbers import _tables
from redcal_spark.core.segments import Coded, Looked, by_value, coded, table
from redcal_spark.core.splits import ColumnSplit
from redcal_spark.errors import UsageError
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
    told = Manifest((line["kind"], line["data"]) for line in lines)
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


# --- on new rows ----------------------------------------------------------------------------------


def three_models(rows: int = 400) -> pa.Table:
    rng = np.random.default_rng(2)
    truth = rng.random(rows)
    models = {f"m{i}": np.clip(truth + rng.normal(0, 0.25, rows), 0, 1) for i in range(3)}
    others = {
        "label": (rng.random(rows) < truth).astype(int),
        "region": rng.choice(["north", "south"], rows),
        "w": rng.integers(0, 5, rows) / 2,
    }
    return pa.table(models | others)


def fitted_pair(table: pa.Table, **options: Any) -> Any:
    costs = {"treat": [[0, 5], [1, 0]]}
    given: dict[str, Any] = {"models": ["m0", "m1", "m2"], "weight": "w", "weight_unit": 0.5}
    return Reconciler(losses=costs, alpha=0.01, eta=0.02, **given | options).fit(table)


def test_evaluate_measures_segments_of_weighted_new_rows() -> None:
    """Against costs that are added up row by row, with fractions."""
    table = three_models()
    pair = fitted_pair(table.slice(0, 200), segments=["region"])
    new = table.slice(200)
    seen = pair.evaluate(new)
    rows = [row for row in new.to_pylist() if row["w"]]
    assert seen.rows == len(rows)
    after = pair.apply(new).filter(pc.greater(new["w"], 0)).to_pylist()
    for line in seen.evidence.audits["holdout"]["after"]["segments"]:
        own = [i for i, row in enumerate(rows) if row["region"] == line["value"]]
        w = sum(Fraction(rows[i]["w"]) for i in own)
        assert line["rows"] == 2 * w
        for model in range(3):
            costs = [
                sum(
                    Fraction(rows[i]["w"])
                    * (5 * rows[i]["label"] if after[i][action] == "0" else 1 - rows[i]["label"])
                    for i in own
                )
                for action in (f"treat_{model + 1}_before", f"treat_{model + 1}_after")
            ]
            [loss] = line["losses"]
            assert Fraction(loss["decision_loss_exact"][model]) == costs[1] / w
            change = loss["change"][model]
            assert change["value"] == float((costs[1] - costs[0]) / w)
            assert change["low"] < change["value"] < change["high"]
    checks = [c for c in seen.certificate.checks if c.name == "segment_loss"]
    assert [check.model for check in checks] == [1, 2, 3]
    # 3 pairs x 2 events, 3 losses, 3 Brier scores, and 2 segments x 3
    assert seen.certificate.level is not None
    assert seen.certificate.level.statements == 6 + 3 + 3 + 6


def test_evaluate_takes_weights_of_arrays() -> None:
    table = three_models()
    pair = fitted_pair(table.slice(0, 200))
    new = table.slice(200)
    arrays = [new[f"m{i}"].to_numpy() for i in range(3)]
    labels, w = new["label"].to_numpy(), new["w"].to_numpy()
    seen = pair.evaluate(arrays, labels, weight=w)
    assert seen.certificate == pair.evaluate(new).certificate
    with pytest.raises(UsageError, match="weights are missing: give weight="):
        pair.evaluate(arrays, labels)


@pytest.mark.parametrize("silent", [False, True])
def test_a_segment_without_holdout_rows_leaves_its_column_undecided(silent: bool) -> None:
    """Nothing is known of it, so that nobody may say that no segment paid."""
    table = three_models(4_000)
    region = ["far" if silent and i == 0 else "near" for i in range(table.num_rows)]
    held = [i >= 500 for i in range(table.num_rows)]
    table = table.set_column(4, "region", pa.array(region)).append_column("held", pa.array(held))
    given: dict[str, Any] = {"model_1": "m0", "model_2": "m1", "algorithm": "dc_then_redcal"}
    losses = {"treat": [[0, 5], [1, 0]]}
    asked = Reconciler(losses=losses, alpha=0.9, eta=0.02, segments=["region"], **given)
    certificate = asked.fit(table, holdout="held").certificate
    assert certificate is not None
    verdicts = {c.verdict for c in certificate.checks if c.name == "segment_loss"}
    assert verdicts == {"undecided" if silent else "holds"}


@pytest.mark.parametrize(("alone", "verdict"), [(1, "undecided"), (2, "holds")])
def test_a_segment_with_one_holdout_row_is_undecided(alone: int, verdict: str) -> None:
    """The specification says so even where no row can cost more than alpha."""
    table = three_models(4_000)
    region = ["far" if i < 600 and i % (600 // alone) == 0 else "near" for i in range(4_000)]
    table = table.set_column(4, "region", pa.array(region))
    table = table.append_column("held", pa.array([i % 2 == 0 for i in range(4_000)]))
    given: dict[str, Any] = {"model_1": "m0", "model_2": "m1", "algorithm": "dc_then_redcal"}
    losses = {"treat": [[0, 10], [0.001, 9.999]]}  # no decision costs more than the other by much
    asked = Reconciler(losses=losses, alpha=0.9, eta=0.02, segments=["region"], **given)
    certificate = asked.fit(table, holdout="held").certificate
    assert certificate is not None
    verdicts = {c.verdict for c in certificate.checks if c.name == "segment_loss"}
    assert verdicts == {verdict}


def test_a_dictionary_may_have_a_value_twice_and_null_in_two_ways() -> None:
    """Arrow allows both; each value is one segment all the same."""
    values = pa.array(["a", "b", "a", None])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None, 2]), values)
    plain, odd = coded(column.dictionary_decode()), coded(column)
    for one in (plain, odd):
        sums = table([one], [np.arange(6)], None)
        texts, numbers = sums.texts[0], sums.sums[0]
        assert {texts[code]: list(sums) for code, sums in numbers.items()} == {
            "a": [3, 7],
            "b": [1, 1],
            None: [2, 7],
        }


def test_numbers_that_are_looked_up() -> None:
    """Against Python's own sums: large tables, negative costs, weights, too many values."""
    rng = np.random.default_rng(8)
    for values, w in (
        (3, None),
        (5_000, None),
        (3, rng.integers(0, 9, 500)),
        (3, rng.integers(2**29, 2**30, 500)),
    ):
        places, keys = rng.integers(0, values, 500), rng.integers(0, 12, 500)
        costs = [int(x) * 2**70 + 5 for x in rng.integers(-(2**40), 2**40, 12)]
        column = Coded(places, np.arange(values), tuple(map(str, range(values))))
        made = table([column], [Looked(keys, tuple(_tables(costs)), 7)], w)
        exact = dict.fromkeys(places.tolist(), 0)
        for i, place in enumerate(places.tolist()):
            exact[place] += 7 * costs[keys[i]] * (1 if w is None else int(w[i]))
        assert {code: numbers[1] for code, numbers in made.sums[0].items()} == exact

"""`redcal monitor`: new rows against the last fit, by plain computations and with alerts."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.certificate.intervals import binomial
from redcal_spark.certificate.monitor import _mass
from redcal_spark.core.number_text import weight_text
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, scores, write
from tests.helpers import Array
from tests.oracle import Problem


def later(rows: int, seed: int, first: int) -> pa.Table:
    """New rows, with ids of their own."""
    table = scores(rows, seed)
    place = table.schema.get_field_index("case")
    ids = pa.array(np.arange(first, first + rows), table.schema.field("case").type)
    return table.set_column(place, "case", ids)


@pytest.fixture
def watched(work: Work) -> Work:
    write_deltalake("scores", scores(900))
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"]["eta"] = 0.03
    work.ran()
    return work


def problem_of(rows: list[dict[str, Any]]) -> Problem:
    y = [CLASSES.index(r["outcome"]) for r in rows]
    costs = {name: loss["costs"] for name, loss in LOSSES.items()}
    f1, f2 = ([r[name] for r in rows] for name in ("a", "b"))
    return Problem(f1, f2, y, costs, "redcal", alpha=0.005, eta=0.03)


def test_the_numbers_are_those_of_the_plain_loops(watched: Work) -> None:
    new = later(700, 8, 5_000)
    write_deltalake("scores", new, mode="append")
    log = watched.redcal("log", "--json").lines
    told = watched.redcal("monitor", "--json")
    assert told.code == 0, told.err
    found = told.json
    rows = [row for row in new.to_pylist() if row["outcome"] is not None]
    problem = problem_of(rows)
    assert found["rows"] == len(rows)
    before = oracle.replay(problem, [])
    after = oracle.replay(problem, log)
    for each in found["losses"]:
        for stage, f in (("before", before), ("after", after)):
            loss = oracle.decision_loss(problem, each["loss"], f[each["model"] - 1])
            assert each[stage] == pytest.approx(float(loss), rel=1e-12)
        low, high = each["interval"]
        assert low < each["after"] - each["before"] < high
    run = oracle.Run(problem)
    for patch, each in zip(log, found["patches"], strict=True):
        acted = run.rows_of(patch)
        was = oracle.decision_loss(problem, patch["loss"], run.f[patch["model"]])
        run.replay(patch)
        now = oracle.decision_loss(problem, patch["loss"], run.f[patch["model"]])
        assert (each["step"], each["rows"]) == (patch["step"], len(acted))
        assert each["change"] == pytest.approx(float(now - was), abs=1e-7)
        assert each["fitted_share"] == pytest.approx(patch["rows"] / fit_rows(watched))
    largest = dict.fromkeys(LOSSES, 0)
    for name, _, _, event in run.events():
        largest[name] = max(largest[name], len(event))
    assert {m["loss"]: m["rows"] for m in found["masses"]} == largest


def fit_rows(work: Work) -> int:
    return int(work.runs()[-1]["fit_rows"])


# --- weights --------------------------------------------------------------------------------------


def weighing(table: pa.Table, weights: Array) -> pa.Table:
    return table.append_column("w", pa.array(weights.astype(float) / 2))


def written_out(table: pa.Table) -> pa.Table:
    """Every row as often as its weight has units of .5."""
    times = [round(2 * w) for w in table["w"].to_pylist()]
    order = [i for i, some in enumerate(times) for _ in range(some)]
    copies = table.take(order).drop_columns(["w", "case"])
    return copies.append_column("case", pa.array(range(len(order))))


@pytest.fixture
def weighted(work: Work) -> Work:
    """A fit on rows of weights 0 to 2, and `new` rows that have such."""
    rng = np.random.default_rng(4)
    write(weighing(scores(900), rng.integers(0, 5, 900)))
    write(weighing(later(700, 8, 5_000), rng.integers(0, 5, 700)), "new.parquet")
    work.tree["input"] |= {"weight": "w", "weight_unit": 0.5}
    work.tree["reconcile"] |= {"eta": 0.03, "beta": 0.01}
    work.ran()
    return work


def same_estimates(one: dict[str, Any], two: dict[str, Any]) -> None:
    """All but intervals and what they decide; changes of a patch are rounded to the grid."""
    assert one["rows"] == two["rows"]
    names = {"loss", "model", "before", "after", "models", "a1", "a2"}
    names |= {"rows", "share", "step", "fitted_share"}
    for part in ("losses", "masses", "patches"):
        here, there = (
            [{k: v for k, v in each.items() if k in names} for each in found[part]]
            for found in (one, two)
        )
        assert here == there and here
    for here, there in zip(one["patches"], two["patches"], strict=True):
        assert here["change"] == pytest.approx(there["change"], abs=1e-7)


def test_weighted_rows_are_as_if_they_were_written_out(weighted: Work) -> None:
    found = weighted.ran("monitor", "--table", "new.parquet")
    new = pq.read_table("new.parquet").drop_null()
    w = [round(2 * x) for x in new["w"].to_pylist()]
    effective = pytest.approx(sum(w) ** 2 / sum(x * x for x in w))
    rows = sum(x > 0 for x in w)
    assert found["rows"] == sum(w)
    assert found["weights"] == {"rows": rows, "largest": 4, "effective": effective}
    told = weighted.redcal("monitor", "--table", "new.parquet")
    count = weight_text(sum(w), Fraction(1, 2))
    assert f"{rows} new labelled rows of new.parquet, weighted: they count as {count}, by" in (
        " ".join(told.out.split())
    )

    for name in ("scores", "new"):
        write(written_out(pq.read_table(f"{name}.parquet")), f"{name}_copies.parquet")
    del weighted.tree["input"]["weight"], weighted.tree["input"]["weight_unit"]
    weighted.tree["input"]["table"] = "scores_copies.parquet"
    weighted.tree["output"]["table"] = "out/copies"
    weighted.ran()
    copies = weighted.ran("monitor", "--table", "new_copies.parquet")
    same_estimates(found, copies)
    assert "weights" not in copies


@pytest.mark.slow
def test_weights_of_one_are_none(weighted: Work) -> None:
    """But for the intervals of shares, which are no Clopper-Pearson with weights."""
    for name in ("scores", "new"):
        table = pq.read_table(f"{name}.parquet").drop_columns(["w"])
        write(weighing(table, np.full(len(table), 2)), f"{name}.parquet")
    weighted.tree["input"]["weight_unit"] = 1
    weighted.ran()
    ones = weighted.ran("monitor", "--table", "new.parquet")
    del weighted.tree["input"]["weight"], weighted.tree["input"]["weight_unit"]
    weighted.tree["output"]["table"] = "out/plain"
    weighted.ran()
    plain = weighted.ran("monitor", "--table", "new.parquet")
    same_estimates(ones, plain)
    assert ones["losses"] == plain["losses"]
    changes = [
        [(each["change"], each["interval"], each["verdict"]) for each in found["patches"]]
        for found in (ones, plain)
    ]
    assert changes[0] == changes[1]


def test_weighted_intervals_are_those_of_the_specification(weighted: Work) -> None:
    """Of w (x - c) on rows with w > 0, over the mean weight; of the fitting rows' shares, too."""
    found = weighted.ran("monitor", "--table", "new.parquet")
    log = weighted.redcal("log", "--json").lines
    rows = [r for r in pq.read_table("new.parquet").to_pylist() if r["outcome"] and r["w"]]
    run, w = oracle.Run(problem_of(rows)), np.array([2 * r["w"] for r in rows])
    labels = [CLASSES.index(r["outcome"]) for r in rows]
    events = sum(k * (k - 1) for k in (len(x["costs"]) for x in LOSSES.values()))
    said = events + 2 * len(LOSSES) + 2 + 3 * len(log)  # of 2 models the losses, the Brier scores
    ln = math.log(4 * said / found["delta"])

    def around(x: Array, centre: float, length: float) -> list[float]:
        n, z = len(w), w * (x - centre)
        half = math.sqrt(2 * z.var(ddof=1) * ln / n) + 7 * w.max() * length * ln / (3 * (n - 1))
        return [centre + (z.mean() + sign * half) / w.mean() for sign in (-1, 1)]

    def costs(name: str, model: int) -> Array:
        matrix, quantised = np.array(LOSSES[name]["costs"]), run.losses[name]
        actions = [oracle.argmin(oracle.action_scores(quantised, f)) for f in run.f[model]]
        return np.asarray(matrix[actions, labels], float)

    def length(name: str) -> float:
        matrix = np.array(LOSSES[name]["costs"])
        return float(2 * (matrix.max(axis=0) - matrix.min(axis=0)).max())

    first = {(name, model): costs(name, model) for name in LOSSES for model in (1, 2)}
    for patch, each in zip(log, found["patches"], strict=True):
        acted, was = run.rows_of(patch), costs(patch["loss"], patch["model"])
        hit = np.isin(np.arange(len(rows)), acted).astype(float)
        assert each["share_interval"] == pytest.approx(around(hit, 0.5, 1.0), abs=1e-6)
        run.replay(patch)
        x = costs(patch["loss"], patch["model"]) - was
        expected = around(x, 0.0, length(patch["loss"]))
        assert each["change"] == pytest.approx((w * x).sum() / w.sum(), abs=1e-6)
        assert each["interval"] == pytest.approx(expected, abs=1e-6)
    for each in found["losses"]:
        name, model = each["loss"], each["model"]
        x = costs(name, model) - first[name, model]
        assert each["interval"] == pytest.approx(around(x, 0.0, length(name)), abs=1e-6)


@pytest.mark.slow
def test_a_share_of_few_heavy_rows_has_not_drifted(weighted: Work) -> None:
    """The share of the fitting rows is uncertain by their weights, too."""
    table = pq.read_table("scores.parquet")
    times = [0 if i % 40 else 4_000 for i in range(len(table))]
    write(weighing(table.drop_columns(["w"]), np.array(times)))
    weighted.ran()
    found = weighted.ran("monitor", "--table", "new.parquet")
    assert found["patches"] and "drift" not in found["alerts"]


def test_labels_that_come_later_are_new_rows(work: Work) -> None:
    table = scores(900)
    late = table.set_column(
        table.schema.get_field_index("outcome"),
        "outcome",
        pa.array([None if i % 3 == 0 else v for i, v in enumerate(table["outcome"].to_pylist())]),
    )
    write_deltalake("scores", late)
    work.tree["input"]["table"] = "scores"
    work.ran()
    write_deltalake("scores", table, mode="overwrite")
    new = [v for i, v in enumerate(table["outcome"].to_pylist()) if i % 3 == 0 and v is not None]
    assert work.ran("monitor")["rows"] == len(new)


def test_nothing_new_is_said(watched: Work) -> None:
    told = watched.redcal("monitor")
    assert told.code == 0 and "nothing to monitor" in told.out
    assert watched.redcal("monitor", "--fail-on", "no_rows").code == 1


def test_new_rows_without_labels_are_nothing_to_monitor(work: Work) -> None:
    write_deltalake("scores", scores(900))
    work.tree["input"]["table"] = "scores"
    work.ran()
    late = later(1, 60, 50_000)
    nothing = pa.nulls(len(late), late["outcome"].type)
    place = late.schema.get_field_index("outcome")
    write_deltalake("scores", late.set_column(place, "outcome", nothing), mode="append")
    told = work.redcal("monitor", "--fail-on", "loss,mass")
    assert told.code == 0, told.err
    assert "nothing to monitor: scores has no labelled rows that run " in told.out
    assert work.redcal("monitor", "--fail-on", "no_rows").code == 1


def test_an_event_without_rows_has_no_name(watched: Work) -> None:
    """On one row on which both models say the same."""
    table = later(1, 8, 70_000)
    alike = {name: [0.85, 0.05, 0.05, 0.05] for name in ("a", "b")} | {"outcome": CLASSES[0]}
    same = pa.Table.from_pylist([table.to_pylist()[0] | alike], schema=table.schema)
    pq.write_table(same, "same.parquet")
    told = watched.redcal("monitor", "--table", "same.parquet", "--dry-run")
    assert told.code == 0, told.err
    lines = [line.split() for line in told.out.splitlines() if " none " in line]
    assert {line[0].rstrip(":") for line in lines} == set(LOSSES)


def flipped(work: Work, rows: int) -> pa.Table:
    """Rows whose labels are those for which the patches' new decisions cost most."""
    table = later(rows, 11, 9_000)
    assert work.redcal("export", "-o", "model.json").code == 0
    made = ReconciledPair.load("model.json").apply(table)
    costs = np.array(LOSSES["triage"]["costs"])
    before, after = (
        (np.array(made[name].to_pylist()) @ costs.T).argmin(axis=1)
        for name in ("a", "a_reconciled")
    )
    labels = [CLASSES[k] for k in (costs[after] - costs[before]).argmax(axis=1)]
    return table.set_column(table.schema.get_field_index("outcome"), "outcome", pa.array(labels))


def test_alerts_and_exit_codes(watched: Work) -> None:
    write_deltalake("bad", flipped(watched, 6_000))
    told = watched.redcal("monitor", "--table", "bad", "--json", "--fail-on", "loss,patch")
    assert told.code == 1, told.out
    assert "--fail-on loss: the patches raise the cost of new rows: triage (model 1)" in told.err
    assert {"loss", "patch"} <= told.json["alerts"].keys()
    shown = watched.redcal("monitor", "--table", "bad")
    assert shown.code == 0  # no one asked to fail
    assert "ALERT loss" in shown.out and "rose" in shown.out
    with pytest.raises(SystemExit):
        watched.redcal("monitor", "--fail-on", "loss,nonsense")


def test_drift_of_an_event(watched: Work) -> None:
    """New rows that are one row over and over are not as the fitting rows were."""
    table = later(2_000, 3, 20_000)
    same = table.take(pa.array([7] * 2_000))
    same = same.set_column(same.schema.get_field_index("case"), "case", table["case"])
    label = pa.array(["grave"] * 2_000)
    same = same.set_column(same.schema.get_field_index("outcome"), "outcome", label)
    write_deltalake("same", same)
    assert "drift" in watched.ran("monitor", "--table", "same")["alerts"]


def test_a_day_is_in_the_metrics_once_and_in_the_report(watched: Work) -> None:
    write_deltalake("scores", later(500, 8, 5_000), mode="append")
    before = watched.table("out/rows_metrics").num_rows
    first = watched.ran("monitor")
    assert first["outputs"].keys() == {"out/rows_metrics"}
    watched.ran("monitor")
    table = watched.table("out/rows_metrics")
    rows = [r for r in table.to_pylist() if r["kind"] == "monitor"]
    assert table.num_rows == before + len(rows)  # what runs wrote is still there
    assert len({r["run_id"] for r in rows}) == 1
    counts = [r for r in rows if r["name"] == "rows"]
    assert [r["counted"] for r in counts] == [first["rows"]]
    page = Path("out/rows_report.html").read_text("utf-8")
    assert "Since then" in page and f"{first['rows']:,}" in page
    assert watched.redcal("evaluate").code == 0  # of the run, which the new rows do not concern


def test_a_dry_run_writes_nothing(watched: Work) -> None:
    write_deltalake("scores", later(500, 8, 5_000), mode="append")
    files = watched.files()
    assert watched.ran("monitor", "--dry-run")["outputs"] == {}
    assert watched.files() == files


def test_files_that_changed_need_a_table_of_their_own(work: Work) -> None:
    work.ran()
    pq.write_table(pa.concat_tables([scores(), later(100, 2, 5_000)]), "scores.parquet")
    told = work.redcal("monitor")
    assert told.code == 2 and "--table TABLE" in told.err


def test_verdicts_of_masses() -> None:
    eta = Fraction(1, 10)
    said = {hits: _mass(binomial(hits, 10_000), eta) for hits in (500, 1_000, 1_500, 2_000, 2_500)}
    assert list(said.values()) == [
        *("within eta", "within 2 eta", "within 2 eta", "above eta", "above 2 eta")
    ]
    assert _mass(binomial(7, 50), eta) == "undecided"

"""`redcal monitor`: new rows against the last fit, by plain computations and with alerts."""

from __future__ import annotations

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
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, scores
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

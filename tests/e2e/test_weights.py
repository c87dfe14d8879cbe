"""`input.weight` through whole jobs: tables, certificate, audit, report, evaluation."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.number_text import weight_text
from tests import oracle, problems
from tests.e2e.work import CLASSES, LOSSES, Work, problem, scores, split_rows, write
from tests.helpers import same_as
from tests.report_pages import numbers, read_page


def weighted(rows: int = 600, heavy: int = 4) -> pa.Table:
    """Multiples of .5, some of them 0; rows without a label have none at all."""
    table = scores(rows)
    rng = np.random.default_rng(8)
    w = rng.integers(0, 2 * heavy, rows) / 2
    known = table["outcome"].is_valid().to_pylist()
    weights = [x if k else None for x, k in zip(w.tolist(), known, strict=True)]
    return table.append_column("w", pa.array(weights))


def with_weights(work: Work) -> pa.Table:
    table = weighted()
    write(table)
    work.tree["input"] |= {"weight": "w", "weight_unit": 0.5}
    work.tree["reconcile"]["beta"] = 0.01
    return table


def test_a_run_is_that_of_the_oracle_and_is_evaluated(work: Work) -> None:
    table = with_weights(work)
    run = work.ran()
    fit = split_rows(table, "train")
    asked = problem(fit, beta=0.01, w=fit["w"].to_pylist(), weight_unit=0.5)
    w = oracle.weights(asked)
    work.redcal("export", "--output", "model.json")
    pair = ReconciledPair.load("model.json")
    same_as(pair, oracle.fit(asked))
    assert (pair.rows, pair.columns.weight, pair.columns.weight_unit) == (sum(w), "w", 0.5)

    told = work.redcal("evaluate", "--json")
    assert told.code == 0, told.out
    rows = work.table()
    roles = dict(zip(rows["case"].to_pylist(), rows["split"].to_pylist(), strict=True))
    for case, fold, label, weight in zip(
        *(table[name].to_pylist() for name in ("case", "fold", "outcome", "w")), strict=True
    ):
        part = {"train": "fit", "test": "holdout"}.get(fold, "none")
        assert roles[case] == (part if label is not None and weight else "none")
    row = work.runs()[-1]
    holdout = split_rows(table, "test")
    assert row["fit_rows"] == sum(x > 0 for x in w)
    assert row["holdout_rows"] == sum(x > 0 for x in holdout["w"].to_pylist())
    metrics = {m["name"]: m["counted"] for m in work.table("out/rows_metrics").to_pylist()}
    assert metrics["fit_weight"] == sum(w)
    assert metrics["holdout_weight"] == 2 * sum(holdout["w"].to_pylist())
    weightless = sum(x == 0 for x in table["w"].to_pylist())
    assert metrics["weightless_rows"] == weightless
    history = work.table("out/rows_history").to_pylist()
    assert {h["rows"] for h in history if h["split"] == "fit"} == {sum(w)}
    methods = {
        check["interval"]["method"].partition(" (")[0]
        for check in json.loads(row["certificate"])["checks"]
        if check["interval"] is not None
    }
    assert methods <= {"empirical Bernstein", "nothing changed"} and methods
    page = Path(run["report"]).read_text("utf-8")
    assert re.search("The rows are weighted by <b>.*w.*</b>, multiples of 0.5: a row of", page)


def test_the_same_as_if_rows_were_written_out(work: Work) -> None:
    table = with_weights(work)
    work.tree["output"]["table"] = "out/weighted"
    work.ran()
    w = [0 if x is None else int(2 * x) for x in table["w"].to_pylist()]
    order = [i for i, times in enumerate(w) for _ in range(times)]
    copies = table.take(order).drop_columns(["w", "case"])
    write(copies.append_column("case", pa.array(range(len(order)))), "copies.parquet")
    del work.tree["input"]["weight"], work.tree["input"]["weight_unit"]
    work.tree["input"]["table"] = "copies.parquet"
    work.tree["output"]["table"] = "out/copies"
    work.ran()
    names = ["weighted", "copies"]
    one, two = (work.table(f"out/{n}_patches").drop_columns(["run_id"]) for n in names)
    assert one.sort_by("step").equals(two.sort_by("step")) and len(one)
    keys = [(k, "ascending") for k in ("split", "step", "loss", "model")]
    one, two = (work.table(f"out/{n}_history").drop_columns(["run_id"]) for n in names)
    assert one.sort_by(keys).equals(two.sort_by(keys))


def test_audit_and_check_say_weighted(work: Work) -> None:
    table = with_weights(work)
    told = work.redcal("check")
    assert "  weight   'w', multiples of 0.5\n" in told.out
    audit = work.ran("audit")
    counted = [
        x
        for x, fold in zip(table["w"].to_pylist(), table["fold"].to_pylist(), strict=True)
        if x and fold != "later"
    ]
    assert audit["rows"] == 2 * sum(counted)
    assert audit["weights"]["rows"] == len(counted)
    assert "labelled rows, weighted: they count as" in work.redcal("audit").out


def test_a_comparison_counts_rows_and_says_weighted(work: Work) -> None:
    table = with_weights(work)
    told = work.redcal("compare", "-o", "chart.svg")
    assert told.code == 0, told.err
    drawn = Path("chart.svg").read_text("utf-8")
    for fold, split in (("train", "fitted"), ("test", "holdout")):
        rows = sum(x > 0 for x in split_rows(table, fold)["w"].to_pylist())
        assert f"{rows} {split} rows, weighted" in told.out
        assert f"{rows} {split} rows, weighted" in drawn


def test_a_report_has_one_value_of_each_number_and_says_weighted(work: Work) -> None:
    table = with_weights(work)
    page = read_page(Path(work.ran()["report"]).read_text("utf-8"))
    values = {of: {value for value, _ in shown} for of, shown in numbers(page).items()}
    assert {of for of, several in values.items() if len(several) > 1} == set()
    for split, fold in (("fit", "train"), ("holdout", "test")):
        w = split_rows(table, fold)["w"].to_pylist()
        assert {Fraction(x) for x in values[f"{split}/rows"]} == {Fraction(sum(w))}
        assert values[f"{split}/counted"] == {str(sum(x > 0 for x in w))}
    assert work.redcal("report", "-o", "page.md").code == 0
    said = "The rows are weighted by `w`, multiples of 0.5: a row of weight w counts as w rows"
    told = Path("page.md").read_text("utf-8")
    assert said in told
    rows, weight = sum(x > 0 for x in w), weight_text(int(2 * sum(w)), Fraction("0.5"))
    assert f"{rows} others (weights {weight})" in told


def test_sums_of_weights_and_costs_are_in_the_users_units(work: Work) -> None:
    """Not in multiples of the unit: with 0.5 these would be twice as large."""
    table = with_weights(work)
    told = work.redcal("run").out
    sums = [sum(split_rows(table, fold)["w"].to_pylist()) for fold in ("train", "test")]
    shown = re.search(r"sum of their weights +(\S+) +(\S+) +(\S+)", told)
    assert shown is not None
    assert [float(x.replace(",", "")) for x in shown.groups()] == [sums[0], sums[0], sums[1]]
    audited = work.redcal("audit").out
    assert f"they count as {weight_text(int(2 * sum(sums)), Fraction('0.5'))} " in audited
    page = read_page(Path("out/rows_report.html").read_text("utf-8"))
    values = {of: {value for value, _ in each} for of, each in numbers(page).items()}
    rows = work.table("out/rows").to_pylist()
    held = [row for row in rows if row["split"] == "holdout"]
    changed = sum(row["w"] for row in held if row["triage_1_before"] != row["triage_1_after"])
    assert {Fraction(x) for x in values["holdout/triage/moves/1/rows"]} == {Fraction(changed)}
    costs = LOSSES["triage"]["costs"]
    place = {name: i for i, name in enumerate(LOSSES["triage"]["actions"])}
    spent = sum(
        Fraction(row["w"])
        * sum(
            sign
            * Fraction(str(costs[place[row[f"triage_1_{when}"]]][CLASSES.index(row["outcome"])]))
            for when, sign in (("after", 1), ("before", -1))
        )
        for row in held
    )
    assert {Fraction(x) for x in values["holdout/triage/moves/1/cost"]} == {spent}


def test_a_report_in_python_says_weighted(tmp_path: Path) -> None:
    fit = split_rows(weighted(), "train")
    losses = {name: loss["costs"] for name, loss in LOSSES.items()}
    pair = Reconciler(
        losses=losses,
        alpha=0.005,
        eta=0.01,
        model_1="a",
        model_2="b",
        label="outcome",
        classes=list(CLASSES),
        weight="w",
        weight_unit=0.5,
    ).fit(fit)
    pair.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert re.search("The rows are weighted by <b>.*w.*</b>, multiples of 0.5: a row of", page)
    shown = pair._repr_html_()
    assert shown is not None and f"On {pair.counted:,} fitted rows, weighted." in shown


@pytest.mark.slow
def test_another_unit_is_another_run(work: Work) -> None:
    with_weights(work)
    first = work.ran()["run_id"]
    assert work.ran()["run_id"] == first
    work.tree["input"]["weight_unit"] = 0.25
    assert work.ran()["run_id"] != first


def test_refusals(work: Work) -> None:
    with_weights(work)
    work.tree["input"]["weight_unit"] = 1
    told = work.redcal("run")
    assert told.code == 2
    assert "rows with a weight that is no multiple of 1; first: id " in told.err
    assert "; input.weight_unit: 0.5 would do" in told.err
    for given, said in (
        ({"weight_unit": 0}, "input.weight_unit: must be a number above 0, got 0"),
        ({"weight": None}, "input.weight_unit: says nothing without weight"),
        ({"weight": "outcome"}, "input.weight: is the same column as label"),
        ({"weight": "fold"}, "weight column 'fold' has type string; weights are numbers"),
        ({"weight": "none"}, "column 'none' not found"),
    ):
        work.tree["input"] |= {"weight": "w", "weight_unit": 0.5} | given
        told = work.redcal("check")
        assert (told.code, said in told.err) == (2, True), told.err
    assert problems.WEIGHTS


@pytest.mark.slow
def test_eta_is_chosen_by_the_weighted_rows(work: Work) -> None:
    """A run, `tune` and `evaluate` agree; what weights are counted as is recorded."""
    fit = split_rows(with_weights(work), "train")
    work.tree["reconcile"] |= {"eta": "auto", "beta": "auto"}
    work.ran()
    chosen = json.loads(work.runs()[-1]["model"])["tuned"]
    w = [round(2 * x) for x in fit["w"].to_pylist()]
    effective = sum(w) ** 2 // sum(x * x for x in w)
    rows = sum(x > 0 for x in w)
    assert chosen["counts"] == {"fit_rows": rows, "used": rows, "effective": effective}
    assert sum(chosen["used"]) == chosen["fit_rows"] == sum(w)
    assert work.redcal("evaluate").code == 0
    told = work.redcal("tune")
    assert f"half of {rows:,} fitting rows" in told.out
    assert "rows count by their weights" in told.out
    assert work.ran("tune")["tuned"] == chosen

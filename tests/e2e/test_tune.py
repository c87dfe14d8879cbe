"""`eta: auto` in a run: chosen once, recorded, used by who goes on with it and by who checks it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import write_deltalake

from redcal_spark.runs import run as run_module
from tests import forked
from tests.e2e.killed import run
from tests.e2e.work import Work, scores
from tests.oracle import exact


@pytest.fixture
def auto(work: Work) -> Work:
    write_deltalake("scores", scores(900))
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"]["eta"] = "auto"
    return work


def model(work: Work) -> Any:
    return json.loads(work.runs()[-1]["model"])


def test_a_run_records_all_candidates_and_fits_with_the_best(auto: Work) -> None:
    told = auto.redcal("run")
    assert told.code == 0, told.err
    assert "reconcile.eta: auto chose eta" in told.err
    known = model(auto)
    assert [c["eta"] for c in known["tuned"]["candidates"]] == [
        *(0.02, 0.02, 0.01, 0.01, 0.005, 0.005, 0.002, 0.002)
    ]
    chosen = known["tuned"]["candidates"][known["tuned"]["chosen"]]
    assert known["parameters"]["eta"] == chosen["eta"]
    assert sum(known["tuned"]["used"]) == auto.runs()[-1]["fit_rows"]
    assert json.loads(auto.runs()[-1]["config"])["reconcile"]["eta"] == "auto"
    log = auto.redcal("log", "--json").out
    assert auto.ran()["unchanged"]
    # the same numbers, written down
    auto.tree["output"]["table"] = "again/rows"
    beta = known["parameters"]["beta"]
    auto.tree["reconcile"] |= {"eta": chosen["eta"], "beta": beta}
    auto.ran()
    assert auto.redcal("log", "--json").out == log and log


def test_evaluate_chooses_again_and_finds_the_same(auto: Work) -> None:
    auto.ran()
    told = auto.redcal("evaluate")
    assert told.code == 0, told.out + told.err


@pytest.mark.slow
def test_who_goes_on_with_a_run_uses_what_was_chosen(
    auto: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(auto.tree, sort_keys=False), "utf-8")
    code, out, err = forked.call(run, "first patch", "run", "-c", "config.yaml").ended()
    assert code == -signal.SIGKILL, out + err
    [dead] = auto.runs()
    tuned = json.loads(dead["progress"])["tuned"]

    def never(*_: Any) -> None:
        raise AssertionError("it was chosen before")

    monkeypatch.setattr(run_module, "tune", never)
    told = auto.redcal("resume")
    assert told.code == 0, told.err
    assert model(auto)["tuned"] == tuned


def test_how_many_rows_are_looked_at(auto: Work) -> None:
    auto.tree["reconcile"]["tune_rows"] = 50
    auto.ran()
    known = model(auto)["tuned"]
    assert known["level"] > 0 and known["active"] <= 50 < sum(known["used"]) < known["fit_rows"]
    beta = exact(float(auto.runs()[-1]["beta"]))
    chosen = known["candidates"][known["chosen"]]
    assert beta**2 <= chosen["stretch"] ** 2 * exact(chosen["eta"]) / (4 * known["fit_rows"])


def test_what_only_tuning_needs_changes_no_other_run(work: Work) -> None:
    work.ran()
    work.tree["reconcile"]["tune_rows"] = 50
    assert work.ran()["unchanged"]


@pytest.mark.parametrize("algorithm", ["reconcile", "decision_calibration"])
def test_others_are_refused_at_check(auto: Work, algorithm: str) -> None:
    auto.tree["reconcile"]["algorithm"] = algorithm
    told = auto.redcal("check")
    assert told.code == 2 and "reconcile.eta: auto is for redcal and dc_then_redcal" in told.err


def test_an_id_without_a_hash_is_refused_at_check(auto: Work) -> None:
    table = auto.table("scores")
    place = table.schema.get_field_index("case")
    days = table.column("case").cast("int32").cast("date32")
    write_deltalake("dated", table.set_column(place, "case", days))
    auto.tree["input"]["table"] = "dated"
    told = auto.redcal("check")
    assert told.code == 2
    assert "'case' has type date32" in told.err and "give reconcile.eta a number" in told.err


def test_audit_looks_from_the_smallest_candidate_on(auto: Work) -> None:
    assert auto.ran("audit")["to_fix"]["eta"] == 0.002
    assert "with 0.20 % (eta: auto, its smallest candidate) of them" in auto.redcal("audit").out


@pytest.mark.slow
def test_compare_tells_of_the_chosen_eta(auto: Work) -> None:
    auto.ran("fit")
    compared = auto.ran("compare")["procedures"]
    assert {one["eta"] for one in compared} == {model(auto)["parameters"]["eta"]}


# --- redcal tune ----------------------------------------------------------------------------------


def test_tune_says_what_a_run_would_choose_and_writes_no_table(auto: Work) -> None:
    before = auto.files()
    told = auto.redcal("tune", "--json")
    assert told.code == 0, told.err
    assert auto.files() - before <= {"config.yaml"}
    auto.ran()
    known = model(auto)
    assert told.json["tuned"] == known["tuned"]
    assert told.json["eta"] == known["parameters"]["eta"]
    assert told.json["beta"] == auto.runs()[-1]["beta"]


def test_tune_for_people(work: Work) -> None:
    told = work.redcal("tune", "-o", "tune.html")
    assert told.code == 0, told.err
    table = told.out.splitlines()
    assert sum(line.startswith("->") for line in table) == 1
    assert sum("auto" in line and "0.0" in line for line in table[:12]) >= 8
    assert "recommended: eta" in told.out and "--write puts it into config.yaml" in told.out
    page = Path("tune.html").read_text("utf-8")
    assert page.count("<polyline") == 6 and "filled: chosen" in page


COMMENTED = """# who wrote this
input: {table: scores.parquet, id: case, label: outcome, classes: [mild, grave, rare, none],
        model_1: a, model_2: b}
losses:
  beds: {costs: [[0, 2, 1, 0], [1, 0, 0.5, 2]]}   # euros
reconcile:
  alpha: 0.005  # a margin
  eta: 0.01     # agreed with Ada
# where to
output: {table: out/rows}
"""


def test_tune_writes_into_the_file_and_keeps_its_comments(work: Work) -> None:
    Path("mine.yaml").write_text(COMMENTED, "utf-8")
    told = work.cli("tune", "-c", "mine.yaml", "--write", "--json", "--engine", "local")
    assert told.code == 0, told.err
    chosen = told.json
    beta = "auto" if chosen["rule"] == "auto" else f"{chosen['beta']:g}"
    wanted = COMMENTED.replace(
        "eta: 0.01     # agreed with Ada\n",
        f"eta: {chosen['eta']:g}     # agreed with Ada\n  beta: {beta}\n",
    )
    assert Path("mine.yaml").read_text("utf-8") == wanted
    assert chosen["written"] == "mine.yaml"
    assert work.cli("check", "-c", "mine.yaml", "--engine", "local").code == 0


def test_tune_is_for_redcal(work: Work) -> None:
    work.tree["reconcile"] |= {"algorithm": "reconcile"}
    told = work.redcal("tune")
    assert told.code == 2 and "--set reconcile.algorithm=redcal" in told.err

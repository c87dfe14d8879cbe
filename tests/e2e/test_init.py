"""`redcal init`: a configuration that only lacks what nobody can guess."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.e2e.work import CLASSES, LOSSES, Work


def costs() -> None:
    loss = LOSSES["triage"]
    rows = [["action", *CLASSES]] + [
        [a, *map(str, r)] for a, r in zip(loss["actions"], loss["costs"], strict=True)
    ]
    Path("costs.csv").write_text("\n".join(",".join(row) for row in rows) + "\n", "utf-8")


def test_with_costs_it_runs_as_it_is(work: Work) -> None:
    costs()
    told = work.cli("init", "scores.parquet", "--costs", "costs.csv", "-o", "conf/new.yaml")
    assert told.code == 0, told.err
    assert told.out.splitlines()[-1] == "next: redcal audit -c conf/new.yaml"
    made = yaml.safe_load(Path("conf/new.yaml").read_text("utf-8"))
    wanted = {k: v for k, v in work.tree["input"].items() if k != "version"}
    assert made["input"] == wanted
    assert made["output"]["table"] == "scores_reconciled" and made["reconcile"]["eta"] == "auto"
    for command in ("check", "audit", "run"):
        told = work.cli(command, "-c", "conf/new.yaml", "--engine", "local")
        assert told.code == 0, told.err
    assert work.table("scores_reconciled").num_rows == 600


def test_without_costs_check_refuses_until_they_are_there(work: Work) -> None:
    told = work.cli("init", "scores.parquet", "--json")
    assert told.code == 0, told.err
    assert told.json["next"] == "redcal check -c conf.yaml"
    text = Path("conf.yaml").read_text("utf-8")
    assert text.count("FILL IN") == 2
    told = work.cli("check", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 2 and "losses.decision.costs[0][0]: must be a number" in told.err
    Path("conf.yaml").write_text(text.replace("null", "1", 3).replace("null", "2"), "utf-8")
    told = work.cli("check", "-c", "conf.yaml", "--engine", "local")
    assert told.code == 0, told.err


def test_a_file_that_is_there_stays(work: Work) -> None:
    Path("conf.yaml").write_text("mine", "utf-8")
    told = work.cli("init", "scores.parquet")
    assert told.code == 2 and "is there already" in told.err
    assert Path("conf.yaml").read_text("utf-8") == "mine"


def test_costs_of_other_classes_are_refused(work: Work) -> None:
    Path("costs.csv").write_text("0,1\n1,0\n", "utf-8")
    told = work.cli("init", "scores.parquet", "--costs", "costs.csv")
    assert told.code == 2 and "has 2 classes (columns), and a has 4" in told.err
    assert not Path("conf.yaml").exists()


def test_no_such_table(work: Work) -> None:
    told = work.cli("init", "nowhere.parquet")
    assert told.code == 2 and "nowhere.parquet" in told.err

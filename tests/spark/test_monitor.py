"""`redcal monitor`, `init` and `tune` on Spark: what they say is what the local engine says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import write_deltalake

from tests.e2e.test_monitor import later, weighing
from tests.e2e.work import Work, scores


@pytest.fixture
def work(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Work:
    monkeypatch.chdir(tmp_path)
    work = Work(tmp_path, capsys)
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"] |= {"eta": 0.03, "max_steps": 6}
    work.tree["engine"]["scratch"] = str(tmp_path / "scratch")
    return work


@pytest.mark.parametrize("weights", [False, True])
def test_new_rows(work: Work, weights: bool) -> None:
    first, new = scores(600), later(400, 8, 5_000)
    if weights:
        work.tree["input"] |= {"weight": "w", "weight_unit": 0.5}
        first, new = (weighing(table, np.arange(len(table)) % 4) for table in (first, new))
    write_deltalake("scores", first)
    assert work.redcal("fit").code == 3  # capped
    write_deltalake("scores", new, mode="append")
    here = work.ran("monitor", "--dry-run")
    assert here["rows"] > 300
    budget = "engine.driver_budget=0"  # jobs go over the rows
    there = work.ran("monitor", "--engine", "spark", "--set", budget)
    assert there.pop("outputs").keys() == {"out/rows_metrics"}
    assert here.pop("outputs") == {}
    assert there == here


def test_a_configuration_from_a_look(work: Work) -> None:
    write_deltalake("scores", scores(300))
    for engine in ("local", "spark"):
        told = work.cli("init", "scores", "-o", f"{engine}.yaml", "--engine", engine)
        assert told.code == 0, told.err
    assert Path("local.yaml").read_text("utf-8") == Path("spark.yaml").read_text("utf-8")


def test_the_same_candidates(work: Work) -> None:
    write_deltalake("scores", scores(600))
    work.tree["reconcile"] |= {"max_steps": 2, "max_rounds": 1}
    here = work.ran("tune")
    assert work.ran("tune", "--engine", "spark") == here

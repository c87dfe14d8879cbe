"""`redcal compare` on Spark: the same numbers as in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from tests.e2e.work import Work, scores


@pytest.mark.parametrize("budget", [2**28, pytest.param(0, marks=pytest.mark.slow)])
def test_the_same_as_in_memory(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    budget: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_deltalake("scores", scores())
    work = Work(tmp_path, capsys)
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"] |= {"eta": 0.03, "max_steps": 4}
    scratch = str(tmp_path / "scratch")
    work.tree["engine"] = {"name": "spark", "scratch": scratch, "driver_budget": budget}
    before = work.files()
    there = work.redcal("compare", "--json")
    assert there.code == 0, there.err
    assert work.files() - before <= {"config.yaml"}  # scratch is empty again, and no table is there
    here = work.redcal("compare", "--json", "--engine", "local").json["procedures"]
    assert [one["patches"] > 1 for one in here] == [True] * 4
    for one in (found := there.json["procedures"]) + here:
        assert one.pop("seconds") > 0
    assert found == here

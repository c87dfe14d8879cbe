"""How far scans, passes and writes are, while Spark works on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from redcal_spark.backends.spark import watch
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.runs.listener import Listener
from tests.e2e.work import scores
from tests.spark.test_runs import Lake, lake  # noqa: F401

FILES = 24


class Heard(Listener):
    """Keeps what a run says of its phases."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        self.totals: dict[str, int | None] = {}
        self.passes: list[tuple[str, int, int]] = []
        self._phase = ""

    def phase(self, name: str, rows: int | None = None) -> None:
        self._phase, self.rows[name], self.totals[name] = name, [], rows

    def advance(self, rows: int) -> None:
        self.rows[self._phase].append(rows)

    def passing(self, name: str, done: int, total: int) -> None:
        self.passes.append((name, done, total))


@pytest.mark.parametrize(
    ("scratch", "read"), [("files", "auto"), pytest.param("rows", "spark", marks=pytest.mark.slow)]
)
def test_a_run_says_how_far_it_is(
    lake: Lake,  # noqa: F811
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    scratch: str,
    read: str,
) -> None:
    """Rows of the scan and of apply as tasks report them, bytes of passes; all in the end."""
    from redcal_spark.backends.spark.backend import SparkBackend
    from redcal_spark.config.load import config_from_tree
    from redcal_spark.runs import start
    from redcal_spark.runs.job import Job

    monkeypatch.setattr(watch, "EVERY", 0.005)
    if scratch == "rows":
        monkeypatch.setattr(Scratch, "direct", False)
    for number in range(FILES):
        write_deltalake("many", scores(300, seed=number), mode="append")
    lake.tree["input"]["table"] = "many"
    lake.tree["reconcile"]["max_steps"] = 4
    place = str(Path("scratch").absolute())
    work = SparkBackend(spark, place, 0, read=read)  # type: ignore[arg-type]
    heard = Heard()
    outcome = start.run(Job(config_from_tree(lake.tree), work, heard))
    rows = FILES * 300
    assert outcome.row.rows == rows
    for phase in ("scan", "apply"):
        assert heard.totals[phase] == rows
        assert sum(heard.rows[phase]) == rows
        assert len([n for n in heard.rows[phase] if n]) > 1, phase  # not only at the end
    assert {"residuals", "holdout"} & {name for name, _, _ in heard.passes}
    assert all(0 <= done <= total for _, done, total in heard.passes)
    assert any(done for _, done, _ in heard.passes)
    assert os.listdir(place) == []

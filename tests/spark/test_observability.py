"""What a run on Spark counts, and how old runs are removed from its tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.store import Commit
from tests.e2e.work import Work, scores

KEPT = pa.table({"run_id": ["a", "b", "a", "it's `c`"], "x": pa.array([1, 2, 3, 4], pa.int64())})


def commit(run: str) -> Commit:
    return Commit(run, "print")


def test_rows_of_some_runs_are_deleted_in_one_commit(spark: Any, tmp_path: Path) -> None:
    store, name = SparkStore(spark), str(tmp_path / "kept")
    assert store.delete(name, "run_id", ["a"], commit("prune-0")) == 0  # no table, nothing to do
    for i in range(2):
        rows = KEPT.slice(2 * i, 2)
        store.write(name, KEPT.schema, rows.to_batches(), "append", commit(f"r{i}"))
    assert len(DeltaTable(name).file_uris()) == 2  # a file a write
    assert store.delete(name, "run_id", ["a", "it's `c`"], commit("prune-1")) == 3
    table = DeltaTable(name)
    assert table.to_pyarrow_table().to_pylist() == [{"run_id": "b", "x": 2}]
    [last] = table.history(1)
    assert last["operation"] == "DELETE"
    assert json.loads(last["userMetadata"])["redcal_run_id"] == "prune-1"
    assert store.delete(name, "run_id", ["a", "zz"], commit("prune-2")) == 0
    assert store.delete(name, "run_id", [], commit("prune-3")) == 0
    assert DeltaTable(name).version() == table.version()


@pytest.mark.slow
def test_few_files_and_names_in_the_catalog(spark: Any) -> None:
    store, name = SparkStore(spark), "default.redcal_kept"
    try:
        for i in range(KEPT.num_rows):
            row = KEPT.slice(i, 1)
            store.write(name, KEPT.schema, row.to_batches(), "append", commit(f"r{i}"))
        before, after = store.compact(name, commit("compact-1"))
        assert (before, after) == (4, 1)
        assert store.delete(name, "run_id", ["a"], commit("prune-1")) == 2
        found = store.read(name)
        assert found is not None and sorted(found["x"].to_pylist()) == [2, 4]
    finally:
        store.drop(name)


@pytest.fixture
def lake(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Work:
    monkeypatch.chdir(tmp_path)
    write_deltalake("scores", scores())
    work = Work(tmp_path, capsys)
    work.tree["input"]["table"] = "scores"
    work.tree["engine"] = {"name": "spark", "scratch": str(tmp_path / "scratch")}
    work.tree["reconcile"]["max_steps"] = 2
    return work


@pytest.mark.parametrize("budget", [pytest.param(0, marks=pytest.mark.slow), 2**28])
def test_what_a_run_counts(lake: Work, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """Every frame written to scratch or collected is a job, and the write of the rows is one."""
    lake.tree["engine"]["driver_budget"] = budget
    seen: Counter[str] = Counter()

    def watched(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            seen[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)

    watched(Scratch, "_collected")  # what tasks wrote themselves is told by the same job
    watched(SparkStore, "put_frame")
    told = lake.redcal("run", "--json", "--log-format", "json")
    assert told.code in (0, 3), told.err
    lines = [json.loads(line) for line in told.err.splitlines()]  # Spark says nothing in between
    assert {line.get("run_id") for line in lines[-3:]} == {told.json["run_id"]}

    [row] = lake.runs()
    counters = json.loads(row["counters"])
    assert counters["jobs"] == sum(seen.values())
    assert counters["rows_scanned"] == 2 * 600
    table = lake.table("out/rows_metrics").to_pylist()
    passes = sorted((r for r in table if r["kind"] == "pass"), key=lambda r: r["number"])
    names = [r["name"] for r in passes]
    assert counters["passes"] == len(passes)
    assert names[0] == "scan" and names[-2:] == ["holdout", "apply"]
    packed = 8 * 4 + 4  # two models and four classes of int32, and the label
    for made in passes[1:-2]:
        assert made["counted"] > 0 and made["value"] > 0, made
        assert abs(made["bytes"] - packed * made["counted"]) < 2_000  # but for heads of blocks
    [scan, *_, _, apply] = passes
    assert scan["counted"] == apply["counted"] == 600
    if budget:  # events come to the driver, and with them the totals of the fitting rows
        assert names[1:-2] == ["collect"] * len(names[1:-2])
        assert counters["scratch_bytes"] == scan["bytes"]
    else:
        assert {"event", "residuals"} <= set(names)
        written = sum(r["bytes"] for r in passes if r["name"] in ("scan", "event", "rewrite"))
        assert counters["scratch_bytes"] == written > scan["bytes"]


@pytest.mark.slow
def test_prune_on_spark(lake: Work) -> None:
    lake.tree["engine"] = {"name": "local"}
    lake.redcal("run")
    lake.redcal("run", "--force")
    old, new = (run["run_id"] for run in lake.runs())
    told = lake.redcal("runs", "--prune", "--keep", "1", "--compact", "--json", "--engine", "spark")
    assert told.code == 0, told.err
    assert told.json["pruned"] == [old]
    for name in ("patches", "history", "metrics"):
        found = lake.table(f"out/rows_{name}")
        assert set(found["run_id"].to_pylist()) == {new}
        assert len(lake.delta(f"out/rows_{name}").file_uris()) == 1
    assert lake.redcal("log", "--run", old).code == 2
    assert lake.redcal("log", "--run", new).code == 0

"""`redcal evaluate` on Spark: the same answer as without, whoever changed what."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.cli.results import evaluation_json
from redcal_spark.config.load import load_config
from redcal_spark.runs import start
from redcal_spark.runs.evaluation.evaluate import evaluate
from redcal_spark.runs.job import Job
from tests.e2e.work import configuration, scores, write
from tests.spark.test_runs import lake  # noqa: F401
from tests.spark.test_stream import River, river  # noqa: F401
from tests.tampering import KEYS, Tampered, change, every_change, every_column, read, tamper

SMALL = [name for name in KEYS if name != "rows_runs"]


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def job(spark: Any) -> Job:
    return Job(load_config("config.yaml"), SparkBackend(spark))


@pytest.fixture(scope="module")
def ran(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, whose tables every test copies."""
    folder = tmp_path_factory.mktemp("ran")
    with inside(folder):
        write(scores(200))
        tree = configuration()
        tree["output"]["report"] = None
        tree["engine"]["name"] = "spark"
        Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        assert start.run(job(spark)).row.status == "converged"
    return folder


def told_of(spark: Any) -> Any:
    return evaluation_json(evaluate(job(spark)))


def test_every_column_and_rows_that_come_and_go(ran: Path, spark: Any, tmp_path: Path) -> None:
    """One evaluation of many changes: each in a row of its own, of all tables but the ledger."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    done: list[Tampered] = []
    with inside(tmp_path):
        assert told_of(spark)["result"] == "ok"
        for name in SMALL:
            done += every_column("out", name)
        told = told_of(spark)
    assert told["result"] == "differs"
    assert [one for one in done if not one.named_in(told)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_every_cell_and_every_row_counts(ran: Path, spark: Any, tmp_path: Path, name: str) -> None:
    path, missed = f"out/{name}", []
    with inside(tmp_path):
        for how, column in every_change(str(ran / path), name):
            shutil.rmtree("out", ignore_errors=True)
            shutil.copytree(ran, ".", dirs_exist_ok=True)
            done = tamper(path, name, how, column, 0 if name == "rows_runs" else 7)
            told = told_of(spark)
            if told["result"] != "differs" or not done.named_in(told):
                missed.append((how, column, told["result"]))
    assert missed == []


def told_by(spark: Any, tree: Any) -> dict[str, Any]:
    """The results of an evaluation on Spark, and the findings of the rows."""
    Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
    told = told_of(spark)
    rows = [one for one in told["checked"] if one["what"] == "rows"]
    found = [(f["problem"], f["column"], f["row"]["case"]) for one in rows for f in one["findings"]]
    return {"result": told["result"], "found": sorted(found, key=str)}


def written_without_spark(tree: Any, *tables: pa.Table) -> None:
    """Runs of the embedded engine, one after another into one target."""
    for table in tables:
        write_deltalake("scores", table, mode="overwrite", schema_mode="overwrite")
        Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        start.run(Job(load_config("config.yaml"), LocalBackend(DeltaRsStore())))


def of_scores(mode: str) -> Any:
    tree = configuration("scores")
    tree["output"] |= {"report": None, "mode": mode}
    return tree


@pytest.mark.slow
def test_merged_rows_and_those_that_were_left_alone(spark: Any, tmp_path: Path) -> None:
    """Written by the embedded engine, checked by Spark."""
    with inside(tmp_path):
        tree = of_scores("merge")
        written_without_spark(tree, scores(200), scores(260, seed=9).slice(50))
        assert told_by(spark, tree) == {"result": "ok", "found": []}
        cases = read("out/rows")["case"].to_pylist()
        change("out/rows", "rows", "a_reconciled", cases.index(1255))
        change("out/rows", "rows", "note", cases.index(1007))
        assert told_by(spark, tree) == {
            "result": "differs",
            "found": [("changed", "a_reconciled", 1255), ("changed", "note", 1007)],
        }


@pytest.mark.slow
def test_appended_rows_and_an_input_that_is_gone(spark: Any, tmp_path: Path) -> None:
    with inside(tmp_path):
        tree = of_scores("append")
        written_without_spark(tree, scores(200), scores(260, seed=9).slice(50))
        assert told_by(spark, tree) == {"result": "ok", "found": []}
        runs = read("out/rows")["run_id"].to_pylist()
        last = json.loads(read("out/rows_runs").sort_by("started_at")["outputs"][1].as_py())
        assert last["out/rows"] == 1
        newest = read("out/rows_runs").sort_by("started_at")["run_id"][1].as_py()
        done = change("out/rows", "rows", "run_id", runs.index(newest))
        found = [("changed", "run_id", done.row["case"])]
        assert told_by(spark, tree) == {"result": "differs", "found": found}
        DeltaTable("out/rows").restore(1)
        write_deltalake("scores", scores(10), mode="overwrite")
        DeltaTable("scores").vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert told_by(spark, tree) == {"result": "not checkable", "found": []}
        done = change("out/rows", "rows", "beds_agree", runs.index(newest))
        found = [("changed", "beds_agree", done.row["case"])]
        assert told_by(spark, tree) == {"result": "differs", "found": found}


@pytest.mark.slow
def test_of_a_stream_the_rows_are_checked_but_not_which_they_are(
    river: River,  # noqa: F811
) -> None:
    river.arrive(river.parts[0])
    river.streamed()
    told = river.redcal("evaluate", "--json", "--model", "model.json")
    assert told.code == 3, told.err
    [rows] = [one for one in told.json["checked"] if one["what"] == "rows"]
    assert rows["findings"] == []
    assert "a stream does not record which rows it read" in rows["not_checked"][0]
    assert {one["what"]: one["result"] for one in told.json["checked"]} == {
        "rows": "not checkable", "metrics": "ok", "ledger": "ok",
    }  # fmt: skip
    done = change("out/rows", "rows", "a_reconciled", 7)
    told = river.redcal("evaluate", "--json", "--model", "model.json")
    assert told.code == 1
    assert done.named_in(told.json)

"""Whole runs on Spark: the command line over Delta tables, on whichever Spark this process has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.runs import patch_writer
from redcal_spark.runs.run import Run
from tests import backends
from tests.e2e.test_resume import MOMENTS, killed, outcome
from tests.e2e.work import Told, Work, scores
from tests.report_pages import numbers, read_page

ONLY_CLASSIC = pytest.mark.skipif(
    backends.name() != "classic", reason="the processes start sessions of their own"
)
KILLED_IN_CI = ("inside a calibration",)


class Lake(Work):
    """A folder with a Delta table of scores; paths are such that every worker sees them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        super().__init__(folder, capsys)
        self.tree["input"]["table"] = "scores"
        self.tree["engine"] = {"name": "spark", "scratch": str(folder / "scratch")}

    def ran_on(self, engine: str, *arguments: str) -> Any:
        told = self.redcal("run", "--json", "--engine", engine, *arguments)
        assert told.code == 0, told.err
        return told.json


@pytest.fixture
def lake(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Lake]:
    monkeypatch.chdir(tmp_path)
    write_deltalake("scores", scores())
    yield Lake(tmp_path, capsys)
    left = list(Path("scratch").iterdir()) if Path("scratch").exists() else []
    assert left == []  # scratch is gone, whatever happened


def logs(told: Told) -> list[Any]:
    assert told.code == 0, told.err
    return told.lines


@pytest.mark.parametrize(
    ("algorithm", "budget"),
    [
        ("redcal", 0),
        pytest.param("dc_then_redcal", 2**28, marks=pytest.mark.slow),
        pytest.param("redcal", 2**28, marks=pytest.mark.slow),
        pytest.param("dc_then_redcal", 0, marks=pytest.mark.slow),
        pytest.param("reconcile", 0, marks=pytest.mark.slow),
        pytest.param("reconcile", 2**28, marks=pytest.mark.slow),
    ],
)
def test_the_same_as_the_embedded_run(lake: Lake, algorithm: str, budget: int) -> None:
    lake.tree["reconcile"] |= {"algorithm": algorithm, "max_steps": 12}
    if algorithm == "reconcile":
        lake.tree["reconcile"] |= {"alpha": 0.2, "eta": 0.05}
    lake.tree["engine"]["driver_budget"] = budget
    told = lake.redcal("run", "--json")
    assert told.code in (0, 3), told.err
    on_spark, report = outcome(), Path(told.json["report"])
    lake.tree["output"]["table"] = "local/out/rows"
    local = lake.redcal("run", "--json", "--engine", "local")
    assert local.code == told.code
    assert on_spark == outcome("local")
    certificate = told.json["certificate"]
    assert certificate == local.json["certificate"]  # to the bit, intervals and all
    held = [c for c in certificate["checks"] if c["split"] == "holdout" and c["interval"]]
    assert {"loss_fell", "brier_decrease"} <= {c["name"] for c in held}
    one, two = (numbers(read_page(x.read_text("utf-8"))) for x in (report, "local" / report))
    assert one == two
    assert on_spark["run"]["patches"] > 0


def test_again_changed_and_back(lake: Lake) -> None:
    first = lake.ran_on("spark")
    assert lake.ran_on("spark")["unchanged"]
    assert lake.ran_on("local")["unchanged"]  # the engine is not part of what a run is
    log = logs(lake.redcal("log", "--json"))
    old = DeltaTable("out/rows").to_pyarrow_table().sort_by("case").to_pylist()

    table = scores().to_pylist()
    table[0]["outcome"] = "none" if table[0]["outcome"] != "none" else "mild"
    write_deltalake("scores", pa.Table.from_pylist(table, scores().schema), mode="overwrite")
    second = lake.ran_on("spark")
    assert second["run_id"] != first["run_id"]
    versions = [run["outputs"]["out/rows"] for run in (first, second)]
    assert versions == [0, 1]
    then = DeltaTable("out/rows", version=0).to_pyarrow_table().sort_by("case").to_pylist()
    assert then == old
    assert logs(lake.redcal("log", "--json", "--run", first["run_id"])) == log
    back = lake.ran_on("spark", "--set", "input.version=0")
    assert back["patches"] == first["patches"]
    assert DeltaTable("out/rows").to_pyarrow_table().sort_by("case").to_pylist() == old


@pytest.mark.slow
def test_an_upstream_writer_changes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass reads the version that was the newest when the run started."""
    quiet = lake.ran_on("spark")
    expected = outcome()
    lake.tree["output"]["table"] = "second/out/rows"
    scan, rows = SparkBackend.scan, SparkBackend.write_rows

    def meanwhile(original: Any) -> Any:
        def go(self: SparkBackend, *arguments: Any) -> Any:
            write_deltalake("scores", scores(70, seed=11), mode="append")
            found = original(self, *arguments)
            write_deltalake("scores", scores(30, seed=12), mode="append")
            return found

        return go

    monkeypatch.setattr(SparkBackend, "scan", meanwhile(scan))
    monkeypatch.setattr(SparkBackend, "write_rows", meanwhile(rows))
    busy = lake.ran_on("spark")
    assert busy["patches"] == quiet["patches"]
    assert outcome("second") == expected
    assert DeltaTable("scores").version() == 4


@pytest.mark.slow  # in every build a driver is killed inside a calibration
@pytest.mark.parametrize(
    "place", ["inside a calibration", "after the scan", "before the rows", "after the rows"]
)
def test_a_failure_is_resumed(lake: Lake, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    from redcal_spark.runs.patch_writer import Progress

    lake.tree["reconcile"]["eta"] = 0.05  # a few patches: every one is a commit here
    whole = lake.ran_on("spark")
    expected = outcome()
    lake.tree["output"]["table"] = "second/out/rows"
    monkeypatch.setattr(patch_writer, "EVERY", 0)
    monkeypatch.setattr(patch_writer, "SHARE", 0)
    owner, name, nth, after = {
        "after the scan": (Run, "_fit_scanned", 1, False),
        "inside a calibration": (Progress, "patch", 2, True),
        "before the rows": (SparkBackend, "write_rows", 1, False),
        "after the rows": (SparkBackend, "write_rows", 1, True),
    }[place]
    original, calls = getattr(owner, name), 0

    def fails(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and not after:
            raise OSError("struck")
        found = original(self, *arguments, **named)
        if calls == nth:
            raise OSError("struck")
        return found

    monkeypatch.setattr(owner, name, fails)
    told = lake.redcal("run", "--json")
    assert told.code == 1 and "struck" in told.err
    [row] = lake.runs()
    assert (row["status"], row["outputs"]) == ("failed", None)
    again = lake.redcal("run")
    assert again.code == 0, again.err
    assert f"continuing run {row['run_id']}" in again.err
    assert outcome("second") == expected
    assert whole["patches"] == lake.runs()[0]["patches"]
    for table in ("rows", "rows_history"):
        assert DeltaTable(f"second/out/{table}").version() == 0  # written once


@pytest.mark.slow
def test_catalog_names(spark: Any, lake: Lake) -> None:
    if "connect" in type(spark).__module__:
        names = ("redcal_connect_in", "redcal_connect_out")
    else:
        names = ("redcal_in", "redcal_out")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {names[0]}")
    try:
        source = spark.createDataFrame(scores())
        source.write.format("delta").mode("overwrite").saveAsTable(f"{names[0]}.scores")
        lake.tree["input"]["table"] = f"spark_catalog.{names[0]}.scores"
        lake.tree["output"]["table"] = f"spark_catalog.{names[0]}.rows"
        run = lake.ran_on("spark")
        assert lake.ran_on("spark")["unchanged"]
        lake.tree["input"]["table"] = "scores"
        lake.tree["output"]["table"] = "local/out/rows"
        assert lake.ran_on("local")["patches"] == run["patches"]
        there = spark.read.table(f"{names[0]}.rows").toArrow().sort_by("case").to_pylist()
        here = DeltaTable("local/out/rows").to_pyarrow_table().sort_by("case").to_pylist()
        assert there == here
    finally:
        spark.sql(f"DROP SCHEMA IF EXISTS {names[0]} CASCADE")


@pytest.mark.slow
def test_a_run_in_a_catalog_takes_two_merges(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To claim it and to end it; the history of every table that it writes is looked at once."""
    name = f"redcal_counted_{backends.name()}"
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {name}")
    texts: list[str] = []
    original = type(spark).sql

    def counted(self: Any, text: str, *given: Any, **named: Any) -> Any:
        texts.append(text)
        return original(self, text, *given, **named)

    lake.tree["output"]["table"] = f"{name}.rows"
    lake.tree["reconcile"]["eta"] = 0.03
    try:
        with monkeypatch.context() as patch:
            patch.setattr(type(spark), "sql", counted)
            patch.setattr(patch_writer, "EVERY", 1e9)  # a fit that ends before its first save
            run = lake.ran_on("spark")
        assert run["patches"] > 2
        assert sum(text.startswith("MERGE") for text in texts) == 2
        looks = [text.split()[2] for text in texts if text.startswith("DESCRIBE HISTORY")]
        tables = ("rows", "rows_history", "rows_metrics", "rows_patches")
        assert sorted(looks) == sorted(f"`{name}`.`{table}`" for table in tables)
        assert lake.ran_on("spark")["unchanged"]
        spark.sql(f"DROP TABLE {name}.rows")
        assert not lake.ran_on("spark").get("unchanged")
    finally:
        spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_a_version_that_vacuum_removed(spark: Any, lake: Lake) -> None:
    write_deltalake("scores", scores(seed=9), mode="overwrite")
    DeltaTable("scores").vacuum(0, dry_run=False, enforce_retention_duration=False)
    told = lake.redcal("run", "--set", "input.version=0")
    assert told.code == 1
    assert "scores: version 0 can no longer be read" in told.err
    assert "VACUUM" in told.err
    assert not Path("out").exists() or not any(
        json.loads(row["outputs"] or "{}") for row in lake.runs()
    )


def test_sql_is_only_ever_given_names(spark: Any, lake: Lake) -> None:
    """Values go through the DataFrame API; a hostile one is just a value."""
    lake.tree["output"]["table"] = "o'ut/ro`ws"
    run = lake.ran_on("spark")
    assert DeltaTable("o'ut/ro`ws").to_pyarrow_table().num_rows == 600
    found = SparkStore(spark).read("o'ut/ro`ws_runs", {"run_id": "x' or '1'='1"})
    assert found is not None and found.num_rows == 0
    assert run["status"] == "converged"


@ONLY_CLASSIC
@pytest.mark.parametrize(
    "moment",
    [pytest.param(m, marks=[] if m in KILLED_IN_CI else [pytest.mark.slow]) for m in MOMENTS],
)
def test_killed_and_run_again(lake: Lake, moment: str) -> None:
    lake.tree["reconcile"]["eta"] = 0.05
    lake.ran_on("local")
    expected = outcome()
    lake.tree["output"]["table"] = "second/out/rows"
    Path("config.yaml").write_text(yaml.safe_dump(lake.tree, sort_keys=False), "utf-8")
    killed(moment, "run", "-c", "config.yaml", "--engine", "spark")
    [dead] = lake.runs()
    assert (dead["status"], dead["outputs"]) == ("running", None)
    told = lake.redcal("run")
    assert told.code == 0, told.err
    assert f"continuing run {dead['run_id']}" in told.err
    assert outcome("second") == expected

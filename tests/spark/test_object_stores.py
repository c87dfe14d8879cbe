"""Spark on a real S3 server: tables of both engines, files, scratch, and two writers at once."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.object_stores import for_delta
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.store import Commit
from redcal_spark.cli import main
from redcal_spark.demo import CONFIG, SCHEMA, patients
from tests import forked
from tests.e2e import killed
from tests.e2e.work import configuration, scores, write
from tests.helpers import until
from tests.object_store import RACED, ObjectStore
from tests.object_stores.conftest import Lake
from tests.object_stores.proxy import Proxy, proxied

DEAD = "redcal_scratch_20200101000000_1_abcdef_nowhere"


@pytest.fixture(scope="module")
def s3(spark: Any, object_store: ObjectStore) -> Iterator[Proxy]:
    """The session knows the server; a bucket of it through a proxy."""
    with proxied(object_store.url) as proxy:
        settings = {
            "fs.s3a.endpoint": object_store.url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            f"fs.s3a.bucket.{RACED}.endpoint": proxy.url,
        }
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield proxy
        for key in settings:
            spark.conf.unset(key)


@pytest.fixture
def lake(
    s3: Proxy,
    object_store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Lake:
    monkeypatch.chdir(tmp_path)
    made = Lake(object_store, tmp_path.name, tmp_path, capsys)
    made.tree["engine"] = {"name": "spark", "scratch": made.at("scratch", "s3a")}
    made.put_delta(scores())
    return made


def log_of(lake: Lake) -> list[Any]:
    return lake.redcal("log", "--engine", "local", "--json").lines


def on_disk(lake: Lake) -> list[Any]:
    """The patch log of the same run of the local engine, in a folder."""
    write(scores())
    theirs, lake.tree = lake.tree, configuration()
    lake.ran()
    log = log_of(lake)
    lake.tree = theirs
    return log


@pytest.mark.parametrize("budget", ["auto", pytest.param(0, marks=pytest.mark.slow)])
def test_a_run(lake: Lake, budget: Any) -> None:
    """As on the local engine, which reads all of it; scratch is gone, that of dead runs, too."""
    lake.tree["engine"]["driver_budget"] = budget
    lake.store.put(f"{lake.root}/scratch/{DEAD}/0/part-0", b"x")
    told = lake.redcal("run", "--json", "--verbose", "--log-format", "json")
    assert told.code == 0, told.err
    first = told.json
    assert "tasks read its files themselves" in told.err
    assert lake.names("scratch/") == [], told.err
    assert first["report"] == lake.at("out/rows_report.html") and lake.names("out/rows_report")
    assert lake.ran()["run_id"] == first["run_id"]
    assert lake.ran("run", "--engine", "local")["run_id"] == first["run_id"]
    assert lake.rows("out/rows").num_rows == 600
    assert lake.redcal("evaluate", "--engine", "local").code == 0
    assert log_of(lake) == on_disk(lake)


@pytest.mark.slow
def test_spark_evaluates_what_the_local_engine_wrote(lake: Lake) -> None:
    first = lake.ran("run", "--engine", "local")
    assert lake.ran()["run_id"] == first["run_id"]
    assert lake.redcal("evaluate").code == 0
    for command in (
        ["runs", "--compact"],
        ["runs", "--prune", "--keep", "1"],
        ["export", "-o", "model.json"],
        ["apply", "--model", "model.json"],
        ["evaluate"],
    ):
        told = lake.redcal(*command)
        assert told.code == 0, (command, told.err)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files(lake: Lake, kind: str) -> None:
    table = scores()
    if kind == "csv":
        for number, model in enumerate(("a", "b"), 1):
            columns = [f"{model}{k}" for k in range(4)]
            for k, name in enumerate(columns):
                table = table.append_column(name, pa.compute.list_element(table[model], k))
            lake.tree["input"][f"model_{number}"] = columns
        lake.put_csv(table.drop_columns(["a", "b"]), "rows.csv")
        lake.tree["input"]["table"] = lake.at("rows.csv")
    else:
        for fold in ("train", "test", "later"):
            part = table.filter(pa.compute.equal(table["fold"], fold)).drop_columns(["fold"])
            lake.put_parquet(part, f"rows/fold={fold}/part.parquet")
        lake.tree["input"]["table"] = lake.at("rows")
    first = lake.ran()
    assert lake.ran("run", "--engine", "local")["run_id"] == first["run_id"]
    assert log_of(lake) == on_disk(lake)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_stream(lake: Lake, mode: str) -> None:
    lake.tree["output"]["mode"] = mode
    lake.tree["input"]["id"] = "case"
    lake.ran("fit")
    assert lake.ran("apply", "--incremental")["rows"] == 600
    more = scores(700).slice(600)
    write_deltalake(lake.at("scores"), more, mode="append", storage_options=lake.options())
    assert lake.ran("apply", "--incremental")["rows"] == 100
    assert lake.rows("out/rows").num_rows == 700
    assert any(name.startswith("out/rows_checkpoint/state/") for name in lake.names("out/"))
    assert lake.rows("out/rows_turns").num_rows == 0


def test_tables_of_runs(spark: Any, lake: Lake) -> None:
    """delta-rs commits them; a table that is dropped is gone."""
    store = SparkStore(spark, lake.store.options)
    name = lake.at("scores", "s3a")
    assert store.loses_commits(name) and store.quick(name) is not None
    assert not store.loses_commits("/tmp/scores") and not store.loses_commits("gs://lake/scores")
    assert store.exists(name)
    store.drop(name)
    assert not store.exists(name) and lake.names("scores") == []
    spark.conf.set("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    try:
        assert not store.loses_commits(name) and store.quick(name) is None
    finally:
        spark.conf.unset("spark.delta.logStore.s3a.impl")


def test_a_store_that_only_spark_reaches(lake: Lake) -> None:
    """Claims would go through a log that loses commits: refused, with the way out."""
    lake.tree["storage_options"]["AWS_SECRET_ACCESS_KEY"] = "of someone else"
    told = lake.redcal("check")
    assert told.code == 2
    assert "output.runs" in told.err and "it cannot reach them: give it credentials" in told.err
    assert "of someone else" not in told.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["inside a calibration", "write of the rows", "before the ledger's last write"]
)
def test_killed_and_run_again(lake: Lake, moment: str) -> None:
    """A process with a session of its own, which finds jars and server by the configuration."""
    lake.tree["engine"]["lease"] = 5
    Path("config.yaml").write_text(yaml.safe_dump(lake.tree, sort_keys=False), "utf-8")
    process = forked.call(killed.run, moment, "run", "-c", "config.yaml", "--engine", "spark")
    code, _, err = process.ended()
    assert code == -signal.SIGKILL, err
    assert lake.redcal("run", "--json").code == 0
    assert lake.names("scratch/") == []
    assert lake.redcal("evaluate", "--engine", "local").code == 0
    assert log_of(lake) == on_disk(lake)
    assert lake.rows("out/rows_turns").num_rows == 0


@pytest.mark.slow
def test_the_demo(lake: Lake) -> None:
    """Its patients and its configuration: the log of the local engine on disk."""
    store = DeltaRsStore(lake.store.options)
    engine, storage = lake.tree["engine"], lake.tree["storage_options"]
    logs = []
    for place, given in ((lake.at(""), {"engine": engine, "storage_options": storage}), ("", {})):
        store.write(f"{place}demo", SCHEMA, patients(20_000), "overwrite", Commit("demo", "f"))
        lake.tree = yaml.safe_load(CONFIG) | given
        lake.tree["input"]["table"] = f"{place}demo"
        lake.tree["output"]["table"] = f"{place}demo_out"
        lake.ran("run", *([] if given else ["--engine", "local"]))
        logs.append(log_of(lake))
    assert logs[0] == logs[1] and len(logs[0]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_sick_server(s3: Proxy, lake: Lake, seed: int) -> None:
    """Retried, or told: whatever happens, a run on a healthy server ends as if nothing had."""
    expected = on_disk(lake)
    write_deltalake(raced(lake, "scores"), scores(), storage_options=lake.options())
    lake.tree["input"]["table"] = raced(lake, "scores")
    lake.tree["output"]["table"] = raced(lake, "out/rows")
    lake.tree["engine"]["scratch"] = raced(lake, "scratch")
    calm = lake.tree["storage_options"]
    lake.tree["storage_options"] = calm | {"AWS_ENDPOINT_URL": s3.url, "TIMEOUT": 1}
    before = len(s3.struck())
    s3.at_random(seed, 0.03)
    try:
        told = lake.redcal("run", "--json")
    finally:
        s3.at_random(seed, 0)
    assert len(s3.struck()) > before
    if told.code != 0:
        assert told.code in (1, 2) and RACED in told.err, told.err
        assert "unexpected" not in told.err and "Traceback" not in told.err, told.err
    lake.tree["storage_options"] = calm
    again = lake.redcal("run", "--json")
    assert again.code == 0, again.err
    assert lake.redcal("evaluate", "--engine", "local").code == 0
    assert log_of(lake) == expected


# --- two writers ----------------------------------------------------------------------------------


def raced(lake: Lake, name: str) -> str:
    return f"s3://{RACED}/{lake.root}/{name}"


def test_spark_commits_without_a_condition(spark: Any, s3: Proxy, lake: Lake) -> None:
    """Why runs take turns. If this fails, Delta has mended it: then turns can go."""
    name, options = raced(lake, "t"), for_delta("s3://x", lake.store.options)
    write_deltalake(name, pa.table({"n": [0]}), storage_options=options)
    s3.strike("hold", "PUT", "t/_delta_log/00000000000000000001.json")
    frame = spark.createDataFrame([(1,)], "n bigint")
    place = name.replace("s3://", "s3a://")
    append = threading.Thread(target=lambda: frame.write.format("delta").mode("append").save(place))
    append.start()
    until(lambda: s3.struck() and s3.struck()[-1][0] == "hold")
    write_deltalake(name, pa.table({"n": [2]}), mode="append", storage_options=options)
    s3.release()
    append.join()
    rows = DeltaRsStore(lake.store.options).read(name)
    assert rows is not None and sorted(rows["n"].to_pylist()) == [0, 1]  # 2 was committed, too


@pytest.mark.slow
def test_runs_on_one_target_take_turns(s3: Proxy, lake: Lake) -> None:
    """One of Spark is held in its commit; another one, of the local engine, waits for it.

    They have ledgers of their own, so that nothing but the claim on the target keeps them apart.
    """
    lake.tree["output"] = {"table": raced(lake, "out/rows"), "runs": lake.at("one_runs")}
    lake.tree["output"] |= {kind: lake.at(f"one_{kind}") for kind in ("patches", "history")}
    lake.ran("run", "--engine", "local")
    other = json.loads(json.dumps(lake.tree))
    other["output"] |= {kind: lake.at(f"two_{kind}") for kind in ("runs", "patches", "history")}
    other["output"]["metrics"] = lake.at("two_metrics")
    other["reconcile"]["eta"] = 0.03
    other["engine"] = {"name": "local"}
    Path("other.yaml").write_text(yaml.safe_dump(other, sort_keys=False), "utf-8")
    before = len(s3.struck())
    s3.strike("hold", "PUT", "out/rows/_delta_log/00000000000000000001.json")
    started: list[Any] = []

    def overtake() -> None:
        until(lambda: len(s3.struck()) > before)
        started.append(forked.call(main, ("run", "-c", "other.yaml")))
        time.sleep(4)
        started.append(started[0].process.is_alive())
        s3.release()

    watcher = threading.Thread(target=overtake)
    watcher.start()
    lake.ran("run", "--set", "reconcile.eta=0.02")
    watcher.join()
    code, _, err = started[0].ended()
    assert code == 0, err
    assert started[1], "the other one did not wait"
    store = DeltaRsStore(lake.store.options)
    entries = store.history(raced(lake, "out/rows")) or []
    said = {json.loads(entry["userMetadata"])["redcal_run_id"] for entry in entries}
    assert [entry["version"] for entry in entries] == [2, 1, 0] and len(said) == 3
    turns = store.read(raced(lake, "out/rows_turns"))
    assert turns is not None and turns.num_rows == 0


@pytest.mark.slow
def test_one_run_on_both_engines_at_once(lake: Lake) -> None:
    """One does it, the other one waits and finds it done."""
    Path("config.yaml").write_text(yaml.safe_dump(lake.tree, sort_keys=False), "utf-8")
    other = forked.call(main, ("run", "-c", "config.yaml", "--engine", "local", "--wait"))
    told = lake.redcal("run", "--wait")
    code, _, err = other.ended()
    assert (told.code, code) == (0, 0), told.err + err
    assert [run["status"] for run in lake.runs()] == ["converged"]
    entries = DeltaRsStore(lake.store.options).history(lake.at("out/rows")) or []
    assert len(entries) == 1
    assert lake.redcal("evaluate", "--engine", "local").code == 0
    assert log_of(lake) == on_disk(lake)

"""The local engine on a real S3 server: as on folders of this machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit, Mode
from redcal_spark.demo import CONFIG, SCHEMA, patients
from tests.e2e.work import configuration, scores, write
from tests.object_stores.conftest import Lake
from tests.object_stores.proxy import proxied


def patches(lake: Lake) -> list[Any]:
    return lake.redcal("log", "--json").lines


def as_on_disk(lake: Lake) -> list[Any]:
    """The patch log of the same run in a folder."""
    write(scores())
    theirs, lake.tree = lake.tree, configuration()
    lake.ran()
    log = patches(lake)
    lake.tree = theirs
    return log


def test_a_run_and_its_tables(lake: Lake) -> None:
    first = lake.ran()
    assert first["status"] == "converged"
    assert {name.split("/")[1] for name in lake.names("out/")} == {
        "rows",
        "rows_patches",
        "rows_history",
        "rows_metrics",
        "rows_runs",
        "rows_report.html",
        "rows_turns",
    }
    assert first["report"] == lake.at("out/rows_report.html")
    assert lake.ran()["run_id"] == first["run_id"]
    rows = lake.rows("out/rows")
    assert rows.num_rows == 600 and "a_reconciled" in rows.column_names
    assert patches(lake) == as_on_disk(lake)
    assert not [name for name in lake.folder.iterdir() if ":" in name.name]  # no folder s3:


def test_a_store_behind_a_proxy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the proxy knows the store's name; delta-rs and pyarrow both go through it."""
    server = lake.store.options["AWS_ENDPOINT_URL"]
    lake.tree["storage_options"]["AWS_ENDPOINT_URL"] = "http://store.example:7391"
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with proxied(server) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert lake.ran()["status"] == "converged"
    with monkeypatch.context() as straight:
        straight.delenv("http_proxy")
        assert lake.rows("out/rows").num_rows == 600


@pytest.mark.slow
def test_all_commands(lake: Lake) -> None:
    lake.ran()
    for command in (
        ["check"],
        ["audit"],
        ["evaluate"],
        ["explain", "--id", "1005"],
        ["runs"],
        ["runs", "--compact"],
        ["runs", "--prune", "--keep", "1"],
        ["report"],
        ["report", "-o", lake.at("elsewhere/page.html")],
        ["export", "-o", "model.json"],
        ["apply", "--model", "model.json"],
        ["evaluate"],
    ):
        told = lake.redcal(*command)
        assert told.code == 0, (command, told.err)
    assert lake.names("elsewhere") == ["elsewhere/page.html"]
    told = lake.redcal("export", "-o", lake.at("model.json"))
    assert told.code == 2 and "must be a file of this machine" in told.err


@pytest.mark.slow
def test_one_table_under_both_names(lake: Lake) -> None:
    first = lake.ran()
    lake.tree["input"]["table"] = lake.at("scores", "s3a")
    lake.tree["output"]["table"] = lake.at("out/rows", "s3a")
    assert lake.ran()["run_id"] == first["run_id"]
    assert lake.redcal("evaluate").code == 0
    lake.tree["output"]["table"] = lake.at("scores")
    told = lake.redcal("run")
    assert told.code == 2 and "is the same table as input.table" in told.err


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "kind",
    ["folder", "csv", *(pytest.param(k, marks=pytest.mark.slow) for k in ("parquet", "packed"))],
)
def test_files(lake: Lake, kind: str) -> None:
    table = scores()
    if kind in ("csv", "packed"):  # one column a class
        for model in ("a", "b"):
            columns = [f"{model}{k}" for k in range(4)]
            for k, name in enumerate(columns):
                table = table.append_column(name, pa.compute.list_element(table[model], k))
            lake.tree["input"][f"model_{(model == 'b' and 2) or 1}"] = columns
        table = table.drop_columns(["a", "b"])
    if kind == "parquet":
        lake.put_parquet(table, "rows.parquet")
        lake.tree["input"]["table"] = lake.at("rows.parquet")
    elif kind == "folder":
        for fold in ("train", "test", "later"):
            mask = pa.compute.equal(table["fold"], fold)
            part = table.filter(mask).drop_columns(["fold"])
            lake.put_parquet(part, f"rows/fold={fold}/part.parquet")
        lake.store.put(f"{lake.root}/rows/_SUCCESS", b"")
        lake.tree["input"]["table"] = lake.at("rows")
    elif kind == "csv":
        lake.put_csv(table, "rows.csv")
        lake.tree["input"]["table"] = lake.at("rows.csv")
    else:
        pa.csv.write_csv(table, "rows.csv")
        lake.store.put(f"{lake.root}/rows.csv.gz", gzip.compress(Path("rows.csv").read_bytes()))
        lake.tree["input"]["table"] = lake.at("rows.csv.gz")
    first = lake.ran()
    assert lake.ran()["run_id"] == first["run_id"]
    assert patches(lake) == as_on_disk(lake)


@pytest.mark.slow
def test_a_changed_object_is_noticed(lake: Lake) -> None:
    """Of the same size, perhaps in the same second: times would tell nothing."""
    table = scores()
    lake.put_parquet(table, "rows.parquet")
    lake.tree["input"]["table"] = lake.at("rows.parquet")
    first = lake.ran()
    [identity] = [json.loads(run["inputs"]) for run in lake.runs()]
    notes = pa.array([f"N{i}" for i in range(600)])
    lake.put_parquet(table.set_column(3, "note", notes), "rows.parquet")
    second = lake.ran()
    assert second["run_id"] != first["run_id"]
    changed = json.loads(lake.runs()[-1]["inputs"])
    [before], [after] = identity["files"], changed["files"]
    assert before[:2] == after[:2] and before[2] != after[2]
    assert before[2].startswith("etag:")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", pytest.param("merge", marks=pytest.mark.slow)])
def test_rows_into_a_table_that_is_there(lake: Lake, mode: str) -> None:
    lake.tree["output"]["mode"] = mode
    lake.tree["input"]["id"] = "case"
    lake.ran()
    lake.tree["reconcile"]["eta"] = 0.05
    lake.ran()
    expected = {"append": 1_200, "merge": 600}[mode]
    assert lake.rows("out/rows").num_rows == expected
    assert lake.redcal("evaluate").code == 0


def test_a_new_table_that_another_made_meanwhile(lake: Lake) -> None:
    """The first commit is conditional: the loser's rows are the next version, and no row is lost.

    Tried again by delta-rs itself an overwrite would keep the rows of both.
    """
    store, commit = DeltaRsStore(lake.store.options), Commit("ours", "f")
    table = pa.table({"a": [1, 2]})
    other = pa.table({"a": [3]})

    modes: dict[Mode, list[int]] = {"append": [1, 2, 3], "overwrite": [1, 2]}
    for mode, expected in modes.items():
        name, racing = f"t_{mode}", True

        def is_delta(place: Any, of: Any = None, name: str = name) -> bool:
            nonlocal racing
            if racing and place.name == lake.at(name):
                racing = False
                lake.put_delta(other, name)
                return False
            return bool(DeltaTable.is_deltatable(place.uri, place.delta))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("redcal_spark.backends.local.store.is_delta", is_delta)
            assert store.write(lake.at(name), table.schema, table.to_batches(), mode, commit) == 1
        assert sorted(lake.rows(name)["a"].to_pylist()) == expected


@pytest.mark.slow
def test_the_demo(lake: Lake) -> None:
    """Its patients and its configuration, as on disk."""
    store = DeltaRsStore(lake.store.options)
    store.write(lake.at("demo"), SCHEMA, patients(20_000), "overwrite", Commit("demo", "f"))
    lake.tree = yaml.safe_load(CONFIG)
    lake.tree["input"]["table"] = lake.at("demo")
    lake.tree["output"]["table"] = lake.at("demo_out")
    lake.tree["storage_options"] = dict(lake.store.options)
    lake.ran("run", "--engine", "local")
    there = patches(lake)
    store.write("demo", SCHEMA, patients(20_000), "overwrite", Commit("demo", "f"))
    lake.tree["input"]["table"], lake.tree["output"]["table"] = "demo", "demo_out"
    lake.ran("run", "--engine", "local")
    assert there == patches(lake) and len(there) > 1


def test_drop(lake: Lake) -> None:
    store = DeltaRsStore(lake.store.options)
    assert store.exists(lake.at("scores"))
    store.drop(lake.at("scores"))
    assert not store.exists(lake.at("scores")) and lake.names("scores") == []
    store.drop(lake.at("scores"))  # once more does no harm


# --- what is refused, and in which words ----------------------------------------------------------


def test_what_is_not_there(lake: Lake) -> None:
    def err(*arguments: str) -> str:
        told = lake.redcal(*arguments)
        assert told.code in (1, 2)
        return told.err

    told = err("check", "--set", f"input.table={lake.at('nothing')}")
    assert f"{lake.at('nothing')}: no such file or folder; {lake.at('')[:-1]} has " in told
    assert "scores" in told.partition(" has ")[2]
    told = err("check", "--set", "output.table=s3://no-such-bucket/rows")
    assert "output.table: s3://no-such-bucket/rows cannot be made: no s3://no-such-bucket" in told
    told = err("check", "--set", "output.table=s3://")
    assert "names no bucket" in told
    told = err("check", "--set", "output.table=abfss://container/rows")
    assert "abfss://CONTAINER@ACCOUNT" in told
    lake.store.put(f"{lake.root}/full/of/things", b"x")
    told = err("check", "--set", f"output.table={lake.at('full/of')}")
    assert "is a folder with other things in it" in told
    told = err("check", "--set", f"output.table={lake.at('full/of/things')}")
    assert "is a file; a table is a folder" in told


def test_a_store_that_refuses(lake: Lake) -> None:
    """A ledger that cannot be read is not one that is empty."""
    lake.ran()
    wrong = ["--set", "storage_options.AWS_SECRET_ACCESS_KEY=another-secret"]
    for command in ("run", "runs", "log", "evaluate", "report"):
        told = lake.redcal(command, *wrong)
        assert told.code in (1, 2), command
        assert "403" in told.err or "denied" in told.err.lower() or "signature" in told.err.lower()
        assert "another-secret" not in told.err
        assert "are the key, its secret and its rights right?" in told.err


def test_options_that_are_wrong(lake: Lake) -> None:
    told = lake.redcal("check", "--set", "storage_options.AWS_REGOIN=x")
    assert "storage_options.AWS_REGOIN: unknown key; did you mean 'AWS_REGION'?" in told.err
    told = lake.redcal("check", "--set", "storage_options.AWS_ENDPOINT_URL=localhost:9000")
    assert "AWS_ENDPOINT_URL: must begin with http:// or https://" in told.err
    told = lake.redcal("check", "--set", "storage_options.AWS_REGION=eu-central-1")
    assert told.code == 2 and "; is AWS_REGION right?" in told.err
    told = lake.redcal("check", "--set", "input.table=s3://lagoon/scores")
    assert "s3://lagoon/scores: no such file or folder; there is no s3://lagoon" in told.err
    told = lake.redcal("check", "--set", "storage_options.AWS_SECRET_ACCESS_KEY=12345678901")
    assert "must be text" in told.err and "12345678901" not in told.err

"""A server that is slow, refuses, resets, loses answers or dies; processes that are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.names import MAKING
from redcal_spark.backends.store import Commit
from redcal_spark.cli import main
from redcal_spark.errors import RunError
from tests import forked
from tests.e2e import killed
from tests.e2e.work import scores
from tests.helpers import until
from tests.object_stores.conftest import Lake
from tests.object_stores.proxy import SICK, Fault, proxied

MOMENTS = [
    "claim",
    "scan",
    "first patch",
    "inside a calibration",
    "write of the patches",
    "write of the history",
    "write of the metrics",
    "before the rows",
    "write of the rows",
    "after the rows",
    "before the ledger's last write",
    "after the ledger's last write",
]
FEW = pa.table({"n": [1, 2, 3]})


def save(lake: Lake) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(lake.tree, sort_keys=False), "utf-8")


def sound(lake: Lake) -> list[Any]:
    """All tables agree with each other, and nothing is there twice; the patch log."""
    told = lake.redcal("evaluate", "--json")
    assert told.code == 0, told.out + told.err
    assert lake.rows("out/rows").num_rows == 600
    log = lake.redcal("log", "--json").lines
    runs = [run["run_id"] for run in lake.runs() if run["status"] == "converged"]
    steps = Counter((r["run_id"], r["step"]) for r in lake.rows("out/rows_patches").to_pylist())
    assert {key: n for key, n in steps.items() if key[0] == runs[-1]} == {
        (runs[-1], step): 1 for step in range(len(log))
    }
    keys = [
        (r["run_id"], r["split"], r["round"], r["step"], r["loss"], r["model"])
        for r in lake.rows("out/rows_history").to_pylist()
    ]
    assert len(keys) == len(set(keys))
    return log


@pytest.fixture
def expected(lake: Lake) -> list[Any]:
    """The patch log of a run that nothing happened to."""
    lake.ran("run", "--set", f"output.table={lake.at('calm/rows')}")
    return lake.redcal("log", "--set", f"output.table={lake.at('calm/rows')}", "--json").lines


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_run_again(lake: Lake, expected: list[Any], moment: str) -> None:
    save(lake)
    code, _, _ = forked.call(killed.run, moment, "run", "-c", "config.yaml").ended()
    assert code == -signal.SIGKILL
    told = lake.redcal("run", "--json")
    assert told.code == 0, told.err
    assert sound(lake) == expected
    assert lake.rows("out/rows_turns").num_rows == 0


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "table",
    ["rows", *(pytest.param(f"rows{t}", marks=SLOW) for t in ("_runs", "_patches", "_metrics"))],
)
def test_killed_before_the_first_commit_of_a_table(
    lake: Lake, expected: list[Any], table: str
) -> None:
    """Its files are there, and no log: they are not taken for somebody else's."""
    with proxied(lake.store.url) as proxy:
        calm = dict(lake.tree["storage_options"])
        lake.tree["storage_options"] |= {"AWS_ENDPOINT_URL": proxy.url}
        save(lake)
        proxy.strike("hold", "PUT", f"out/{table}/_delta_log/0")
        run = forked.call(main, ("run", "-c", "config.yaml"))
        until(lambda: bool(proxy.struck()))
        assert run.process.pid is not None
        os.kill(run.process.pid, signal.SIGKILL)
        assert run.ended()[0] == -signal.SIGKILL
    assert any(name.endswith(".parquet") for name in lake.names(f"out/{table}/"))
    assert not lake.names(f"out/{table}/_delta_log/")
    lake.tree["storage_options"] = calm
    told = lake.redcal("run", "--json")
    assert told.code == 0, told.err
    assert sound(lake) == expected
    assert not [name for name in lake.names("out/") if MAKING in name]


def test_files_of_somebody_else_are_not_written_between(lake: Lake) -> None:
    lake.put_parquet(FEW, "out/rows/part-0.parquet")
    told = lake.redcal("run")
    assert told.code == 2
    assert "is a folder with other things in it, not a Delta table" in told.err


def test_a_folder_of_tables_is_no_table(lake: Lake) -> None:
    lake.put_delta(FEW, "gold/numbers")
    told = lake.redcal("check", "--set", f"input.table={lake.at('gold')}")
    assert told.code == 2
    assert "gold: holds Delta tables, such as numbers: name the one that is meant" in told.err


@pytest.mark.slow
def test_two_at_once(lake: Lake, expected: list[Any]) -> None:
    """The same run: one does it, the other one waits. Other runs: both write, one by one."""
    save(lake)
    same = [("run", "-c", "config.yaml", "--wait")] * 2
    others = [("run", "-c", "config.yaml", "--set", "output.runs=" + lake.at(to)) for to in "op"]
    for commands, written in ((same, 1), (others, 3)):
        for process in [forked.call(main, command) for command in commands]:
            code, _, err = process.ended()
            assert code == 0, err
        assert [run["status"] for run in lake.runs()] == ["converged"]
        wrote = DeltaRsStore(lake.store.options).history(lake.at("out/rows")) or []
        assert len(wrote) == len({entry["userMetadata"] for entry in wrote}) == written
        if commands is same:  # later there are rows of runs that this ledger does not know
            assert sound(lake) == expected


def append(options: dict[str, str], name: str, process: int, times: int) -> int:
    """A process that appends a row a time."""
    store = DeltaRsStore(options)
    for time in range(times):
        row = pa.table({"process": [process], "time": [time]})
        commit = Commit(f"{process}-{time}", "f")
        store.write(name, row.schema, row.to_batches(), "append", commit)
    return 0


@pytest.mark.slow
def test_racing_commits(lake: Lake) -> None:
    """None is lost, from the first one on, which makes the table."""
    given = dict(lake.store.options), lake.at("raced")
    racing = [forked.call(append, *given, process, 30) for process in range(4)]
    assert [each.ended()[0] for each in racing] == [0] * 4
    rows = lake.rows("raced").to_pylist()
    assert len(rows) == len({(row["process"], row["time"]) for row in rows}) == 120
    entries = DeltaRsStore(lake.store.options).history(lake.at("raced")) or []
    assert [entry["version"] for entry in entries] == list(reversed(range(120)))


@pytest.mark.parametrize(
    "fault", ["lost", *(pytest.param(f, marks=pytest.mark.slow) for f in SICK if f != "lost")]
)
def test_a_commit_that_something_happens_to(lake: Lake, fault: Fault) -> None:
    """Once each; that of a lost answer, too, which was made before it was tried again."""
    store = lake.store
    with proxied(store.url) as proxy:
        options = store.options | {"AWS_ENDPOINT_URL": proxy.url, "TIMEOUT": "1"}
        writer, name = DeltaRsStore(options), lake.at("t")
        writer.write(name, FEW.schema, FEW.to_batches(), "append", Commit("first", "f"))
        # a commit that got no answer in time is told of: nobody knows whether it was made
        told = pytest.raises(RunError) if fault == "silent" else nullcontext()
        proxy.strike(fault, "PUT", "t/_delta_log/0")
        with told:
            writer.write(name, FEW.schema, FEW.to_batches(), "append", Commit("second", "f"))
        if fault == "silent":
            writer.write(name, FEW.schema, FEW.to_batches(), "append", Commit("second", "f"))
        proxy.strike(fault, "PUT", "t/_delta_log/0")
        more = pa.table({"n": [3, 4]})
        with told:
            writer.merge(name, more, {"n": "n"}, Commit("third", "f"))
        writer.merge(name, more, {"n": "n"}, Commit("third", "f"))  # again does no harm
        assert [each[:2] for each in proxy.struck()] == [[fault, "PUT"]] * 2
    assert sorted(lake.rows("t")["n"].to_pylist()) == [1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.slow
def test_a_sick_server(lake: Lake, expected: list[Any], seed: int) -> None:
    """Retried, or told: whatever happens, a run on a healthy server ends as if nothing had."""
    with proxied(lake.store.url) as proxy:
        proxy.at_random(seed, 0.04)
        sick = {"AWS_ENDPOINT_URL": proxy.url, "TIMEOUT": 1}
        lake.tree["storage_options"] |= sick
        told = lake.redcal("run", "--json")
        assert proxy.struck()
        if told.code != 0:
            assert told.code in (1, 2) and "s3://lake/" in told.err, told.err
            assert "unexpected" not in told.err, told.err
    lake.tree["storage_options"] = dict(lake.store.options)
    told = lake.redcal("run", "--json")
    assert told.code == 0, told.err
    assert sound(lake) == expected


@pytest.mark.slow
def test_a_server_that_is_gone(lake: Lake) -> None:
    lake.tree["storage_options"] |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "TIMEOUT": 1}
    told = lake.redcal("run")
    assert told.code == 1 and "scores: cannot be read" in told.err  # worth another try
    assert "is AWS_ENDPOINT_URL right? If it is, the store is down: try again" in told.err
    assert "unexpected" not in told.err and "Traceback" not in told.err


@pytest.mark.slow
def test_processes_end_in_peace(lake: Lake) -> None:
    """A thread of pyarrow's must not be at work when the interpreter shuts down."""
    save(lake)
    lake.put_delta(scores(), "more")
    for _ in range(20):
        code, _, err = forked.call(main, ("audit", "-c", "config.yaml")).ended()
        assert code == 0, err

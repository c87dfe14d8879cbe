"""Runs that die and go on: the tables and the log are those of a run that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.runs import patch_writer
from redcal_spark.runs.patch_writer import Progress
from tests import forked
from tests.e2e.killed import run
from tests.e2e.work import Work, scores

MOMENTS = (
    "claim",
    "scan",
    "after the scan",
    "first patch",
    "inside a calibration",
    "between rounds",
    "write of the patches",
    "after the patches",
    "write of the history",
    "write of the rows",
    "before the rows",
    "after the rows",
    "after the rows, before the metrics",
    "write of the metrics",
    "before the ledger's last write",
)
# A moment of each kind: a claim, a pass, a patch, inside a write and after it.
QUICK = {
    "claim",
    "after the scan",
    "inside a calibration",
    "write of the patches",
    "write of the rows",
    "after the rows, before the metrics",
    "before the ledger's last write",
}


def killed(moment: str, *arguments: str) -> None:
    """Run `redcal` in a process of its own and see it die."""
    code, out, err = forked.call(run, moment, *arguments).ended()
    assert code == -signal.SIGKILL, f"{moment}: {out}\n{err}"


def outcome(folder: str = ".") -> dict[str, Any]:
    """All that a run leaves, without names, times, timings and what is the engine's own."""
    found = {
        name: DeltaTable(f"{folder}/out/{name}").to_pyarrow_table()
        for name in ("rows", "rows_patches", "rows_history", "rows_metrics", "rows_runs")
    }
    order = [("split", "ascending"), ("step", "ascending"), ("model", "ascending")]
    history = found["rows_history"].drop_columns(["run_id"])
    last = found["rows_runs"].sort_by("started_at").to_pylist()[-1]
    told = ("status", "rows", "fit_rows", "holdout_rows", "patches", "rounds", "model", "metrics")
    return {
        "rows": found["rows"].sort_by("case").to_pylist(),
        "patches": found["rows_patches"].drop_columns(["run_id"]).sort_by("step").to_pylist(),
        "history": history.sort_by([*order, ("loss", "ascending")]).to_pylist(),
        "metrics": sorted(numbers(found["rows_metrics"]), key=str),
        "run": {name: last[name] for name in told},
    }


def numbers(metrics: pa.Table) -> list[dict[str, Any]]:
    """What a run achieved and how much it was, but not how long it took and where."""
    own = ("jobs", "scratch_bytes", "passes")
    rows = metrics.drop_columns(["run_id", "measured_at"]).to_pylist()
    return [r for r in rows if r["kind"] in ("count", "quality") and r["name"] not in own]


@pytest.fixture
def delta(work: Work) -> Work:
    write_deltalake("scores", scores())
    work.tree["input"]["table"] = "scores"
    return work


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What undisturbed runs leave, by algorithm."""
    return {}


def undisturbed(
    work: Work, algorithm: str, known: dict[str, dict[str, Any]], folder: Path
) -> dict[str, Any]:
    if algorithm not in known:
        here = os.getcwd()
        os.chdir(folder)
        write_deltalake("scores", scores())
        work.ran()
        os.chdir(here)
        known[algorithm] = outcome(str(folder))
    return known[algorithm]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "moment", [pytest.param(m, marks=() if m in QUICK else pytest.mark.slow) for m in MOMENTS]
)
@pytest.mark.parametrize(
    "algorithm", ["redcal", pytest.param("dc_then_redcal", marks=pytest.mark.slow)]
)
def test_killed_and_run_again(
    delta: Work,
    algorithm: str,
    moment: str,
    expected: dict[str, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    delta.tree["reconcile"] |= {"algorithm": algorithm, "eta": 0.03}  # some ten patches
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    whole = undisturbed(delta, algorithm, expected, tmp_path_factory.mktemp("undisturbed"))

    killed(moment, "run", "-c", "config.yaml")
    [dead] = delta.runs()
    assert dead["status"] == "running" and dead["outputs"] is None  # nothing vouches for tables
    told = delta.redcal("run")
    assert told.code == 0, told.err
    assert f"continuing run {dead['run_id']}" in told.err
    [row] = delta.runs()
    assert row["run_id"] == dead["run_id"]
    assert outcome() == whole
    metrics = delta.table("out/rows_metrics").sort_by("number").to_pylist()
    assert len({r["measured_at"] for r in metrics}) == 1  # one write
    made = {r["name"]: r["counted"] for r in metrics if r["kind"] == "pass"}
    assert list(made) == ["scan", "holdout", "apply"] and made["scan"] == made["apply"] == 600
    assert not [p for p in Path("out").iterdir() if p.name.endswith(".partial")]
    assert delta.ran()["unchanged"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "moment"),
    [
        ("merge", "write of the rows"),
        pytest.param("append", "after the rows", marks=pytest.mark.slow),
        pytest.param("merge", "before the rows", marks=pytest.mark.slow),
        pytest.param("merge", "after the rows", marks=pytest.mark.slow),
        pytest.param("append", "before the rows", marks=pytest.mark.slow),
        pytest.param("append", "write of the rows", marks=pytest.mark.slow),
    ],
)
def test_killed_while_rows_join_others(delta: Work, mode: str, moment: str) -> None:
    def rows(name: str) -> list[str]:
        found = delta.table(name)
        assert (mode == "append") == ("run_id" in found.column_names)
        kept = [n for n in found.column_names if n != "run_id"]
        return sorted(map(str, found.select(kept).to_pylist()))

    delta.tree["output"] |= {"mode": mode, "table": "whole/rows"}
    delta.tree["reconcile"]["eta"] = 0.1
    delta.ran()
    delta.tree["reconcile"]["eta"] = 0.03
    delta.ran()
    delta.tree["output"]["table"] = "out/rows"
    delta.tree["reconcile"]["eta"] = 0.1
    delta.ran()
    delta.tree["reconcile"]["eta"] = 0.03
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed(moment, "run", "-c", "config.yaml")
    told = delta.redcal("run")
    assert told.code == 0, told.err
    assert "continuing run" in told.err
    assert rows("out/rows") == rows("whole/rows")
    assert delta.ran()["unchanged"]


@pytest.mark.parametrize(
    "moment",
    [
        "after the rows",
        pytest.param("before the rows", marks=pytest.mark.slow),
        pytest.param("write of the rows", marks=pytest.mark.slow),
        pytest.param("before the ledger's last write", marks=pytest.mark.slow),
    ],
)
def test_rows_are_appended_once_however_often_apply_is_killed(delta: Work, moment: str) -> None:
    delta.ran("fit")
    delta.tree["output"]["mode"] = "append"
    assert delta.redcal("export", "--run", "latest", "-o", "model.json").code == 0
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    command = ("apply", "-c", "config.yaml", "--model", "model.json")
    killed(moment, *command)
    dead = delta.runs()[-1]
    assert (dead["command"], dead["status"]) == ("apply", "running")
    assert "the same command continues it" in delta.redcal("runs").out
    cases = DeltaTable("scores").to_pyarrow_table()["case"].to_pylist()
    for unchanged in (None, True):
        told = delta.cli(*command, "--json")
        assert (told.code, told.json.get("unchanged")) == (0, unchanged), told
        assert told.json["run_id"] == dead["run_id"]
        assert sorted(delta.table()["case"].to_pylist()) == sorted(cases)
        assert set(delta.table()["run_id"].to_pylist()) == {dead["run_id"]}
    assert delta.runs()[-1]["status"] == "converged"
    told = delta.cli(*command)
    assert told.out.startswith(f"nothing to do: run {dead['run_id']} did just this")
    assert "--force appends again" in told.out
    assert delta.cli(*command, "--force").code == 0
    assert delta.table().num_rows == 2 * len(cases)


@pytest.mark.slow
def test_a_run_that_died_after_its_last_write_is_done(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("after the ledger's last write", "run", "-c", "config.yaml")
    assert delta.ran()["unchanged"]


def test_resume_names_what_it_continues_and_keeps_its_input(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("inside a calibration", "run", "-c", "config.yaml")
    [dead] = delta.runs()
    gone = f"run {dead['run_id']}: its process is gone, last heartbeat at "
    assert gone in delta.redcal("runs").out
    write_deltalake("scores", scores(50, seed=9), mode="append")
    told = delta.redcal("resume")
    assert told.code == 0, told.err
    assert f"resuming run {dead['run_id']} (run), running" in told.err
    [row] = delta.runs()
    assert (row["run_id"], row["status"]) == (dead["run_id"], "converged")
    assert json.loads(row["inputs"])["version"] == 0
    assert "is gone" not in delta.redcal("runs").out
    assert delta.table().num_rows == 600  # not the 650 that are there now
    again = delta.redcal("resume")
    assert again.code == 2
    assert "nothing to resume: no unfinished run in out/rows_runs" in again.err
    named = delta.redcal("resume", "--run", row["run_id"])
    assert named.code == 2
    assert f"run {row['run_id']} is finished: converged" in named.err
    assert "no run 'x' in" in delta.redcal("resume", "--run", "x").err


def test_resume_does_not_put_old_rows_over_newer_ones(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("first patch", "run", "-c", "config.yaml")
    write_deltalake("scores", scores(40, seed=9), mode="append")
    newest = delta.ran()
    told = delta.redcal("resume")
    assert told.code == 2
    assert f"is older than run {newest['run_id']}, whose rows out/rows has" in told.err
    assert delta.table().num_rows == 640
    dead = delta.runs()[0]["run_id"]
    assert f"redcal resume --run {dead}" in told.err
    assert delta.redcal("resume", "--run", dead).code == 0
    assert delta.table().num_rows == 600


@pytest.mark.slow
def test_a_forced_run_that_died_is_not_needed_and_hides_no_other(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    done = delta.ran()["run_id"]
    killed("first patch", "run", "-c", "config.yaml", "--force")
    dead = delta.runs()[-1]["run_id"]
    assert f"run {done} did the same; nothing is to be done" in delta.redcal("runs").out
    told = delta.redcal("resume")
    assert told.code == 0 and "resuming" not in told.err
    why = f"not needed: run {done} did the same"
    assert f"run {dead} is {why}; it is marked as failed" in told.err
    row = delta.runs()[-1]
    assert (row["run_id"], row["status"], row["error"]) == (dead, "failed", why)
    again = delta.redcal("resume")
    assert again.code == 2 and "nothing to resume" in again.err
    named = delta.redcal("resume", "--run", dead)
    assert named.code == 0 and f"run {dead} is {why}" in named.err
    assert "redcal run --force runs it again" in named.out


def test_dead_runs_are_told_by_name_and_by_their_way_out(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("first patch", "run", "-c", "config.yaml")
    [dead] = delta.runs()
    assert dead["dead"]
    table = delta.redcal("runs").out
    assert f"{dead['run_id']} run dead" in " ".join(table.split())
    way = f"the same command continues it, else redcal resume --run {dead['run_id']}"
    assert f"while the input is the same, {way}" in table
    kept = delta.redcal("prune", "--older-than", "0h", "--json").json["kept"]
    assert kept == {dead["run_id"]: f"it died; redcal resume --run {dead['run_id']} finishes it"}
    write_deltalake("scores", scores(40, seed=9), mode="append")
    newer = delta.ran()["run_id"]
    told = delta.redcal("runs").out
    assert f"a newer run, {newer}, has written out/rows; nothing is to be done" in told
    assert delta.redcal("prune", "--keep", "1", "--json").json["pruned"] == [dead["run_id"]]
    assert dead["run_id"] + ":" not in delta.redcal("runs").out
    assert [run["dead"] for run in delta.runs()] == [False, False]
    assert delta.runs()[0]["status"] == "failed"  # or nobody could claim its fingerprint


def test_resume_needs_the_same_configuration(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("first patch", "run", "-c", "config.yaml")
    delta.tree["reconcile"]["eta"] = 0.02
    told = delta.redcal("resume")
    assert told.code == 2
    assert "was started with another configuration" in told.err


@pytest.mark.slow
def test_a_version_that_vacuum_removed(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("first patch", "run", "-c", "config.yaml")
    write_deltalake("scores", scores(seed=9), mode="overwrite")
    DeltaTable("scores").vacuum(0, dry_run=False, enforce_retention_duration=False)
    told = delta.redcal("resume")
    assert told.code == 1
    assert "scores: version 0 can no longer be read" in told.err
    assert "VACUUM" in told.err and "redcal run" in told.err
    fresh = delta.ran()  # the newest version is another run
    assert fresh["run_id"] != delta.runs()[0]["run_id"]


def test_files_that_changed_cannot_be_resumed(work: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    killed("first patch", "run", "-c", "config.yaml")
    os.utime("scores.parquet", (1, 1))
    told = work.redcal("resume")
    assert told.code == 1
    assert "cannot be resumed: scores.parquet has changed since" in told.err


@pytest.mark.slow
def test_patches_are_written_as_they_are_found(
    delta: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch_writer, "EVERY", 0)
    monkeypatch.setattr(patch_writer, "SHARE", 0)
    seen: list[int] = []
    patch = Progress.patch

    def watched(self: Progress, *arguments: Any) -> None:
        patch(self, *arguments)
        seen.append(DeltaTable("out/rows_patches").to_pyarrow_table().num_rows)

    monkeypatch.setattr(Progress, "patch", watched)
    done = delta.ran()
    assert seen == list(range(1, done["patches"] + 1))


def test_quick_rounds_are_written_together(delta: Work) -> None:
    done = delta.ran()
    assert done["patches"] > 3
    assert DeltaTable("out/rows_patches").version() == 0


def test_patches_that_the_ledger_does_not_know_of_are_not_trusted(delta: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("inside a calibration", "run", "-c", "config.yaml")
    table = DeltaTable("out/rows_patches")
    last = table.to_pyarrow_table().num_rows - 1
    table.delete(f"step = {last}")
    table.delete(f"step = {last - 1}")
    told = delta.redcal("run")
    assert told.code == 1
    assert "cannot be resumed" in told.err and "--force" in told.err
    assert delta.ran("run", "--force")["status"] == "converged"


def test_the_same_patches_twice_are_one_log(delta: Work) -> None:
    """A process that was taken for dead may write what its successor wrote."""
    run = delta.ran()
    table = delta.table("out/rows_patches")
    lines = delta.redcal("log", "--json").lines
    write_deltalake("out/rows_patches", table.slice(1, 2), mode="append")
    assert delta.redcal("log", "--json").lines == lines
    assert len(lines) == run["patches"]
    wrong = table.slice(1, 1).to_pylist()[0] | {"rows": 1}
    write_deltalake("out/rows_patches", pa.Table.from_pylist([wrong], table.schema), mode="append")
    assert delta.redcal("log", "--json").code in (1, 2)


def test_a_lost_claim_stops_a_run_before_it_writes(
    delta: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redcal_spark.backends.local.backend import LocalBackend

    scan = LocalBackend.scan

    def taken_over(self: LocalBackend, *arguments: Any) -> Any:
        DeltaTable("out/rows_runs").update({"claim": "'another'"})
        time.sleep(1.2)  # nobody takes a run over before its lease has expired
        return scan(self, *arguments)

    monkeypatch.setattr(LocalBackend, "scan", taken_over)
    told = delta.redcal("run", "--set", "engine.lease=2")
    assert told.code == 1
    assert "lease expired: another process took it over" in told.err
    assert not Path("out/rows").exists() and not Path("out/rows_history").exists()


@pytest.mark.slow
def test_calibrations_that_ended_on_zero_are_remembered(
    delta: Work, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They leave no trace in the log."""
    delta.tree["reconcile"] |= {"algorithm": "dc_then_redcal", "grid_bits": 4, "eta": 0.03}
    Path("config.yaml").write_text(yaml.safe_dump(delta.tree, sort_keys=False), "utf-8")
    killed("before the rows", "run", "-c", "config.yaml")
    assert delta.redcal("run").code in (0, 3)
    again = json.loads(delta.runs()[0]["model"])["zero_calibrations"]
    assert delta.redcal("run", "--force").code in (0, 3)
    whole = json.loads(delta.runs()[1]["model"])["zero_calibrations"]
    assert again == whole > 1

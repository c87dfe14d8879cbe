"""Housekeeping: what old runs left is removed; what is needed stays, and so does the target."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.runs import patch_writer
from redcal_spark.runs.ledger import Ledger
from tests.e2e.test_resume import killed
from tests.e2e.work import Work, scores

SIDES = ("patches", "history", "metrics")


def runs_in(work: Work, table: str) -> set[str]:
    return set(work.table(f"out/rows_{table}")["run_id"].to_pylist())


@pytest.fixture
def three(work: Work) -> tuple[Work, list[str]]:
    """Three runs of one target, the last of which it has its rows from."""
    made = [work.ran("run", "--force")["run_id"] for _ in range(3)]
    return work, made


def aged(run_id: str, days: float) -> None:
    """As if the run had ended so long ago."""
    ledger = Ledger(DeltaRsStore(), "out/rows_runs")
    [row] = ledger.rows(run_id=run_id)
    then = datetime.now(UTC) - timedelta(days=days)
    assert ledger.replace(replace(row, started_at=then, finished_at=then, previous_claim=row.claim))


def test_by_number(three: tuple[Work, list[str]]) -> None:
    work, (first, second, last) = three
    target, versions = work.table(), work.delta().version()
    told = work.redcal("runs", "--prune", "--keep", "2", "--dry-run")
    assert told.code == 0, told.err
    assert f"1 run would be pruned: {first}" in told.out
    assert runs_in(work, "patches") == {first, second, last}

    patches = work.table("out/rows_patches")["run_id"].to_pylist().count(first)
    found = work.redcal("runs", "--prune", "--keep", "2", "--json").json
    assert found["pruned"] == [first] and found["rows"]["out/rows_patches"] == patches
    for table in SIDES:
        assert runs_in(work, table) == {second, last}
        [entry] = work.delta(f"out/rows_{table}").history(1)
        assert entry["operation"] == "DELETE"
        assert json.loads(entry["userMetadata"])["redcal_run_id"].startswith("prune-")
    assert work.table().equals(target) and work.delta().version() == versions
    rows = {row["run_id"]: row for row in work.runs()}
    assert rows[first]["status"] == "converged" and rows[first]["pruned_at"] is not None
    assert rows[second]["pruned_at"] is rows[last]["pruned_at"] is None

    told = work.redcal("runs", "--prune", "--keep", "1")
    assert f"1 run pruned: {second}" in told.out and "VACUUM" in told.out
    told = work.redcal("runs", "--prune", "--keep", "1")
    assert (told.code, told.out) == (0, "0 runs pruned\n")


def test_prune_is_a_command(three: tuple[Work, list[str]]) -> None:
    work, (first, second, last) = three
    wanted = work.redcal("runs", "--prune", "--keep", "1", "--dry-run", "--json").json
    assert wanted["pruned"] == [first, second]
    assert work.redcal("prune", "--keep", "1", "--dry-run", "--json").json == wanted
    told = work.redcal("prune", "--compact")
    assert told.code == 0 and "pruned" not in told.out, "without a choice it compacts alone"
    for arguments in ((), ("--dry-run",), ("--keep", "1", "--older-than", "3d")):
        told = work.redcal("prune", *arguments)
        said = "redcal prune: select runs with --keep N or --older-than 30d, one of them\n"
        assert (told.code, told.out, told.err) == (2, "", said)
    assert work.redcal("prune", "--keep", "1", "--json").json["pruned"] == [first, second]
    assert runs_in(work, "patches") == {last}


@pytest.mark.slow
def test_by_age(three: tuple[Work, list[str]]) -> None:
    work, (first, second, last) = three
    aged(first, 40)
    aged(second, 29)
    assert work.redcal("runs", "--prune", "--older-than", "6w", "--json").json["pruned"] == []
    found = work.redcal("runs", "--prune", "--older-than", "30d", "--json").json
    assert found["pruned"] == [first]
    assert runs_in(work, "history") == {second, last}


@pytest.mark.slow
def test_what_is_told_of_a_pruned_run(three: tuple[Work, list[str]]) -> None:
    work, (first, *_) = three
    work.redcal("runs", "--prune", "--keep", "1")
    for command in (["log"], ["explain", "--id", "1000"], ["export"], ["apply"], ["resume"]):
        told = work.redcal(*command, "--run", first)
        assert told.code == 2
        assert f"run {first} was pruned at 2" in told.err


def test_what_is_needed_stays(work: Work) -> None:
    """The rows of the target, the newest model, and runs that are not over."""
    work.tree["input"]["table"] = "scores"
    write_deltalake("scores", scores())
    wrote = work.ran()["run_id"]
    fitted = work.ran("fit", "--set", "reconcile.eta=0.02")["run_id"]
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    killed("first patch", "fit", "-c", "config.yaml", "--set", "reconcile.eta=0.03")
    dead = work.runs()[-1]["run_id"]
    newest = work.ran("fit", "--set", "reconcile.eta=0.04")["run_id"]
    for run_id in (wrote, fitted, dead, newest):
        aged(run_id, 400)
    found = work.redcal("runs", "--prune", "--older-than", "1d", "--json").json
    assert found["pruned"] == [fitted]
    assert found["kept"] == {
        wrote: "out/rows holds its rows",
        dead: f"it died; redcal resume --run {dead} finishes it",
        newest: "it is the newest model",
    }
    assert work.redcal("run").out.startswith("nothing to do")
    # also when someone else has tidied up the target
    DeltaTable("out/rows").delete("case = 1000")
    found = work.redcal("runs", "--prune", "--older-than", "1d", "--json").json
    assert (found["pruned"], found["kept"][wrote]) == ([], "out/rows holds its rows")


@pytest.mark.slow
def test_a_model_that_was_applied_stays(work: Work) -> None:
    first = work.ran()["run_id"]
    work.ran("run", "--set", "reconcile.eta=0.03")
    newest = work.ran("run", "--set", "reconcile.eta=0.05")["run_id"]
    assert work.redcal("apply", "--run", first).code == 0
    found = work.redcal("runs", "--prune", "--keep", "1", "--json").json
    assert found["kept"] == {
        first: "out/rows may hold scores of its model", newest: "it is the newest model"
    }  # fmt: skip
    assert len(found["pruned"]) == 1


@pytest.mark.slow
def test_a_model_that_a_stream_works_with_stays(work: Work) -> None:
    first = work.ran()["run_id"]
    work.ran("run", "--set", "reconcile.eta=0.03")
    assert work.redcal("apply", "--run", first).code == 0
    ledger = Ledger(DeltaRsStore(), "out/rows_runs")
    row = ledger.rows()[-1]  # as a stream would write it that has not ended
    running = replace(row, command="stream", status="running", outputs=None)
    assert ledger.replace(replace(running, previous_claim=row.claim))
    newest = work.ran("run", "--set", "reconcile.eta=0.05")["run_id"]
    found = work.redcal("runs", "--prune", "--keep", "1", "--json").json
    assert found["kept"][first] == "out/rows may hold scores of its model"
    assert newest not in found["pruned"] and len(found["pruned"]) == 1


def test_a_run_that_failed_after_its_rows_were_written_stays(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    with monkeypatch.context() as patched:
        patched.setattr("redcal_spark.runs.run.metrics_table", broken)
        assert work.redcal("run").code == 1
    failed = work.runs()[0]["run_id"]
    work.ran("fit", "--set", "reconcile.eta=0.02")
    found = work.redcal("runs", "--prune", "--keep", "1", "--json").json
    assert (found["pruned"], found["kept"]) == ([], {failed: "out/rows holds its rows"})


@pytest.mark.slow
def test_a_pruned_run_is_no_longer_done_or_to_be_resumed(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = work.ran("fit")["run_id"]
    work.ran("fit", "--set", "reconcile.eta=0.02")
    work.redcal("runs", "--prune", "--keep", "1")
    again = work.ran("fit")  # its patches are gone, so that it is to do
    assert again["run_id"] != done and "unchanged" not in again

    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(patch_writer, "EVERY", 0)
    with monkeypatch.context() as patched:
        patched.setattr("redcal_spark.runs.run.history_table", broken)
        work.redcal("fit", "--set", "reconcile.eta=0.03")
    failed = work.runs()[-1]
    assert failed["status"] == "failed"
    aged(failed["run_id"], 9)
    found = work.redcal("runs", "--prune", "--older-than", "8d", "--json").json
    assert found["pruned"] == [failed["run_id"]]
    told = work.redcal("resume", "--set", "reconcile.eta=0.03")
    assert (told.code, "nothing to resume" in told.err) == (2, True)
    assert work.ran("fit", "--set", "reconcile.eta=0.03")["run_id"] != failed["run_id"]


@pytest.mark.slow
def test_a_run_that_someone_took_up_meanwhile_stays(
    three: tuple[Work, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, (first, *_) = three
    rows = Ledger.rows
    calls: list[int] = []

    def taken(self: Ledger, **equal: str) -> Any:
        found = rows(self, **equal)
        if not calls:
            calls.append(1)
            table = DeltaTable("out/rows_runs")
            table.update({"claim": "'other'"}, predicate=f"run_id = '{first}'")
        return found

    monkeypatch.setattr(Ledger, "rows", taken)
    found = work.redcal("runs", "--prune", "--keep", "2", "--json").json
    assert (found["pruned"], found["kept"]) == ([], {first: "another process is working on it"})
    assert first in runs_in(work, "patches")


@pytest.mark.slow
def test_a_prune_that_died_is_finished_by_the_next(
    three: tuple[Work, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, (first, second, last) = three

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeltaRsStore, "delete", dies)
        assert work.redcal("runs", "--prune", "--keep", "2").code == 1
    assert runs_in(work, "patches") == {first, second, last}
    assert work.redcal("runs", "--prune", "--keep", "2", "--json").json["pruned"] == []
    assert runs_in(work, "patches") == runs_in(work, "metrics") == {second, last}


@pytest.mark.slow
def test_other_targets_in_the_same_ledger_are_left_alone(work: Work) -> None:
    first = work.ran()["run_id"]
    work.ran("run", "--force")
    work.tree["output"] = {"table": "second/rows", "runs": "out/rows_runs"}
    for _ in range(2):
        work.ran("run", "--force")
    work.redcal("runs", "--prune", "--keep", "1")
    assert first in runs_in(work, "patches")
    assert [row["pruned_at"] is None for row in work.runs()] == [True, True, False, True]


@pytest.mark.slow
def test_latest_is_of_the_patches_at_hand(work: Work) -> None:
    first = work.ran()["run_id"]
    ours = dict(work.tree["output"])
    work.tree["output"] = {"table": "second/rows", "runs": "out/rows_runs"}
    work.ran()
    work.tree["output"] = ours
    told = work.redcal("log", "--run", "latest", "--json")
    assert told.code == 0, told.err
    assert told.lines == work.redcal("log", "--run", first, "--json").lines
    assert told.lines


@pytest.mark.slow
def test_files_written_with_o_stay(three: tuple[Work, list[str]]) -> None:
    work, (first, second, last) = three
    for name, run_id in (("one.json", first), ("mine.json", first), ("two.json", last)):
        assert work.redcal("export", "-o", name, "--run", run_id).code == 0
    assert work.redcal("report", "-o", "page.html", "--run", second).code == 0
    assert work.redcal("compare", "-o", "chart.svg").code == 0
    Path("mine.json").write_text("{}")  # no longer what was exported
    files = {x: x.read_bytes() for x in Path().glob("*.*") if x.is_file()}
    assert len(files) >= 5
    wanted = [str(Path(x).absolute()) for x in ("one.json", "page.html")]
    found = work.redcal("runs", "--prune", "--keep", "1", "--dry-run", "--json").json
    assert found["files_that_stay"] == wanted
    told = work.redcal("runs", "--prune", "--keep", "1")
    assert f"2 runs pruned: {first}, {second}\n" in told.out
    for name in wanted:
        assert f"  {name} kept: it was written with -o\n" in told.out
    assert "mine.json" not in told.out
    assert {x: x.read_bytes() for x in files} == files
    assert Path("out/rows_report.html").exists()


@pytest.mark.slow
def test_runs_marks_those_that_were_pruned(three: tuple[Work, list[str]]) -> None:
    work, (first, *others) = three
    work.redcal("runs", "--prune", "--keep", "2")
    lines = work.redcal("runs").out.splitlines()[1:]
    told = {line.split()[0]: " ".join(line.split()[2:4]).partition(" 2")[0] for line in lines}
    assert told == {first: "converged, pruned"} | dict.fromkeys(others, "converged")


def test_wrong_use(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    work.ran()
    for arguments in ([], ["--keep", "1", "--older-than", "1d"]):
        told = work.redcal("runs", "--prune", *arguments)
        assert (told.code, "--keep N or --older-than 30d" in told.err) == (2, True)
    told = work.redcal("runs", "--keep", "3")
    assert (told.code, "need --prune" in told.err) == (2, True)
    for option, value in (("--older-than", "30"), ("--older-than", "3y"), ("--keep", "0")):
        with pytest.raises(SystemExit) as ended:
            work.redcal("runs", "--prune", option, value)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"argument {option}: must be" in said and repr(value) in said


def test_nothing_there_is_nothing_to_do(work: Work) -> None:
    assert work.redcal("runs", "--prune", "--keep", "1", "--compact").code == 0
    assert not Path("out").exists()


# --- few files ------------------------------------------------------------------------------------


def test_small_files_are_put_together(three: tuple[Work, list[str]]) -> None:
    work, _ = three
    before = {name: work.table(f"out/rows_{name}") for name in SIDES}
    told = work.redcal("runs", "--compact", "--json")
    assert told.code == 0, told.err
    for name in (*SIDES, "runs"):
        count, now = told.json["files_of_tables"][f"out/rows_{name}"]
        assert count >= 3 and now == 1 == len(work.delta(f"out/rows_{name}").file_uris())
    for name, table in before.items():
        assert work.table(f"out/rows_{name}").sort_by("run_id").num_rows == table.num_rows
    assert len(work.runs()) == 3
    assert work.redcal("run").out.startswith("nothing to do")


@pytest.mark.slow
def test_a_run_of_many_writes_leaves_few_files(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_writer, "EVERY", 0)
    monkeypatch.setattr(patch_writer, "SHARE", 0)
    work.ran()
    count = len(work.redcal("log", "--json").lines)
    assert count > patch_writer.FILES
    patches = work.delta("out/rows_patches")
    assert patches.version() > count  # every patch was written, and one commit more
    assert len(patches.file_uris()) == 1
    assert work.table("out/rows_patches").num_rows == count
    assert work.redcal("evaluate").code == 0

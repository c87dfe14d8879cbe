"""Several processes at once: one works, tables are never mixed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.processes import start_of
from redcal_spark.runs.claim import Claim, HeldByAnother, is_held, take
from redcal_spark.runs.ledger import Ledger, RunRow
from redcal_spark.runs.signals import Terminated
from tests import forked
from tests.e2e.work import Work, scores
from tests.forked import Forked

ROOT = Path(__file__).parents[2]
LEASE = timedelta(seconds=60)
TIMES = [pytest.param(i, marks=[pytest.mark.slow] if i >= 5 else []) for i in range(20)]


def start(command: str, *arguments: str, config: str = "config.yaml") -> Forked:
    return forked.start(command, "-c", config, *arguments)


@pytest.fixture
def delta(work: Work) -> Work:
    write_deltalake("scores", scores())
    work.tree["input"]["table"] = "scores"
    configure(work)
    return work


def configure(work: Work, name: str = "config.yaml") -> None:
    Path(name).write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")


# --- one run, two processes ---------------------------------------------------------------------


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("time", TIMES)
def test_one_works_and_the_other_leaves_or_waits(delta: Work, time: int, wait: bool) -> None:
    options = ["run", "--json", *(["--wait"] if wait else [])]
    told = [p.ended() for p in [start(*options), start(*options)]]
    assert [code for code, *_ in told] == [0, 0], told
    found = [json.loads(out) for _, out, _ in told]
    [worked] = [x for x in found if "metrics" in x]
    [other] = [x for x in found if "metrics" not in x]
    assert other["run_id"] == worked["run_id"]
    assert "unchanged" in other if wait else ("unchanged" in other or "held_by" in other)
    [row] = delta.runs()
    assert row["status"] == "converged"
    assert [DeltaTable(f"out/{name}").version() for name in ("rows", "rows_history")] == [0, 0]
    patches = DeltaTable("out/rows_patches").to_pyarrow_table()  # more versions if it took long
    assert sorted(patches["step"].to_pylist()) == list(range(worked["patches"]))


def test_a_run_that_ends_between_the_look_and_the_claim(
    delta: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[dict[str, Any]] = []

    def late(*arguments: Any) -> Claim | HeldByAnother:
        monkeypatch.setattr("redcal_spark.runs.start.take", take)
        first.append(delta.ran())
        return take(*arguments)

    monkeypatch.setattr("redcal_spark.runs.start.take", late)
    assert delta.ran()["unchanged"] is True
    assert [row["run_id"] for row in delta.runs()] == [first[0]["run_id"]]
    assert DeltaTable("out/rows").version() == 0


def test_who_holds_a_run_is_told(delta: Work) -> None:
    ledger = Ledger(DeltaRsStore(), "out/rows_runs")
    run = delta.ran("fit")
    [row] = ledger.rows(run_id=run["run_id"])
    held = replace(
        row,
        status="running",
        outputs=None,
        progress=json.dumps({run["patches"]: 0}),
        holder="elsewhere process 1 of 1",
        heartbeat=datetime.now(UTC),
        previous_claim=row.claim,
    )
    assert ledger.replace(held)
    told = delta.redcal("fit")
    assert told.code == 0
    assert f"run {row.run_id} is already in progress: held by elsewhere process 1" in told.out
    assert "--wait" in told.out
    assert delta.ran("fit")["held_by"] == "elsewhere process 1 of 1"
    assert delta.redcal("fit", "--force").code == 0  # not even then
    assert [r["status"] for r in delta.runs()] == ["running"]
    stale = replace(held, heartbeat=datetime.now(UTC) - timedelta(minutes=11))
    assert ledger.replace(stale)
    assert delta.ran("fit")["status"] == "converged"
    assert [r["status"] for r in delta.runs()] == ["converged"]


def test_a_stopped_process_is_taken_over_and_writes_nothing_when_it_goes_on(delta: Work) -> None:
    delta.tree["engine"]["lease"] = 1
    configure(delta)
    script = (
        "import os, signal, sys\n"
        "from redcal_spark.runs.run import Run\n"
        "from redcal_spark.cli import main\n"
        "write = Run._write_rows\n"
        "def stopped(*a):\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    return write(*a)\n"
        "Run._write_rows = stopped\n"
        "sys.exit(main(['run', '-c', 'config.yaml']))\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    _, status = os.waitpid(first.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(1.5)
    second = delta.ran()
    os.kill(first.pid, signal.SIGCONT)
    _, err = first.communicate(timeout=60)
    assert "lease expired: another process took it over" in err
    [row] = delta.runs()
    assert (row["status"], row["run_id"]) == ("converged", second["run_id"])
    assert DeltaTable("out/rows").version() == 0


# --- two runs, one target -----------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("time", TIMES)
def test_two_runs_on_one_target_are_versions_of_it(delta: Work, time: int) -> None:
    delta.tree["reconcile"]["eta"] = 0.02
    configure(delta, "other.yaml")
    told = [
        p.ended() for p in [start("run", "--json"), start("run", "--json", config="other.yaml")]
    ]
    assert [code for code, *_ in told] == [0, 0], told
    found = [json.loads(out) for _, out, _ in told]
    versions = [x["outputs"]["out/rows"] for x in found]
    assert sorted(versions) == [0, 1]
    for run in found:
        written = DeltaTable("out/rows", version=run["outputs"]["out/rows"]).to_pyarrow_table()
        assert written.num_rows == 600
        log = DeltaTable("out/rows_patches").to_pyarrow_table().to_pylist()
        assert len([p for p in log if p["run_id"] == run["run_id"]]) == run["patches"]
        config = "config.yaml" if run is found[0] else "other.yaml"
        fresh = delta.cli(
            "run", "-c", config, "--json", "--set", f"output.table=fresh{run['run_id']}/rows"
        ).json
        expected = DeltaTable(f"fresh{run['run_id']}/rows").to_pyarrow_table()
        assert fresh["patches"] == run["patches"]
        assert written.sort_by("case").to_pylist() == expected.sort_by("case").to_pylist()


# --- claims -------------------------------------------------------------------------------------


def row(**given: Any) -> RunRow:
    return RunRow.new(fingerprint="f", config_digest="c", command="run", **given)


def ledger_in(path: Path) -> Ledger:
    return Ledger(DeltaRsStore(), str(path / "runs"))


def taken(found: Claim | HeldByAnother) -> Claim:
    assert isinstance(found, Claim)
    return found


def test_a_claim_is_exclusive_and_ends(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    claim = taken(take(ledger, row(), LEASE))
    other = take(ledger, row(), LEASE)
    assert isinstance(other, HeldByAnother) and other.row.run_id == claim.row.run_id
    assert isinstance(take(ledger, replace(row(), fingerprint="g"), LEASE), Claim)
    claim.end("converged", outputs="{}")
    fresh = taken(take(ledger, row(), LEASE))
    assert fresh.resumed is None and fresh.row.run_id != claim.row.run_id


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_unfinished_run_is_taken_over_under_its_own_name(tmp_path: Path, status: str) -> None:
    ledger = ledger_in(tmp_path)
    old = taken(take(ledger, row(), LEASE))
    old.update(status=status, progress="{}", heartbeat=datetime.now(UTC) - 2 * LEASE)
    new = taken(take(ledger, row(), LEASE))
    assert new.resumed is not None and new.resumed.status == status
    assert (new.row.run_id, new.row.progress) == (old.row.run_id, "{}")
    with pytest.raises(Exception, match="lease expired: another process took it over"):
        old.update()
    new.update()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_signal_while_a_claim_is_written_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    """The commit is made, and nobody has the claim yet."""
    ledger = ledger_in(tmp_path)
    if resumed:
        taken(take(ledger, row(), LEASE)).end("failed", error="struck")
    name = "replace" if resumed else "insert"
    original = getattr(Ledger, name)

    def signalled(self: Ledger, claimed: RunRow) -> bool:
        original(self, claimed)
        monkeypatch.undo()
        raise Terminated

    monkeypatch.setattr(Ledger, name, signalled)
    with pytest.raises(Terminated):
        take(ledger, row(), LEASE)
    [ended] = ledger.rows()
    assert (ended.status, ended.error) == ("failed", "ended by SIGTERM")
    assert taken(take(ledger, row(), LEASE)).row.run_id == ended.run_id


def test_force_abandons_what_nobody_holds(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    old = taken(take(ledger, row(), LEASE))
    old.update(heartbeat=datetime.now(UTC) - 2 * LEASE)
    new = taken(take(ledger, row(), LEASE, force=True))
    assert new.resumed is None
    assert {r.run_id: r.status for r in ledger.rows()} == {
        old.row.run_id: "failed",
        new.row.run_id: "running",
    }


def test_who_is_alive() -> None:
    here = f"{socket.gethostname()} process {os.getpid()} of "
    now = datetime.now(UTC)
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    parent = f"{socket.gethostname()} process {os.getppid()} of {start_of(os.getppid())}"
    mine = row(holder=here + started, heartbeat=now, claim="a")
    assert is_held(replace(mine, holder=parent), LEASE)
    assert not is_held(mine, LEASE)  # this process knows what it works on
    assert not is_held(replace(mine, heartbeat=now - 2 * LEASE), LEASE)
    assert not is_held(replace(mine, holder=here + "1"), LEASE)  # the number was used again
    assert not is_held(replace(mine, holder=here.replace(str(os.getpid()), "999999") + "1"), LEASE)
    assert is_held(replace(mine, holder="elsewhere process 1 of 1"), LEASE)
    assert not is_held(row(), LEASE)


def test_the_heart_beats(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    claim = taken(take(ledger, row(), timedelta(seconds=0.4)))
    before = claim.row.heartbeat
    with claim:
        time.sleep(0.6)
    [found] = ledger.rows()
    assert found.heartbeat is not None and before is not None and found.heartbeat > before

"""A clock that is set back: leases, names and the order of runs do not depend on it."""

from __future__ import annotations

import ast
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.errors import RunError
from redcal_spark.runs.claim import Claim, HeldByAnother, take
from redcal_spark.runs.ledger import Ledger, RunRow
from tests.e2e.test_resume import outcome
from tests.e2e.work import Told, Work, scores
from tests.faults import clock
from tests.faults.running import ROOT, redcal
from tests.helpers import refused

BACK = -7_200
COMMAND = ("run", "-c", "config.yaml", "--json")


@pytest.fixture
def delta(work: Work) -> Work:
    write_deltalake("scores", scores())
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"]["eta"] = 0.05
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    return work


def clocked(moment: str, *command: str, off: float = 0, strike: str | None = None) -> Told:
    Path("clock").write_text(str(off), "utf-8")
    env = {clock.FILE: os.path.abspath("clock")}
    return redcal(*command, moment=moment, strike=strike, module="tests.faults.clock", env=env)


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "inside a calibration",
        pytest.param("claim", marks=pytest.mark.slow),
        pytest.param("before the rows", marks=pytest.mark.slow),
        pytest.param("before the ledger's last write", marks=pytest.mark.slow),
    ],
)
def test_set_back_during_a_run(delta: Work, moment: str) -> None:
    told = clocked(moment, *COMMAND, strike=f"echo {BACK} > clock")
    assert told.code == 0, told.err
    [row] = delta.runs()
    assert row["status"] == "converged"
    assert row["finished_at"] >= row["started_at"]
    found = outcome()
    delta.tree["output"]["table"] = "calm/out/rows"
    delta.ran()
    assert outcome("calm") == found


@pytest.mark.slow
def test_the_newest_run_is_the_last_one(delta: Work) -> None:
    """Though by the clock it started before the other."""
    assert clocked("never", *COMMAND).code == 0
    write_deltalake("scores", scores(seed=8), mode="overwrite")
    second = clocked("never", *COMMAND, off=BACK)
    assert second.code == 0, second.err
    first, last = delta.runs()
    assert last["run_id"] == second.json["run_id"] < first["run_id"]
    log = delta.redcal("log", "--json").lines
    assert len(log) == second.json["patches"]
    delta.tree["output"]["table"] = "calm/out/rows"
    delta.ran()
    assert delta.redcal("log", "--json").lines == log
    assert clocked("never", *COMMAND, off=2 * BACK).json["unchanged"]


def test_killed_and_resumed_two_hours_earlier(delta: Work) -> None:
    died = clocked("inside a calibration", *COMMAND, strike="kill -9 $PPID")
    assert died.code == -9
    again = clocked("never", *COMMAND[:-1], off=BACK)
    assert again.code == 0, again.err
    assert "continuing run" in again.err
    found = outcome()
    delta.tree["output"]["table"] = "calm/out/rows"
    delta.ran()
    assert outcome("calm") == found


def test_a_lost_claim_is_noticed_though_the_clock_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own clock the process was heard of just now, or will be; it must look all the same."""
    (tmp_path / "clock").write_text("0", "utf-8")
    monkeypatch.setenv(clock.FILE, str(tmp_path / "clock"))
    monkeypatch.setattr("redcal_spark.runs.claim.datetime", clock.Clock)
    ledger, lease = Ledger(DeltaRsStore(), str(tmp_path / "runs")), timedelta(seconds=2)
    fresh = RunRow.new(fingerprint="f", config_digest="c", command="run")
    claim = take(ledger, fresh, lease)
    assert isinstance(claim, Claim)
    assert isinstance(take(ledger, fresh, lease), HeldByAnother)
    DeltaTable(str(tmp_path / "runs")).update({"claim": "'another'"})
    claim.check()  # nobody could have taken it so soon, so that nobody looks
    time.sleep(1.1)
    (tmp_path / "clock").write_text("-1.1", "utf-8")
    assert "lease expired" in refused(RunError, claim.check)
    (tmp_path / "clock").write_text("-3", "utf-8")
    claim._heard = time.monotonic()
    assert "lease expired" in refused(RunError, claim.check)


def test_all_that_ask_for_the_time_of_day_are_set() -> None:
    """Delta's streams do too, for a text that nobody reads again."""

    def asks(path: Path) -> bool:
        calls: Any = (n for n in ast.walk(ast.parse(path.read_text("utf-8"))))
        return any(isinstance(n, ast.Attribute) and ast.unparse(n) == "datetime.now" for n in calls)

    package = ROOT / "redcal_spark"
    found = {
        p.relative_to(package).with_suffix("").as_posix() for p in package.rglob("*.py") if asks(p)
    }
    known = {module.__name__.partition(".")[2].replace(".", "/") for module in clock.ASKING}
    assert found - {"backends/spark/stream"} == known

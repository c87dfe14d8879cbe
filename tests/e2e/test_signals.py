"""SIGTERM ends a run as Ctrl-C does: the ledger says so in words, and the next try goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from deltalake import write_deltalake

from tests.e2e.work import Work, scores
from tests.faults.running import redcal

WORDS = {"TERM": "ended by SIGTERM", "INT": "interrupted by Ctrl-C (SIGINT)"}


def ended(
    work: Work, number: str, moment: str, command: str, *options: str, first: str = ""
) -> None:
    """A command in a process of its own that gets a signal at the moment, and again without one.

    first: processes that get it before.
    """
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    given = (command, "-c", "config.yaml", *options)
    told = redcal(*given, moment=moment, strike=f"kill -{number} {first} $PPID")
    assert told.code == 1, told
    assert f"redcal {command}: {WORDS[number]}" in told.err.splitlines()
    goes_on = "  (the same command goes on where it was)" in told.err.splitlines()
    assert goes_on == (command in ("run", "fit"))
    assert first or "Traceback" not in told.err  # PySpark's own, when its JVM is gone
    [row] = [row for row in work.runs() if row["command"] == command]
    assert (row["status"], row["error"], row["outputs"]) == ("failed", WORDS[number], None)
    assert f"run {row['run_id']}: {WORDS[number]}\n" in work.redcal("runs").out
    again = work.redcal(command, *options)
    assert again.code == 0, again.err
    assert work.runs()[-1]["status"] == "converged"


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        ("TERM", "scan"),
        ("TERM", "inside a calibration"),
        pytest.param("TERM", "write of the rows", marks=pytest.mark.slow),
        pytest.param("INT", "inside a calibration", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run(work: Work, number: str, moment: str) -> None:
    work.tree["input"]["table"] = "scores"
    write_deltalake("scores", scores(20_000))
    ended(work, number, moment, "run")


def test_a_signal_ends_apply(work: Work) -> None:
    work.tree["input"]["table"] = "scores"
    write_deltalake("scores", scores())
    work.ran("fit")
    write_deltalake("scores", scores(50_000), mode="overwrite")
    ended(work, "TERM", "before the rows", "apply", "--run", "latest")

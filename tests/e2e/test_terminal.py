"""What a person at a terminal of 80 columns sees: nothing wraps, nothing is cut off."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.work import Work

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(columns: int, *arguments: str) -> tuple[int, str]:
    """Run `redcal` with a terminal for its standard output and error."""
    pty = pytest.importorskip("pty", reason="no pseudo terminals on this system")
    import fcntl
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-m", "redcal_spark.cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=plain | {"TERM": "xterm-256color", "PYTHONPATH": root},
    ) as process:
        os.close(theirs)
        told = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not part:
                break
            told += part
    os.close(ours)
    return process.returncode, told.decode()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("columns", [80, 120])
def test_a_run_fits_the_terminal(work: Work, columns: int) -> None:
    work.redcal("check")
    code, told = on_terminal(columns, "run", "-c", "config.yaml")
    assert code == 0, told
    lines = [ESCAPES.sub("", line) for line in re.split(r"[\r\n]+", told)]
    assert max(map(len, lines)) <= columns
    rounds = work.runs()[-1]["rounds"]
    heading = next(i for i, line in enumerate(lines) if line.startswith("round "))
    assert "disagree" in lines[heading]
    shown = [line for line in lines[heading:] if re.match(r" +\d+  (triage|beds): ", line)]
    assert len(shown) == rounds
    assert all(line.endswith(" %") for line in shown)
    assert any("scanning" in line and "600 rows" in line for line in lines)
    assert any(line.startswith("converged: ") for line in lines)
    assert "Traceback" not in told


@pytest.mark.slow
def test_tables_fit_80_columns(work: Work) -> None:
    work.ran()
    for command in ("evaluate", "audit", "log", "runs", "check"):
        code, told = on_terminal(80, command, "-c", "config.yaml")
        lines = [ESCAPES.sub("", line) for line in re.split(r"[\r\n]+", told)]
        assert code == 0, told
        assert max(map(len, lines)) <= 80, command
        assert "…" not in told


def test_a_mistake_leaves_the_terminal_clean(work: Work) -> None:
    work.redcal("check")
    code, told = on_terminal(80, "run", "-c", "config.yaml", "--set", "input.label=nope")
    assert code == 2
    assert told.startswith("redcal run: column 'nope' not found in scores.parquet")

"""`redcal` in a process of its own, disturbed at a chosen moment, and what it must say then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import forked
from tests.e2e.killed import INSTEAD, run
from tests.e2e.work import Told

ROOT = Path(__file__).parents[2]


def redcal(
    *arguments: str,
    moment: str | None = None,
    strike: str | None = None,
    module: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Told:
    """A command in this folder. strike: a command for the shell, run at the moment.

    module, env: of a Python that starts anew; without them it is forked.
    """
    if module is None and env is None:
        own = {} if strike is None else {INSTEAD: strike}
        started = (
            forked.start(*arguments)
            if moment is None
            else forked.call(run, moment, *arguments, env=own)
        )
        return Told(*started.ended())
    module = module or ("redcal_spark.cli" if moment is None else "tests.e2e.killed")
    given = [] if moment is None else [moment]
    own = {"PYTHONPATH": str(ROOT)} | ({} if strike is None else {INSTEAD: strike})
    done = subprocess.run(
        [sys.executable, "-m", module, *given, *arguments],
        env=os.environ | own | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Told(done.returncode, done.stdout, done.stderr)


def failed_clearly(told: Told, *words: str) -> None:
    """Exit code 1 and a message for people, not for us."""
    assert told.code == 1, told
    assert told.err.startswith("redcal ") or "\nredcal " in told.err, told.err
    assert "Traceback" not in told.err and "unexpected" not in told.err, told.err
    assert any(word in told.err for word in words), told.err

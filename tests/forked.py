"""`redcal` in a process of its own, forked from one that has imported it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from redcal_spark.cli import main

# Nothing of it has run there yet, so that no thread is lost in a fork.
IMPORTED = ["redcal_spark.cli.commands", "redcal_spark.runs.start", "deltalake", "pyarrow.dataset"]
PATIENCE = 500.0  # seconds: a hang; busy machines are slow

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(IMPORTED)


@dataclass(frozen=True)
class Forked:
    """A process that was started; what it says goes to a folder."""

    process: BaseProcess
    folder: Path

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, negative for a signal, and what it said."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        assert code is not None, "it hangs"
        out, err = ((self.folder / name).read_text("utf-8") for name in ("out", "err"))
        shutil.rmtree(self.folder)
        return code, out, err


def start(*command: str) -> Forked:
    """`redcal` with these arguments."""
    return call(main, command)


def call(
    function: Callable[..., int], *arguments: Any, env: Mapping[str, str] | None = None
) -> Forked:
    """A function of a module in a process, whose exit code it returns, in a group of its own."""
    folder = Path(tempfile.mkdtemp(prefix="forked"))
    given = (str(folder), os.getcwd(), dict(os.environ | dict(env or {})), function, arguments)
    process = _context.Process(target=_run, args=given)
    process.start()
    return Forked(process, folder)


def _run(
    folder: str, here: str, env: dict[str, str], function: Callable[..., int], arguments: Any
) -> None:
    os.setsid()
    os.chdir(here)
    os.environ.clear()
    os.environ.update(env)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    code = function(*arguments)
    atexit._run_exitfuncs()  # a fork of multiprocessing leaves these out
    sys.exit(code)

"""Runs cases in a worker process and says what is wrong with how they ended.

A case is files in a folder of its own and a command of `redcal`. It is fine if the command ends
with one of its exit codes and a message in our words, within 5 s and 1 GiB, and has touched nothing
but the tables that its configuration names as outputs.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 5.0
BYTES = 2**30
STARTING = 60.0

# What a user must never see. Rust says "panicked", C++ "terminate called".
RAW = re.compile(r"Traceback \(most recent|unexpected \w+:|panicked at|terminate called|\*\*\* ")


@dataclass(frozen=True)
class Case:
    """Files by their path in the case's folder, and what follows `redcal`."""

    target: str
    files: Mapping[str, bytes]
    arguments: Sequence[str]

    def to_line(self) -> bytes:
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({"files": files, "arguments": list(self.arguments)}).encode() + b"\n"

    def save(self, folder: Path) -> None:
        """Lay the case out to be run by hand."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (folder / "arguments.json").write_text(json.dumps(list(self.arguments)))


@dataclass(frozen=True)
class Result:
    """How a case ended. code None: the worker had to be killed, or died."""

    code: int | None
    seconds: float
    peak: int = 0  # bytes
    out: str = ""
    err: str = ""
    touched: Sequence[str] = ()  # what was changed, or nearly, that no output is
    forbidden: Sequence[str] = ()  # processes, connections, pickles

    @property
    def problems(self) -> list[str]:
        """What is wrong; nothing if all is well."""
        if self.code is None:
            return [self.err]
        told = []
        raw = RAW.search(self.err) or RAW.search(self.out)
        if raw is not None:
            text = self.err if RAW.search(self.err) else self.out
            told.append(f"{text[raw.start() : raw.start() + 300]}")
        if self.code not in (0, 1, 2, 3):
            told.append(f"exit code {self.code}")
        if self.code in (1, 2) and not self.err.strip():
            told.append("failed without a word")
        if self.seconds > SECONDS:
            told.append(f"took {self.seconds:.1f} s")
        if self.peak > BYTES:
            told.append(f"took {self.peak / 2**20:,.0f} MiB")
        told += [f"touched {path}" for path in self.touched]
        told += [f"did {what}" for what in self.forbidden]
        return told


# What cases are given to, unless it is `redcal` alone: that process would have to hold MLflow.
COMMANDS = {"doors": "tests.fuzz.doors:main"}


def worker_for(target: str, folder: Path) -> Worker:
    """The process for the cases of a target."""
    command = COMMANDS.get(target, Worker.command)
    return Worker(folder / command.partition(":")[0], command)


@dataclass
class Worker:
    """A process that runs case after case, and is replaced when one of them kills it."""

    folder: Path
    command: str = "redcal_spark.cli:main"
    seconds: float = SECONDS
    confined: bool | None = None  # whether the kernel keeps it to its folder; told at its start
    _process: subprocess.Popen[bytes] | None = None

    def run(self, case: Case) -> Result:
        result = self._run(case)
        if result.code is None and "no answer" in result.err:
            # a busy machine is no hang: once more, in a worker that has nothing else to do
            result = self._run(case)
        return result

    def _run(self, case: Case) -> Result:
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(case.to_line())
            process.stdin.flush()
        except BrokenPipeError:
            return self._died("before the case")
        answer = self._answer(self.seconds + 1.0)
        if answer is None:
            return self._died("during the case")
        return Result(**answer)

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not ready:
            self._process.kill()
        if not line:
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def _died(self, when: str) -> Result:
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None and process.stdout is not None
        code = process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what it did not read
            process.stdin.close()
        if code == -9:
            return Result(None, self.seconds, err=f"no answer within {self.seconds:g} s")
        said = (self.folder / "captured").read_bytes()[-600:].decode(errors="replace")
        return Result(None, 0.0, err=f"the process died {when}, code {code}: {said}")

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = ("JAVA_HOME", "SPARK_HOME", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION")
        env = {key: value for key, value in os.environ.items() if key not in hidden}
        # no java: a configuration that asks for Spark gets a message, not a JVM
        env |= {"PYTHONPATH": str(ROOT), "PATH": "", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(self.folder), self.command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        answer = self._answer(STARTING)
        if answer is None:
            raise RuntimeError(self._died("at its start").err)
        self.confined = bool(answer["confined"])

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

"""The processes that are killed: a driver of ours, and the executors of a worker."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.backends import Cluster, Host

ROOT = Path(__file__).parents[2]
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Driver:
    """A driver in a process of its own, with a session on the cluster."""

    def __init__(self, cluster: Cluster, host: Host, folder: Path):
        self.said = folder / f"driver-{time.monotonic_ns()}.log"
        arguments = [cluster.url, str(cluster.python), host.address]
        with open(self.said, "wb") as log:
            self._process = subprocess.Popen(
                [*host.enter, sys.executable, "-m", "tests.faults.driver", *arguments],
                cwd=folder,
                env=os.environ
                | {
                    "PYTHONPATH": str(ROOT),
                    "SPARK_LOCAL_IP": host.address,
                    "TMPDIR": str(folder),  # who is killed cannot tidy up
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._answer(120, "ready")

    def ask(self, folder: Path, command: list[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(folder), command]).encode() + b"\n")
        self._process.stdin.flush()

    def code(self, seconds: float) -> int | None:
        """The exit code of the command; None: there is none yet."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, seconds))
        if not ready:
            return None
        line = self._process.stdout.readline()
        assert line, f"the driver died: {self.said.read_text(errors='replace')[-3_000:]}"
        return int(line)

    def _answer(self, seconds: float, expected: str) -> None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline().decode().strip() if ready else ""
        if line != expected:
            self.kill()
            raise AssertionError(self.said.read_text(errors="replace")[-3_000:])

    def kill(self) -> None:
        """With its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def stop(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self.kill()


def fetch_jars() -> None:
    """Delta's, unless this user has them: a network namespace leads nowhere."""
    if not any(Path.home().glob(".ivy2*/jars/io.delta_delta-spark_*.jar")):
        script = (
            "from redcal_spark.backends.spark.session import local_session; local_session().stop()"
        )
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=300)


@contextmanager
def stopped(driver: list[Driver]) -> Iterator[None]:
    """Whichever driver is there at the end, is stopped."""
    try:
        yield
    finally:
        for one in driver:
            one.stop()


def executors(worker: int) -> list[int]:
    """The executors of a worker, by the numbers of their processes."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == worker and EXECUTOR in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for_executors(cluster: Cluster, seconds: float = 90) -> bool:
    """Until every worker has one."""
    end = time.monotonic() + seconds
    while not all(executors(worker.pid) for worker in cluster.workers):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True

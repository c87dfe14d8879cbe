"""Spark in its three forms, for tests: classic and local, Spark Connect, a standalone cluster.

They cannot share a process, so that `VARIABLE` says which one this process has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import venv
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

VARIABLE = "REDCAL_TEST_SPARK"  # classic (the default), connect or cluster
WORKER_PACKAGES = ("numpy", "pyarrow", "pyspark", "py4j")
LOOPBACK = ("127.0.0.1", "127.0.0.2")  # a speculative copy of a task wants another host


def name() -> str:
    return os.environ.get(VARIABLE, "classic")


@contextlib.contextmanager
def session(folder: Path) -> Iterator[Any]:
    """The session of this process, stopped at the end."""
    kind = name()
    if kind == "cluster":
        with cluster(folder) as found, stopped(found.session()) as spark:
            yield spark
    elif kind == "connect":
        with stopped(connect(folder)) as spark:
            yield spark
    else:
        with stopped(classic(folder)) as spark:
            yield spark


def classic(folder: Path) -> Any:
    """Two cores; a failed task is tried up to four times, as on a cluster."""
    from redcal_spark.session import local_session

    settings = {"master": "local[2,4]", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    return local_session(**settings)


def connect(folder: Path) -> Any:
    """A server of our own, with Delta as the session helper would have it."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    from redcal_spark.session import LOCAL

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]")
    for key, value in LOCAL.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    with warnings.catch_warnings():
        # the server starts with these settings; that a client may not change them later is fine
        warnings.filterwarnings("ignore", message="Failed to set", category=UserWarning)
        return configure_spark_with_delta_pip(builder).getOrCreate()


@contextlib.contextmanager
def stopped(spark: Any) -> Iterator[Any]:
    try:
        yield spark
    finally:
        spark.stop()


# --- a cluster on this machine --------------------------------------------------------------------


@dataclass
class Cluster:
    """A master and two workers of one core each, whose Python has WORKER_PACKAGES alone."""

    url: str
    python: Path
    workers: list[subprocess.Popen[bytes]]

    def session(self) -> Any:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = str(self.python)
        settings = {
            "spark.driver.host": LOOPBACK[0],
            "spark.driver.bindAddress": LOOPBACK[0],
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",  # executors are killed on purpose
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.speculation.quantile": "0.5",
        }
        builder = SparkSession.builder.master(self.url).appName("redcal tests")
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def running() -> Cluster:
    """The cluster of this process."""
    assert _running, "no cluster here"
    return _running[0]


_running: list[Cluster] = []


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster; at the end, stop what was started."""
    python = environment(folder / "worker-venv")
    master = f"{LOOPBACK[0]}:{free_port()}"
    started = []
    try:
        host, port = master.split(":")
        arguments = ["--host", host, "--port", port, "--webui-port", "0"]
        started.append(spark_class(folder, "master.Master", *arguments))
        wait_for(host, int(port))
        for host in LOOPBACK:
            arguments = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            work = str(folder / f"work-{host}")
            started.append(
                spark_class(
                    folder, "worker.Worker", *arguments, "--work-dir", work, f"spark://{master}"
                )
            )
        _running.append(Cluster(f"spark://{master}", python, started[1:]))
        yield _running[0]
    finally:
        _running.clear()
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):  # its group: executors, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def spark_class(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One process of the cluster; `spark-class` turns into it, so that the pid is its own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_REMOTE", VARIABLE)
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    env |= {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": LOOPBACK[0]}
    with open(folder / f"{name}-{time.monotonic_ns()}.log", "wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def environment(folder: Path, packages: Iterable[str] = WORKER_PACKAGES) -> Path:
    """A Python of its own that can import these packages (links to ours) and nothing else."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    for package in packages:
        found = metadata.distribution(package)
        for file in found.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin" / "python"


def free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK[0], 0))
        return int(found.getsockname()[1])


def wait_for(host: str, port: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)

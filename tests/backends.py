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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

VARIABLE = "REDCAL_TEST_SPARK"  # classic (the default), connect or cluster
FEW = "REDCAL_TEST_FEW"  # if set: of the contract a few cases only, as in slower processes
WORKER_PACKAGES = ("numpy", "pyarrow", "pyspark", "py4j")
# JVMs of tests live too short for the optimising compiler to pay: without it they need two thirds
# of the time.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Nor do they live long enough for Spark to compile code for a query of a few rows. `make
# test-versions` leaves it on, as users have it; of that the oldest Spark is tried in every build.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
# A session of tests sees thousands of tables and jobs. By default Delta remembers the last 10,000
# tables for an hour, Spark the plans of the last 1,000 queries: that fills the heap, and half an
# hour goes into collecting garbage.
FORGETFUL = {
    "spark.databricks.delta.delta.log.cacheSize": "20",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.ui.retainedJobs": "2",
    "spark.ui.retainedStages": "2",
    "spark.ui.retainedTasks": "50",
}
LOOPBACK = ("127.0.0.1", "127.0.0.2")  # a speculative copy of a task wants another host


def name() -> str:
    return os.environ.get(VARIABLE, "classic")


def few() -> bool:
    """Whether one case of a kind is enough: the same cases run on many Sparks."""
    return FEW in os.environ


def whole() -> bool:
    """Whether this process has time for many cases of the contract."""
    return name() == "classic" and not few()


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
    from redcal_spark.backends.spark.session import local_session

    settings = {"master": "local[2,4]", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    return local_session(**settings, **FORGETFUL, **at_s3())


def at_s3() -> dict[str, str]:
    """For tests of object stores: jars, and credentials of workers. The server is told later."""
    from redcal_spark.backends.spark.hadoop import object_store_settings
    from tests.object_store import KEY, SECRET

    given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    of_workers = {f"spark.executorEnv.{key}": value for key, value in given.items()}
    return object_store_settings(["s3://lake"], given) | of_workers


def connect(folder: Path) -> Any:
    """A server of our own, with Delta as the session helper would have it."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    from redcal_spark.backends.spark.session import LOCAL

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]")
    for key, value in (LOCAL | FORGETFUL).items():
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

ON_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # executors are killed on purpose
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
}


@dataclass(frozen=True)
class Host:
    """Where a process of a cluster runs. enter: a command that runs another one there."""

    address: str
    enter: tuple[str, ...] = ()


HOSTS = tuple(Host(address) for address in LOOPBACK)  # of the master and a worker, of a worker


@dataclass
class Cluster:
    """A master and two workers of one core each, whose Python has WORKER_PACKAGES alone."""

    url: str
    python: Path
    workers: list[subprocess.Popen[bytes]]
    start_worker: Callable[[int], subprocess.Popen[bytes]]

    def session(self) -> Any:
        return cluster_session(self.url, self.python, ON_CLUSTER)

    def restart(self, number: int) -> None:
        """Start a worker that was killed, again."""
        self.workers[number] = self.start_worker(number)


def cluster_session(
    url: str,
    python: str | Path,
    settings: Mapping[str, str],
    address: str = LOOPBACK[0],
    change: Callable[[Any], Any] = lambda builder: builder,
) -> Any:
    """A session on a cluster, whose driver is this process. change: is given the builder."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = str(python)
    builder = SparkSession.builder.master(url).appName("redcal tests")
    own = {"spark.driver.host": address, "spark.driver.bindAddress": address}
    for key, value in (own | dict(settings)).items():
        builder = builder.config(key, value)
    return change(builder).getOrCreate()


def running() -> Cluster:
    """The cluster of this process."""
    assert _running, "no cluster here"
    return _running[0]


_running: list[Cluster] = []


@contextlib.contextmanager
def cluster(
    folder: Path, hosts: Sequence[Host] = HOSTS, options: Sequence[str] = (), cores: int = 1
) -> Iterator[Cluster]:
    """Start a cluster; at the end, stop what was started.

    hosts: of the workers; the first one's is the master's too, unless there is one more, before
    them. options: of the daemons' JVMs. cores: of a worker, each with a gigabyte.
    """
    python = environment(folder / "worker-venv")
    at, workers = hosts[0], hosts[-2:]
    port = free_port()
    master = f"{at.address}:{port}"
    started = []

    def start(host: Host, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        given = ["--host", host.address, "--webui-port", "0", *arguments]
        started.append(spark_class(folder, name, *given, host=host, options=options))
        return started[-1]

    def worker(number: int) -> subprocess.Popen[bytes]:
        host = workers[number]
        work = ["--cores", f"{cores}", "--memory", f"{cores}g"]
        work += ["--work-dir", str(folder / f"work-{number}")]
        return start(host, "worker.Worker", *work, f"spark://{master}")

    try:
        start(at, "master.Master", "--port", str(port))
        wait_for(at, port)
        both = [worker(number) for number in range(len(workers))]
        _running.append(Cluster(f"spark://{master}", python, both, worker))
        yield _running[0]
    finally:
        _running.clear()
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):  # its group: executors, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def spark_class(
    folder: Path,
    name: str,
    *arguments: str,
    host: Host = HOSTS[0],
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """One process of the cluster; `spark-class` turns into it, so that the pid is its own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_REMOTE", VARIABLE)
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    env |= {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": host.address}
    env |= {"SPARK_DAEMON_JAVA_OPTS": " ".join([SHORT_LIVED, *options])}
    program = str(home / "bin" / "spark-class")
    with open(folder / f"{name}-{time.monotonic_ns()}.log", "wb") as log:
        return subprocess.Popen(
            [*host.enter, program, f"org.apache.spark.deploy.{name}", *arguments],
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


def wait_for(host: Host, port: int, seconds: float = 60) -> None:
    """Until someone listens there, as seen from there."""
    look = f"import socket; socket.create_connection(({host.address!r}, {port}), 1)"
    end = time.monotonic() + seconds
    while subprocess.run([*host.enter, sys.executable, "-c", look], capture_output=True).returncode:
        assert time.monotonic() < end, f"nobody listens at {host.address}:{port}"
        time.sleep(0.2)

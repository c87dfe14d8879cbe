"""The session helper: what it takes, what it says when it cannot, and that it is quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redcal_spark.backends.spark.session import active_session, get_session, local_session
from redcal_spark.errors import UsageError
from tests import backends
from tests.helpers import refused

ROOT = Path(__file__).parents[2]


def script(text: str, timeout: float = 300, **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, for a session of its own."""
    hidden = ("PYSPARK_PYTHON", "JAVA_HOME")
    given = {key: value for key, value in os.environ.items() if key not in hidden}
    # PySpark does not close the pipe to a JVM that did not start
    strict = ["-W", "error", "-W", "ignore::ResourceWarning"]
    return subprocess.run(
        [sys.executable, *strict, "-c", text],
        cwd=ROOT,
        env=given | env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_the_active_session_is_used_again(spark: Any) -> None:
    assert active_session() is spark
    assert get_session() is spark
    assert get_session(master="local[7]") is spark


def test_on_databricks_the_session_is_taken_as_it_is(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta is there under other names, and a wheel task may find no active session."""

    def changed(*given: Any, **settings: Any) -> Any:
        raise AssertionError((given, settings))

    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as on a classic cluster
    monkeypatch.setattr("redcal_spark.backends.spark.session.active_session", lambda: None)
    monkeypatch.setattr("redcal_spark.backends.spark.session.local_session", changed)
    monkeypatch.setattr(type(spark).Builder, "config", changed)
    assert get_session() is spark


def test_workers_run_this_python(spark: Any) -> None:
    def look(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.range(1, numPartitions=1).mapInArrow(look, "python string").collect() == [
        (sys.executable,)
    ]


def test_delta_is_there(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert refused(UsageError, local_session) == (
        "Spark needs Java 17 or later, and there is no `java` on PATH and no JAVA_HOME; "
        "install one, or use engine.name: local, which needs neither Java nor Spark"
    )


def test_no_such_server() -> None:
    done = script(
        """
from redcal_spark.errors import RunError
from redcal_spark.backends.spark.session import get_session
try:
    get_session()
except RunError as err:
    print(err)
""",
        SPARK_REMOTE="http://lake",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Spark did not start: [INVALID_CONNECT_URL] ")
    assert done.stdout.count("\n") == 1


def test_a_server_that_does_not_answer() -> None:
    """PySpark alone asks for ten minutes. The address is named, what else is in it is not."""
    port = backends.free_port()
    done = script(
        """
from redcal_spark.backends.spark import session
from redcal_spark.cli import main
assert session.PATIENCE <= 30
session.PATIENCE = 2.0
raise SystemExit(main(["runs", "-c", "conf/demo.yaml", "--engine", "spark", "-q"]))
""",
        timeout=90,
        SPARK_REMOTE=f"sc://127.0.0.1:{port}/;token=secret;use_ssl=true",
    )
    assert (done.returncode, done.stderr) == (
        1,
        f"redcal runs: the Spark Connect server 127.0.0.1:{port} (SPARK_REMOTE) cannot be reached: "
        "no answer within 2 s; start it, correct or unset SPARK_REMOTE, or use engine.name: local, "
        "which needs no Spark\n",
    )


@pytest.mark.spark
def test_no_jars(tmp_path: Path) -> None:
    """No cache of jars, and a repository that is an empty folder."""
    (tmp_path / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    done = script(f"""
from redcal_spark.errors import RunError
from redcal_spark.backends.spark.session import local_session
settings = {{"spark.jars.ivySettings": "{tmp_path}/ivysettings.xml"}}
try:
    local_session(**settings, **{{"spark.jars.ivy": "{tmp_path}/ivy"}})
except RunError as err:
    print(err)
""")
    assert done.stdout.strip() == (
        "Spark could not fetch Delta's jars from its Maven repositories; set "
        "spark.jars.repositories or spark.jars.ivySettings to a mirror that has "
        "io.delta:delta-spark, or use engine.name: local, which needs no jars"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.spark
def test_a_whole_fit_is_quiet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = script(
        """
import os, sys
from redcal_spark.backends.spark.session import get_session
from tests.contract.cases import made, table
from tests.helpers import quietly, reconciler

def main():
    spark = get_session(master="local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    problem = made("redcal", 2, 1)
    with quietly():
        pair = reconciler(problem, driver_budget=0).fit(spark.createDataFrame(table(problem)))
    print(len(pair.log), pair.status)
    spark.stop()

main()
""",
        TMPDIR=str(tmp_path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 converged\n", "")
    left = [path.name for path in tmp_path.rglob("redcal*") if path.name != "redcal-scratch"]
    assert left == []

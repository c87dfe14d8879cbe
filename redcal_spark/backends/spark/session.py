"""The Spark session: the one that is there, or a local one with Delta."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from redcal_spark.backends.spark.errors import is_sparks, message_of
from redcal_spark.backends.spark.hadoop import PACKAGES
from redcal_spark.backends.spark.spark_version import need_pyspark_4, newer_than_delta
from redcal_spark.errors import RunError, UsageError
from redcal_spark.settings import setting

# Why each: a laptop is no cluster.
LOCAL = {
    "spark.ui.enabled": "false",  # no port to claim
    "spark.ui.showConsoleProgress": "false",  # our own progress is on the terminal
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",  # works without a network
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",  # ten times quicker on small logs
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


PATIENCE = 15.0  # seconds for a server to answer; PySpark alone would ask for ten minutes
DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
MANY = 1 << 14  # rows, so that no core is left without one

_cores: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def get_session(**settings: str) -> SparkSession:
    """The active session if there is one, else our launcher's, else a local one with Delta."""
    need_pyspark_4()
    active = active_session()
    if active is not None:
        return active
    if not was_submitted():
        return local_session(**settings)
    try:
        return submitted_session()
    except Exception as err:
        if not is_sparks(err):
            raise
        raise RunError(f"Spark did not start: {message_of(err)}") from err


def was_submitted() -> bool:
    """Whether a launcher describes a session: `spark-submit`, SPARK_REMOTE or Databricks."""
    return (
        "PYSPARK_GATEWAY_PORT" in os.environ
        or bool(os.environ.get("SPARK_REMOTE"))
        or on_databricks()
    )


def on_databricks() -> bool:
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def submitted_session() -> SparkSession:
    """The session that the launcher describes; after `spark-submit` Delta's part is filled in.

    The jars are the launcher's business: `--packages`, or a cluster that has them. Databricks has
    a session ready, which takes no settings of ours.
    """
    if on_databricks():
        return SparkSession.builder.getOrCreate()
    builder = SparkSession.builder.appName("redcal")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf

        known = SparkConf()
        for key in DELTA:
            if not known.contains(key):
                builder = builder.config(key, LOCAL[key])
        return builder.getOrCreate()
    url = os.environ["SPARK_REMOTE"]
    if url.startswith("sc://"):
        _need_server(url)
    session = builder.getOrCreate()
    _lose_no_time(session)
    atexit.register(_give_back, session)
    return session


def _need_server(url: str) -> None:
    """Refuse a Spark Connect server that does not answer. A channel of our own asks, as PySpark's
    would: through proxies, with TLS; a server that is just starting gets its time."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    channel = builder.toChannel()
    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=PATIENCE)
    except grpc.FutureTimeoutError:
        raise RunError(  # the URL itself may have a token in it
            f"the Spark Connect server {builder.endpoint} (SPARK_REMOTE) cannot be reached: no "
            f"answer within {PATIENCE:g} s; start it, correct or unset SPARK_REMOTE, or use "
            f"{setting('engine', 'local')}, which needs no Spark"
        ) from None
    finally:
        ready.cancel()
        channel.close()


def _lose_no_time(session: SparkSession) -> None:
    """A server that goes away later is told after half a minute, too; the run can be resumed."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=5_000)])


def _give_back(session: SparkSession) -> None:
    """Tell a server that a session of ours is over: it keeps what it knows of it for an hour else.

    Asked once: a server that is gone would be asked for minutes.
    """
    with contextlib.suppress(Exception):
        session.client.set_retry_policies([])
        session.client.release_session()


def active_session() -> SparkSession | None:
    try:
        return SparkSession.getActiveSession()
    except PySparkException:
        return None


def local_session(**settings: str) -> SparkSession:
    """A local session of this process. Needs Java; Spark's own resolver fetches Delta's jars."""
    # Workers take the first python3 on PATH otherwise, which may not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _need_java()
    builder = SparkSession.builder.master(settings.pop("master", "local[*]")).appName("redcal")
    packages = [package for package in settings.pop(PACKAGES, "").split(",") if package]
    for key, value in {**LOCAL, **settings}.items():
        builder = builder.config(key, value)
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as err:
        raise UsageError(
            "delta-spark is not installed: pip install 'redcal-spark[spark]' "
            f"({setting('engine', 'local')} needs no Spark)"
        ) from err
    with _quiet() as said:
        try:
            return configure_spark_with_delta_pip(builder, packages).getOrCreate()
        except Exception as err:
            raise RunError(_why(err, said)) from err


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.path.exists(f"{home}/bin/java")):
        raise UsageError(
            "Spark needs Java 17 or later, and there is no `java` on PATH and no JAVA_HOME; "
            f"install one, or use {setting('engine', 'local')}, which needs neither Java nor Spark"
        )


def _why(err: Exception, said: str) -> str:
    with open(said, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if "unresolved dependency" in text or "download failed" in text:
        return (
            f"Spark could not fetch Delta's jars from its Maven repositories{newer_than_delta()}; "
            "set spark.jars.repositories or spark.jars.ivySettings to a mirror that has "
            f"io.delta:delta-spark, or use {setting('engine', 'local')}, which needs no jars"
        )
    last = [line for line in text.splitlines() if line.strip()][-3:]
    return (
        f"Spark did not start: {err}\n  "
        + "\n  ".join(last)
        + f"\n  ({setting('engine', 'local')} needs no Spark)"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[str]:
    """Send what the JVM says to a file: it inherits our standard output and error at its start."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="redcal-spark-", suffix=".log", delete=False
    ) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        saved = {number: os.dup(number) for number in (1, 2)}
        for number in saved:
            os.dup2(file.fileno(), number)
        try:
            yield file.name
        finally:
            for number, own in saved.items():
                os.dup2(own, number)
                os.close(own)
            with contextlib.suppress(OSError):  # Windows keeps what is open
                os.unlink(file.name)


def cores(spark: SparkSession) -> int:
    """The partitions that Spark makes unasked: one per core. Looked up once a session.

    Spark Connect has no other way to ask.
    """
    if spark not in _cores:
        parts = spark.range(0, MANY).selectExpr("spark_partition_id() AS part").toArrow()
        _cores[spark] = max(1, pc.count_distinct(parts["part"]).as_py())
    return _cores[spark]

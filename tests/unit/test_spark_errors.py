"""What Spark says of a job over scratch, in our words. The texts are its own, shortened."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from redcal_spark.backends.spark.errors import message_of, over_scratch
from redcal_spark.backends.spark.hadoop import object_store_settings
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.cli import open_job
from redcal_spark.errors import InputError, RunError, ScratchError, UsageError

RUN = "redcal_scratch_20260101000000_1_0a1b2c_host"
WRITING = f"[TASK_WRITE_FAILED] Task failed while writing rows to file:/s/{RUN}/0. SQLSTATE: 58030"
READING = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///s/{RUN}/0/a"
IN_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "tasks.py", line 1, in __call__
{}

\tat org.apache.spark.api.python.BasePythonRunner
"""


def raised(text: str, from_input: bool = False) -> Exception:
    try:
        with over_scratch("/s", RUN, from_input=from_input):
            raise PySparkException(text)
    except Exception as err:
        return err
    raise AssertionError


@pytest.mark.parametrize("from_input", [False, True])
def test_a_full_disk(from_input: bool) -> None:
    err = raised(f"{WRITING}\nCaused by: java.io.IOException: No space left on device", from_input)
    assert type(err) is RunError
    assert str(err).startswith("engine.scratch: a job over blocks in /s failed: [TASK_WRITE_FAILED")
    assert str(err).endswith("No space left on device")


def test_blocks_that_are_not_what_was_written() -> None:
    damaged = (
        "redcal_spark.errors.ScratchError: a packed block is damaged: its checksum does not fit"
    )
    err = raised(IN_WORKER.format(damaged))
    assert type(err) is ScratchError
    assert str(err) == "/s: a packed block is damaged: its checksum does not fit"
    assert type(raised(READING)) is ScratchError
    other = raised(READING.replace(RUN, "scores"))
    assert type(other) is RunError  # not in scratch


def test_what_a_worker_raised_is_told() -> None:
    err = raised(IN_WORKER.format("RuntimeError: on purpose"))
    assert type(err) is RunError and "RuntimeError: on purpose" in str(err)


def test_what_is_wrong_with_the_input_is_left_to_others() -> None:
    text = IN_WORKER.format("redcal_spark.errors.InputError: the data: 2 bad rows")
    assert type(raised(text, from_input=True)) is PySparkException
    assert type(raised(READING.replace(RUN, "scores"), from_input=True)) is PySparkException


def test_an_error_of_ours_stays_what_it_is() -> None:
    with pytest.raises(ScratchError, match="mine"), over_scratch("/s", RUN):
        raise ScratchError("mine")


def test_the_first_line_and_the_disk() -> None:
    assert message_of(PySparkException("one\ntwo")) == "one"
    assert (
        message_of(PySparkException("one\nRead-only file system")) == "one: Read-only file system"
    )
    assert (
        message_of(PySparkException("An error occurred while calling o1.x.\n: java: two"))
        == "java: two"
    )


# --- workers --------------------------------------------------------------------------------------

STREAM = "[STREAM_FAILED] Query x terminated with exception: {}"
LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 8) (10.0.0.1 executor 1): {}\n\tat org.apache.spark.X\n"
)
KILLED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider"
WORDS = [
    (
        IN_WORKER.format("ModuleNotFoundError: No module named 'numpy'"),
        UsageError,
        "the Python of Spark's workers cannot be used (No module named 'numpy'): they need numpy "
        "and pyarrow. Install both there, or name a Python that has them with PYSPARK_PYTHON",
    ),
    (
        IN_WORKER.format("redcal_spark.errors.UsageError: the Python of Spark's workers, /x, is"),
        UsageError,
        "the Python of Spark's workers, /x, is",
    ),
    (
        LOST.format('java.io.IOException: Cannot run program "/no/python": error=2, No such file'),
        UsageError,
        "Spark's workers cannot run /no/python (error=2, No such file): they need numpy",
    ),
    (
        IN_WORKER.format(
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python "
            "in worker has different version: 3.9 than that in driver: 3.11"
        ),
        UsageError,
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in "
        "driver: 3.11: name a Python of the driver's version with PYSPARK_PYTHON",
    ),
    (LOST.format(KILLED), RunError, "a Python worker of Spark was killed, or crashed"),
    (f"[TASK_WRITE_FAILED] x\nCaused by: {KILLED}", RunError, "a Python worker of Spark was kill"),
    (IN_WORKER.format("MemoryError"), RunError, "a Spark worker ran out of memory. Give workers"),
    (
        LOST.format(
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
            "Container killed on request. Exit code is 137"
        ),
        RunError,
        "an executor of Spark was lost: Container killed on request. Exit code is 137",
    ),
    (
        LOST.format("java.lang.OutOfMemoryError: Java heap space"),
        RunError,
        "Spark's JVM ran out of memory (Java heap space). Give it more",
    ),
    (
        IN_WORKER.format("redcal_spark.errors.InputError: the data has bad rows:\n  a: 2\n    b"),
        InputError,
        "scores has bad rows:\n  a: 2",
    ),
    (IN_WORKER.format("ValueError: odd"), RunError, "a Spark worker failed: ValueError: odd"),
]


@pytest.mark.parametrize(("text", "kind", "words"), WORDS)
@pytest.mark.parametrize("form", ["{}", "\n  {}\n SQLSTATE: 38000", STREAM])
def test_what_a_worker_died_of(text: str, kind: type[Exception], words: str, form: str) -> None:
    found = of_worker(PySparkException(form.format(text)), "scores")
    assert type(found) is kind
    assert str(found).startswith(words)
    assert len(str(found).splitlines()) == len(words.splitlines())


def test_no_worker_is_to_blame() -> None:
    assert of_worker(PySparkException("[TABLE_OR_VIEW_NOT_FOUND] no such\n\tat x")) is None
    nested = "Traceback (most recent call last):\n  x\npy4j.protocol.Py4JJavaError: An error\n"
    assert of_worker(PySparkException(nested)) is None
    cause = "Traceback (most recent call last):\n  y\nMemoryError\n"
    assert "ran out of memory" in str(of_worker(PySparkException(cause + nested)))


def test_never_without_the_cause() -> None:
    for text in (IN_WORKER, "\n  An exception was thrown from the Python worker.\n" + IN_WORKER):
        said = message_of(PySparkException(text.format("ValueError: odd")))
        assert said.startswith("An exception was thrown from the Python worker")
        assert said.endswith(": ValueError: odd")
    one_line = "[PYTHON_EXCEPTION] An exception: Traceback (most recent call last):\n  x\nOops: y\n"
    assert message_of(PySparkException(one_line)) == "[PYTHON_EXCEPTION] An exception: Oops: y"


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "hadoop-aws:VERSION of its own"),
        ("s3a.auth.NoAuthWithAWSException: No AWS Credentials", "set AWS_ACCESS_KEY_ID and"),
    ],
)
def test_a_session_that_does_not_know_s3_has_a_way_out(said: str, way_out: str) -> None:
    assert way_out in message_of(Exception(f"java.lang.RuntimeException: {said}"))


def test_after_spark_submit_there_is_no_folder_of_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There PySpark comes from a zip file, and the launcher has the packages."""
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as file:
        file.writestr("pyspark/__init__.py", "")
    monkeypatch.setattr("pyspark.__file__", str(tmp_path / "pyspark.zip/pyspark/__init__.py"))
    made = object_store_settings(["s3://lake/scores"], {"AWS_REGION": "eu-central-1"})
    assert made["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert "redcal.packages" not in made


def test_a_spark_that_starts_says_that_it_takes_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def given_up(**_: str) -> None:
        raise RunError("no Spark here")

    monkeypatch.setattr("redcal_spark.backends.spark.session.get_session", given_up)
    monkeypatch.setattr("redcal_spark.backends.spark.session.active_session", lambda: None)
    monkeypatch.setattr("redcal_spark.backends.spark.session.was_submitted", lambda: False)
    with caplog.at_level("INFO"), pytest.raises(RunError, match="no Spark here"):
        open_job._spark(("t",), {})
    assert "starting Spark; the first time it fetches Delta" in caplog.text

"""What Spark says of a job over scratch, in our words. The texts are its own, shortened."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from redcal_spark.engines.spark_errors import over_scratch, told
from redcal_spark.errors import RunError, ScratchError

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
    assert told(PySparkException("one\ntwo")) == "one"
    assert told(PySparkException("one\nRead-only file system")) == "one: Read-only file system"
    assert (
        told(PySparkException("An error occurred while calling o1.x.\n: java: two")) == "java: two"
    )

"""What went wrong in a Spark worker, as the local engine would tell it: the cause and the way out.

Spark gives back all of it as one text: its own words, a Python traceback, stacks of the JVM.
"""

from __future__ import annotations

import re

from redcal_spark.errors import InputError, RedcalError, RunError, UsageError

OURS = {kind.__name__: kind for kind in (InputError, UsageError, RunError)}
# Lines that belong to a message of ours are indented by two signs, those of a traceback by more.
RAISED = re.compile(r"^redcal_spark\.errors\.(\w+): (.*(?:\n  \S.*)*)", re.MULTILINE)
TRACEBACK = "Traceback (most recent call last):\n"
CARRIERS = ("py4j.", "pyspark.errors.exceptions.captured", "pyspark.errors.exceptions.connect")

PACKAGES = (
    "they need numpy and pyarrow. Install both there, or name a Python that has them with "
    "PYSPARK_PYTHON before Spark starts"
)
OWN_PACKAGE = "redcal_spark"
INSTALLED = (
    "what the driver sends them (artifacts of the session) is not seen there. Install the same "
    "wheel for them, as a library of the cluster or a dependency of the job's environment: workers "
    "that have it are sent nothing"
)
MORE_MEMORY = (
    "Give workers more memory (spark.executor.memoryOverhead, or spark.executor.pyspark.memory if "
    "that is set), run fewer tasks beside each other (spark.executor.cores), or smaller batches "
    "(spark.sql.execution.arrow.maxRecordsPerBatch)"
)


def of_worker(err: Exception, name: str = "the data") -> RedcalError | None:
    """What a worker died of, if one did. name: of the table whose rows it had."""
    text = str(err)
    for raised in RAISED.finditer(text):
        if (kind := OURS.get(raised[1])) is not None:
            message = raised[2]
            return kind(name + message.removeprefix("the data") if kind is InputError else message)
    cause = _of_python(text) or _of_its_end(text)
    return cause or (_untold(text) if "connect" in type(err).__module__ else None)


def _untold(text: str) -> RedcalError | None:
    """A server of Spark Connect fails itself where a cause has no message: nothing of it comes."""
    if "TASK_WRITE_FAILED" not in text or "Caused by" in text:
        return None
    return RunError(
        "a task failed while it wrote rows, and the Spark Connect server did not send the cause: "
        "its own log has it. Most often a Python worker of Spark was killed, or crashed, because "
        f"memory runs out. {MORE_MEMORY}"
    )


def _of_python(text: str) -> RedcalError | None:
    """An exception in the worker's Python that is none of ours."""
    if (match := re.search(r'Cannot run program "([^"]*)"(?: \([^)]*\))?: (.*)', text)) is not None:
        return UsageError(f"Spark's workers cannot run {match[1]} ({match[2].strip()}): {PACKAGES}")
    line = last_line(text)
    if line is None:
        return None
    kind, _, why = line.partition(": ")
    if "PYTHON_VERSION_MISMATCH" in line:
        return UsageError(f"{why}: name a Python of the driver's version with PYSPARK_PYTHON")
    if kind.endswith("ModuleNotFoundError") and OWN_PACKAGE in why:
        return UsageError(f"Spark's workers cannot import {OWN_PACKAGE} ({why}): {INSTALLED}")
    if kind.endswith(("ModuleNotFoundError", "ImportError")):
        return UsageError(f"the Python of Spark's workers cannot be used ({why}): {PACKAGES}")
    if kind == "MemoryError":
        return RunError(f"a Spark worker ran out of memory. {MORE_MEMORY}")
    return RunError(f"a Spark worker failed: {line}")


def _of_its_end(text: str) -> RedcalError | None:
    """A worker that could not say anything."""
    if "Python worker exited unexpectedly" in text:
        return RunError(
            "a Python worker of Spark was killed, or crashed; most often the system kills it "
            f"because memory runs out. {MORE_MEMORY}"
        )
    if (match := re.search(r"ExecutorLostFailure.*?Reason: ([^\n]*)", text)) is not None:
        return RunError(f"an executor of Spark was lost: {match[1].strip()[:300]} {MORE_MEMORY}")
    if (match := re.search(r"java\.lang\.OutOfMemoryError: ([^\n]*)", text)) is not None:
        return RunError(
            f"Spark's JVM ran out of memory ({match[1].strip()[:100]}). Give it more "
            "(spark.executor.memory, spark.driver.memory)"
        )
    return None


def last_line(text: str) -> str | None:
    """What was raised in a worker's Python: the line that ends its traceback."""
    lines = []
    for part in text.split(TRACEBACK)[1:]:
        line = next((line for line in part.splitlines() if line[:1].strip()), None)
        if line is not None and not line.startswith(CARRIERS):
            lines.append(line)
    return lines[-1] if lines else None

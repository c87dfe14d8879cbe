"""What Spark says when it cannot go on, in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS

from pyspark.errors import PySparkException

from redcal_spark.backends.spark.cells import UNREADABLE_CELL
from redcal_spark.backends.spark.file_reader import NOT_DIRECTLY
from redcal_spark.backends.spark.workers import last_line, of_worker
from redcal_spark.core.packing import DAMAGED
from redcal_spark.errors import RunError, ScratchError
from redcal_spark.settings import setting

UNREADABLE = (
    *("FAILED_READ_FILE", "FILE_NOT_EXIST", "FileNotFoundException", "ChecksumException"),
    UNREADABLE_CELL,
)
# What a disk says, which Spark tells at the end of a long chain of causes.
OF_DISKS = tuple(os.strerror(number) for number in (ENOSPC, EDQUOT, EROFS, EFBIG, EIO, EACCES))
WAYS_OUT = {  # of a session that somebody else started
    "S3AFileSystem not found": "; start Spark with --packages org.apache.hadoop:hadoop-aws:VERSION "
    "of its own Hadoop",
    "NoAuthWithAWSException": "; a session that is there already gets no storage_options: set "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or spark.hadoop.fs.s3a.access.key and "
    ".secret.key",
}


def is_sparks(err: Exception) -> bool:
    """Whether an error is Spark's own; py4j hands on those that PySpark has no class for."""
    return isinstance(err, PySparkException) or type(err).__module__.startswith("py4j.")


def message_of(err: Exception) -> str:
    """What Spark says, without its stack, and the cause: what a worker or a disk said."""
    lines = [line for line in str(err).splitlines() if line.strip()]  # Connect begins with none
    first, *more = lines or [type(err).__name__]
    if first.startswith("An error occurred while calling"):  # py4j: the next line says what
        first = (more or [first])[0].lstrip(": ")
    text = first.strip().removesuffix("Traceback (most recent call last):").rstrip(": ")[:500]
    for cause in (last_line(str(err)), of_a_disk(err)):
        text = text if cause is None or cause in text else f"{text}: {cause}"
    for sign, way_out in WAYS_OUT.items():
        text += way_out if sign in text else ""
    return text


def of_a_disk(err: Exception) -> str | None:
    return next((words for words in OF_DISKS if words in str(err)), None)


@contextmanager
def workers_in_words() -> Iterator[None]:
    """Errors of Spark that a worker is the cause of, in our words; others as they are."""
    try:
        yield
    except Exception as err:
        if is_sparks(err) and (cause := of_worker(err)) is not None:
            raise cause from err
        raise


@contextmanager
def over_scratch(place: str, run: str, *, from_input: bool = False) -> Iterator[None]:
    """Errors of a job over blocks. run: the name of the scratch, which is part of its paths.

    Blocks that are damaged or gone are an error of their own: the input still has their rows.
    from_input: the job makes them, and what is wrong with the input is told by others.
    """
    try:
        yield
    except Exception as err:
        if not is_sparks(err) or NOT_DIRECTLY in str(err):
            raise
        if from_input and not (run in str(err) and of_a_disk(err)):
            raise
        if DAMAGED in str(err):
            raise ScratchError(f"{place}: {DAMAGED}") from err
        if run in str(err) and any(word in str(err) for word in UNREADABLE):
            raise ScratchError(f"{place}: blocks cannot be read: {message_of(err)}") from err
        worker = None if of_a_disk(err) else of_worker(err)
        kind = RunError if worker is None else type(worker)
        why = message_of(err) if worker is None else str(worker)
        raise kind(f"{setting('scratch')}: a job over blocks in {place} failed: {why}") from err

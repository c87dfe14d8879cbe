"""Where a task gets its rows from: from Spark, or from files that it reads itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from redcal_spark.backends.names import quoted
from redcal_spark.backends.spark.frames import nameless, vectors
from redcal_spark.backends.spark.tasks import Reader


@dataclass(frozen=True)
class Source:
    """What a task of `mapInArrow` is given, and how that becomes rows.

    frame: the rows themselves, or with a reader the numbers of the tasks, one row each.
    names: of the columns that the task sees, which travel without.
    vectors: those of them that hold Spark ML vectors.
    """

    frame: DataFrame
    names: tuple[str, ...]
    vectors: tuple[str, ...] = ()
    reader: Reader | None = None


def frame_source(frame: DataFrame, names: Sequence[str]) -> Source:
    """Some columns of a frame: Spark reads them."""
    chosen = frame.select(*map(quoted, names))
    return Source(nameless(chosen), tuple(names), vectors(chosen))

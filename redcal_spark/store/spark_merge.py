"""Reconciled rows merged into a table by Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import Column, expr
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from redcal_spark.engines.spark_frames import column
from redcal_spark.store.base import Commit
from redcal_spark.store.spark_tables import Place
from redcal_spark.store.targets import Existing, Target

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_SPEAKING = threading.Lock()  # two merges in one session must not speak for each other


def merge_rows(
    place: Place, frame: DataFrame, old: Existing, target: Target, commit: Commit
) -> None:
    """Insert new rows, replace those that changed, leave all others as they are."""
    assert target.id is not None
    same = f"source.{column(target.id)} = {place.in_merge}.{column(target.id)}"
    merge = frame.alias("source").mergeInto(place.sql, expr(same))
    differs = _differs(frame.schema, place, old, target.id)
    merge = merge.whenMatched(differs).updateAll().whenNotMatched().insertAll()
    if target.evolve:
        merge = merge.withSchemaEvolution()
    with _saying(frame.sparkSession, commit):
        merge.merge()


def _differs(new: StructType, place: Place, old: Existing, id: str) -> Column:
    """Whether a new row says anything else than the old one. Nulls are equal to nulls."""
    told = []
    for field in new.fields:
        ours, theirs = f"source.{column(field.name)}", f"{place.in_merge}.{column(field.name)}"
        if field.name == id:
            continue
        if field.name not in old.schema.names:  # the table is about to get it, empty
            told.append(f"{ours} is not null")
        elif _has_map(field.dataType):  # Spark compares no maps
            told.append(f"not (to_json(struct({ours})) <=> to_json(struct({theirs})))")
        else:
            told.append(f"not ({ours} <=> {theirs})")
    return expr(" or ".join(told) or "false")


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, MapType)


@contextmanager
def _saying(spark: SparkSession, commit: Commit) -> Iterator[None]:
    """What the commit of a MERGE says of itself.

    Writes of frames take it as an option, a MERGE has no options: Delta looks into the session's
    settings, so that this one is set for as long as the MERGE takes.
    """
    with _SPEAKING:
        try:
            before = spark.conf.get(USER_METADATA, None)
            spark.conf.set(USER_METADATA, commit.user_metadata)
        except PySparkException:  # settings that may not be changed, as on serverless
            yield
            return
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(USER_METADATA)
            else:
                spark.conf.set(USER_METADATA, before)

"""What Spark does with a table of reconciled rows beyond writing frames: MERGE, clusters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import MapType, StructType

from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.spark.tables import inside
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_SPEAKING = threading.Lock()  # two merges in one session must not speak for each other


def merge_rows(
    place: Place, frame: DataFrame, old: DataFrame, target: Target, commit: Commit
) -> None:
    """Insert new rows, replace those that changed, leave all others as they are.

    Rows that say nothing new are left out beforehand: Delta rewrites every file in which a row has
    the id of a source row, whether the row is updated or not. Where only touched rows are kept, a
    row that is touched no more is removed.
    """
    assert target.id is not None
    id = quoted(target.id)
    same = " and ".join([f"source.{id} = old.{id}", *_same(frame.schema, old.columns, target.id)])
    changed = frame.alias("source").join(old.alias("old"), expr(same), "left_anti")
    merge = changed.alias("source").mergeInto(
        place.sql, expr(f"source.{id} = {place.in_merge}.{id}")
    )
    if target.touched_only:
        touched = expr(f"source.{quoted(target.touched)}")
        merge = merge.whenMatched(~touched).delete()
        merge = merge.whenMatched(touched).updateAll().whenNotMatched(touched).insertAll()
    else:
        merge = merge.whenMatched().updateAll().whenNotMatched().insertAll()
    if target.evolve:
        merge = merge.withSchemaEvolution()
    with saying(frame.sparkSession, commit):
        merge.merge()


def _same(new: StructType, there: Sequence[str], id: str) -> Iterator[str]:
    """Conditions that a new row says nothing new. Nulls are equal to nulls."""
    for field in new.fields:
        ours, theirs = f"source.{quoted(field.name)}", f"old.{quoted(field.name)}"
        if field.name == id:
            continue
        if field.name not in there:  # the table is about to get it, empty
            yield f"{ours} is null"
        elif any(isinstance(kind, MapType) for kind in inside(field.dataType)):
            # Spark compares no maps
            yield f"to_json(struct({ours})) <=> to_json(struct({theirs}))"
        else:
            yield f"{ours} <=> {theirs}"


def cluster(spark: SparkSession, place: Place, by: Sequence[str], commit: Commit) -> None:
    """Cluster a table: writers of frames cannot, and what they overwrite is clustered no more."""
    with saying(spark, commit):
        spark.sql(f"ALTER TABLE {place.sql} CLUSTER BY ({', '.join(map(quoted, by))})")


def saying(spark: SparkSession, commit: Commit) -> AbstractContextManager[None]:
    """What the commit of a MERGE or of a statement in SQL says of itself."""
    return settings(spark, {USER_METADATA: commit.user_metadata})


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for as long as a MERGE takes.

    Writes of frames take these as options, a MERGE has no options: Delta looks into the session's
    settings.
    """
    with _SPEAKING:
        before: dict[str, str | None] = {}
        for key, value in wanted.items():
            with suppress(PySparkException):  # some may not be changed, as on serverless
                known = spark.conf.get(key, None)
                spark.conf.set(key, value)
                before[key] = known
        try:
            yield
        finally:
            for key, known in before.items():
                if known is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, known)

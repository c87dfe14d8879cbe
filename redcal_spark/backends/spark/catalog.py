"""Tables of a catalog: rows are overwritten in place, and new tables say what they are.

A table that is replaced loses grants, tags and comments in some catalogs, and tables that the
catalog manages itself refuse it. So an overwrite touches the rows alone wherever it can.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructField, StructType

from redcal_spark.backends.comments import Comments
from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.spark.frames import arrow_schema
from redcal_spark.backends.spark.merge import cluster
from redcal_spark.backends.spark.tables import again
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Existing, Target, change_of


def overwrite_rows(
    frame: DataFrame, place: Place, target: Target, old: Existing, commit: Commit
) -> bool:
    """Put these rows in place of all others; the table stays: a plain overwrite, no REPLACE.

    Not so, and False, where more than the rows must change.
    """
    change = change_of(target, arrow_schema(frame), old)
    if change == "all of it":
        return False
    writer = frame.writeTo(place.sql)
    for key, value in said_of(commit).items():
        writer = writer.option(key, value)
    if change == "new columns":
        writer = writer.option("mergeSchema", "true")
    again(lambda: writer.overwrite(lit(True)))
    if clusters := target.clusters_for(old, frame.columns):  # Delta forgets them
        cluster(frame.sparkSession, place, clusters, commit)
    return True


def said_of(commit: Commit) -> dict[str, str]:
    """What a write says of itself, as its options; each table has transactions of its own."""
    said = {"txnAppId": commit.run_id, "txnVersion": str(commit.phase)}
    return {"userMetadata": commit.user_metadata, **said}


def commented(frame: DataFrame, comments: Comments, old: StructType | None = None) -> DataFrame:
    """The frame with a comment on its columns: that of the table, else ours."""
    there = {} if old is None else {field.name: _comment(field) for field in old.fields}
    said = {
        field.name: there.get(field.name) or comments.columns.get(field.name) or _comment(field)
        for field in frame.schema.fields
    }
    if not any(said.values()):
        return frame
    return frame.select(*(_with(name, comment) for name, comment in said.items()))


def _with(name: str, comment: str | None) -> Column:
    column = col(quoted(name))
    return column.alias(name, metadata={"comment": comment}) if comment else column


def _comment(field: StructField) -> str | None:
    return field.metadata.get("comment")


def described(writer: DataFrameWriter, comments: Comments) -> DataFrameWriter:
    """For a new table: the catalog takes the comment of the table from the writer's options."""
    return writer.option("comment", comments.table) if comments.table else writer

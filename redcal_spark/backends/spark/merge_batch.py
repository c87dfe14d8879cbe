"""What a stream does with one batch of changed rows: one MERGE on the id, once.

Spark Connect pickles it and runs it at the server, so that it holds plain data and no session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.functions import col, count, expr, lit, rank, when
from pyspark.sql.functions import sum as sum_

from redcal_spark.backends.names import quoted
from redcal_spark.backends.spark.frames import apply_to_frame
from redcal_spark.backends.spark.merge import USER_METADATA, settings
from redcal_spark.backends.spark.tables import again
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.errors import InputError

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"  # Delta's own names
DELETED = "_redcal_deleted"
TXN = "spark.databricks.delta.write.txn"
EXAMPLES = 5


@dataclass(frozen=True)
class MergeBatch:
    """Upserts the rows of a batch, and with the change data feed deletes those that were deleted.

    Where only touched rows are kept, it deletes those that are touched no more, too.

    sql, in_merge: the target in SQL, and in the conditions of a MERGE. stream: the name under which
    the target knows which batches it has: Delta skips one that it has already.
    """

    pair: Fitted
    names: OutputNames
    skip: bool
    id: str
    sql: str
    in_merge: str
    stream: str
    user_metadata: str
    feed: bool

    def __call__(self, frame: DataFrame, batch: int) -> None:
        latest = (
            last_changes(frame, self.id) if self.feed else frame.withColumn(DELETED, lit(False))
        )
        kept = latest.where(~col(DELETED)).drop(DELETED)
        if not self._check(latest):
            return  # an OPTIMIZE, say, brings no rows
        names = replace(self.names, touched_only=False)
        rows = apply_to_frame(kept, self.pair, names, self.skip)
        untouched = ~col(quoted(names.touched)) if self.names.touched_only else lit(False)
        source = rows.withColumn(DELETED, untouched)
        if self.feed:
            gone = latest.where(DELETED).select(quoted(self.id), lit(True).alias(DELETED))
            source = source.unionByName(gone.distinct(), allowMissingColumns=True)
        self.merge(source, rows.columns, batch)

    def _check(self, latest: DataFrame) -> bool:
        """Whether there are rows at all. Their ids must tell them apart."""
        ids = (
            latest.select(col(quoted(self.id)).alias("id"), when(~col(DELETED), 1).alias("row"))
            .groupBy("id")
            .agg(count(lit(1)).alias("changes"), count("row").alias("rows"))
        )
        null, twice = col("id").isNull(), col("id").isNotNull() & (col("rows") > 1)
        counts = ids.agg(
            sum_("changes").alias("changes"),
            sum_(when(null, col("changes"))).alias("nulls"),
            count(when(twice, 1)).alias("twice"),
        ).first()
        assert counts is not None
        if counts["nulls"] or counts["twice"]:
            shown = ids.where(twice).orderBy("id").limit(EXAMPLES).collect()
            raise InputError("\n  ".join(_in_words(counts, [row[0] for row in shown])))
        return bool(counts["changes"])

    def merge(self, source: DataFrame, names: list[str], batch: int) -> None:
        equal = f"source.{quoted(self.id)} = {self.in_merge}.{quoted(self.id)}"
        values: dict[str, Column] = {quoted(name): col(f"source.{quoted(name)}") for name in names}
        deleted = col(f"source.{DELETED}")

        def merge() -> None:
            merging: Any = source.alias("source").mergeInto(self.sql, expr(equal))
            if self.feed or self.names.touched_only:
                merging = merging.whenMatched(deleted).delete()
            merging = merging.whenMatched(~deleted).update(values)
            merging.whenNotMatched(~deleted).insert(values).merge()

        said = {
            USER_METADATA: self.user_metadata,
            f"{TXN}AppId": self.stream,
            f"{TXN}Version": str(batch),
        }
        # of the batch's own session, which no one else uses
        with settings(source.sparkSession, said):
            again(merge)


def last_changes(frame: DataFrame, id: str) -> DataFrame:
    """What the change data feed says last of every id; DELETED tells whether the row is gone.

    A commit that removes a row and adds it, as an overwrite does, has it in the end. So has an
    update, unless it changed the id itself: then nothing comes after what was there before.
    """
    gone = col(CHANGE).isin("delete", "update_preimage")
    newest_first = Window.partitionBy(quoted(id)).orderBy(col(VERSION).desc(), gone)
    ranked = frame.withColumn(DELETED, gone).withColumn("_redcal_rank", rank().over(newest_first))
    return ranked.where("_redcal_rank = 1").drop("_redcal_rank", CHANGE, VERSION, TIME)


def _in_words(counts: Any, shown: list[Any]) -> list[str]:
    lines = ["the data: output.mode: merge needs an id on every row, and no id twice in a batch:"]
    if counts["nulls"]:
        lines.append(f"{counts['nulls']:,} rows without an id")
    if counts["twice"]:
        lines.append(
            f"{counts['twice']:,} ids more than once, such as {', '.join(map(str, shown))}"
        )
    return [*lines, "fix them, or start again with output.mode: append and another output.table"]

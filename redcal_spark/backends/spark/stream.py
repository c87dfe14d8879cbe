"""Rows as they arrive: from Delta's streaming source, through the pair, into the target, once each.

Appended rows go through Delta's own sink, merged ones through a MERGE a batch; either knows by the
number of the batch what it has already, so that a stream that died goes on as if it had not.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from redcal_spark.backends.backend import Listen
from redcal_spark.backends.comments import of_rows
from redcal_spark.backends.names import Place
from redcal_spark.backends.spark.arrow_batches import small_batches
from redcal_spark.backends.spark.checkpoint import Checkpoint, Owner
from redcal_spark.backends.spark.errors import is_sparks, message_of
from redcal_spark.backends.spark.frames import apply_to_frame, arrow_schema
from redcal_spark.backends.spark.merge_batch import MergeBatch
from redcal_spark.backends.spark.query import follow
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.tables import explained, refused, unread
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.backends.store import Commit, rows_of, run_of
from redcal_spark.backends.target import RUN_ID, Target, target_of
from redcal_spark.config.redaction import Redaction
from redcal_spark.config.schema import Config
from redcal_spark.config.tables import sibling
from redcal_spark.core.fitted import Fitted
from redcal_spark.errors import InputError, RunError, UsageError

log = logging.getLogger(__name__)

FILES = 1_000  # of the source in one batch; Delta's own default
FEED = "delta.enableChangeDataFeed"
CHANGED = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")


def stream_of(
    store: SparkStore, config: Config, pair: Fitted, model: tuple[str, str]
) -> SparkStream:
    """The stream that a configuration describes. model: its digest, and what people call it."""
    given, target = config.input, target_of(config)
    problems = []
    if target.mode == "overwrite":
        problems.append(
            "output.mode: overwrite replaces the whole table; a stream needs append, or merge on "
            "input.id"
        )
    if given.version is not None:
        problems.append("input.version: a fixed version gets no new rows; leave it out")
    if any(given.score_table(number) is not None for number in range(1, given.n_models + 1)):
        problems.append("input: a stream reads one table; join the scores into it first")
    checkpoint = config.output.checkpoint
    if checkpoint is None and Place(target.table).is_path:
        checkpoint = sibling(target.table, "checkpoint")
    if checkpoint is None:
        problems.append(
            "output.checkpoint: is required, because output.table is a catalog name: give a path "
            "where the stream keeps its offset"
        )
    elif not Place(checkpoint).is_path:
        here = f"a folder of that name is ./{checkpoint}"
        problems.append(f"output.checkpoint: must be a path, got {checkpoint!r} ({here})")
    elif not store.has(f"{checkpoint}/stream"):
        problem = store.check_target(checkpoint, "output.checkpoint")
        problems += [] if problem is None else [problem.replace("a Delta table", "a checkpoint")]
    if problems:
        raise UsageError("\n".join(problems))
    assert checkpoint is not None
    return SparkStream(store, given.table, pair, target, checkpoint, model, config.hidden)


class SparkStream:
    """One source, one pair, one target, and how far it is. Nothing runs before `begin`."""

    def __init__(
        self,
        store: SparkStore,
        source: str,
        pair: Fitted,
        target: Target,
        checkpoint: str,
        model: tuple[str, str],
        hidden: Redaction,
    ):
        self.store, self.spark = store, store.spark
        self.source, self.pair, self.target = source, pair, target
        self._hidden = hidden
        self._checkpoint = Checkpoint(self.spark, checkpoint)
        self.checkpoint = self._checkpoint.path
        self.model, self.model_name = model
        self._phase = 0
        self._open()

    # --- what can be seen beforehand ------------------------------------------------------------

    def _open(self) -> None:
        """The source as it is now, and whether its rows fit the target."""
        table = self.store.open(self.source)
        self.identity = table.identity()
        if self.identity["kind"] != "delta":
            raise UsageError(
                f"input.table: {self.source} is not a Delta table; only a Delta table tracks which "
                "rows are new"
            )
        self._empty = self._applied(table.frame.limit(0))
        self.store.check_rows(self.target, arrow_schema(self._empty))
        self._checkpoint.check(self._ours)

    @property
    def owner(self) -> Owner | None:
        """What the checkpoint belongs to; None if it is new."""
        return self._checkpoint.owner

    @property
    def _ours(self) -> Owner:
        """Who the owner of a new checkpoint is, by names that may be kept."""
        target = Place(self.target.table).absolute.name
        return Owner(
            stream=f"redcal-{secrets.token_hex(8)}",
            source=self._hidden.text(self.source),
            source_id=self.identity["id"],
            target=self._hidden.text(target),
            target_id=hashlib.sha256(target.encode()).hexdigest(),
            mode=self.target.mode,
            model=self.model,
            model_name=self._hidden.text(self.model_name),
            feed=False,
            begun_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        )

    @property
    def other_model(self) -> str | None:
        """Why the checkpoint is of another model, in words, if it is."""
        owner = self.owner
        if owner is None or owner.model == self.model:
            return None
        again = "replaced" if self.target.mode == "merge" else "appended once more"
        return (
            f"output.checkpoint: {self.checkpoint} belongs to another model: {owner.model_name}, "
            f"not {self.model_name}. --switch-model continues from its offset with the new model; "
            f"rows already written keep their scores. Another output.checkpoint starts from the "
            f"first row; all rows are then {again}"
        )

    # --- running --------------------------------------------------------------------------------

    def begin(self, commit: Commit, switch: bool) -> int:
        """Make the checkpoint ours, and the target ready for the rows; returns its version.

        switch: a checkpoint of another model is taken over.
        """
        self._checkpoint.look()  # someone may have been here since we looked
        ours = self._ours
        if self.owner is None:
            feed = self.target.mode == "merge" and self._has_feed()
            self._checkpoint.put(replace(ours, feed=feed))
        self._checkpoint.check(ours)
        if self.other_model is not None:
            if not switch:
                raise UsageError(self.other_model)
            assert self.owner is not None
            number, name = self.owner.number + 1, ours.model_name
            switched = replace(self.owner, number=number, model=self.model, model_name=name)
            self._checkpoint.put(switched)
        return self._ready(commit)

    def _has_feed(self) -> bool:
        sql = Place(self.source).absolute.sql
        detail = self.spark.sql(f"DESCRIBE DETAIL {sql}").select("properties").collect()
        return str((detail[0][0] or {}).get(FEED, "false")).lower() == "true"

    def _ready(self, commit: Commit) -> int:
        """The target with all the columns that rows will have."""
        name = self.target.table
        old = self.store.existing(name)
        if old is None:
            said = of_rows(self.target.names(self.pair.columns, self.pair.losses))
            return self.store.put_frame(self.target, self._empty, commit, said)[0]
        empty = self._empty
        if self.target.mode == "append":
            empty = empty.withColumn(RUN_ID, lit(commit.run_id))
        if not set(empty.columns) <= set(old.schema.names):  # refused before, unless it may evolve
            self._phase += 1
            self.store.write_frame(
                name, empty, "append", replace(commit, phase=self._phase), evolve=True
            )
        return int(self.store.open(name).identity()["version"])

    def run(
        self, commit: Commit, every: float | None, stop: threading.Event, listen: Listen
    ) -> None:
        """Write what is there; every: and what comes, looking so many seconds apart, until `stop`.

        A source that gets new columns on the way is opened anew, and may be refused then.
        """
        while True:
            try:
                ended = follow(self._start(commit, every), stop, listen)
            except Exception as err:
                if not is_sparks(err):
                    raise
                before = self._empty.schema
                if "DELTA_SCHEMA_CHANGED" in str(err):
                    self._open()
                if self._empty.schema == before:
                    raise self._explain(err) from err
                log.info("the schema of %s changed: continuing with its new columns", self.source)
                self._ready(commit)
                continue
            if every is None and not ended:
                raise RunError(
                    "stopped before all rows were written; the same command continues from here"
                )
            return

    def _start(self, commit: Commit, every: float | None) -> Any:
        assert self.owner is not None
        place, feed = Place(self.source).absolute, self.owner.feed
        reader = self.spark.readStream.format("delta").option("maxFilesPerTrigger", str(FILES))
        if feed:
            reader = reader.option("readChangeFeed", "true")
        frame = reader.load(place.name) if place.is_path else reader.table(place.sql)
        target = Place(self.target.table).absolute
        if self.target.mode == "append":
            rows = self._applied(frame).withColumn(RUN_ID, lit(commit.run_id))
            writer = rows.writeStream.format("delta").outputMode("append")
            writer = writer.option("userMetadata", commit.user_metadata)
        else:
            assert self.target.id is not None
            writer = frame.writeStream.foreachBatch(
                MergeBatch(
                    self.pair,
                    self.target.names(self.pair.columns, self.pair.losses),
                    self.target.skip,
                    self.target.id,
                    target.sql,
                    target.in_merge,
                    self.owner.stream,
                    commit.user_metadata,
                    feed,
                )
            )
        writer = writer.option("checkpointLocation", self._checkpoint.state)
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every:g} seconds")
        with small_batches(self.spark):  # a stream keeps the settings that it is started with
            if self.target.mode == "merge":
                return writer.start()
            return writer.start(target.name) if target.is_path else writer.toTable(target.sql)

    def _applied(self, frame: DataFrame) -> DataFrame:
        names = self.target.names(self.pair.columns, self.pair.losses)
        return apply_to_frame(frame, self.pair, names, self.target.skip)

    def written(self, run_id: str) -> tuple[int | None, int]:
        """The newest version of the target that a run wrote, if any, and how many rows in all."""
        with explained(partial(unread, self.target.table)):
            versions = self.store.history(self.target.table)
        ours = [row for row in versions if run_of(row["userMetadata"]) == run_id]
        rows = sum(rows_of(row["operationMetrics"]) for row in ours)
        return max((int(row["version"]) for row in ours), default=None), rows

    # --- what went wrong ------------------------------------------------------------------------

    def _explain(self, err: Exception) -> Exception:
        text = str(err)
        bad = refused(text, self.source)
        if bad is not None:
            return InputError(
                f"{bad}\n  (the batch with them was not written, and will be tried again)"
            )
        if any(word in text for word in CHANGED):
            return self._changed(text)
        if "No module named 'redcal_spark'" in text:
            return RunError(
                "output.mode: merge of a stream runs at the Spark Connect server: install "
                "redcal-spark[spark] there, or use output.mode: append"
            )
        if (worker := of_worker(err, self.source)) is not None:
            return worker
        cause = re.search(r"terminated with exception: (.*)", text)
        return RunError(f"{self.source}: {cause[1][:500] if cause else message_of(err)}")

    def _changed(self, text: str) -> InputError:
        match = re.search(r"for example (\w+).*?at version (\d+)", text, re.DOTALL)
        what = f"version {match[2]} ({match[1]})" if match else "a version"
        sql = Place(self.source).absolute.sql
        ways = [f"ALTER TABLE {sql} SET TBLPROPERTIES ({FEED} = true)"]
        if self.target.mode == "append":
            ways.append("then output.mode: merge, with another output.table and checkpoint")
        else:  # rows that were removed before the feed began would stay in the old one
            ways.append("then start again with another output.table and checkpoint")
        return InputError(
            f"{self.source}: {what} changed or removed rows, and this stream reads appended rows "
            "only. To read changes, use the change data feed:\n"
            f"  {', '.join(ways)}\n"
            "  or write the table as it is now with a plain: redcal apply"
        )

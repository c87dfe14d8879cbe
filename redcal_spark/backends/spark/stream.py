"""Rows as they arrive: from Delta's streaming source, through the pair, into the target, once each.

Appended rows go through Delta's own sink, merged ones through a MERGE a batch; either knows by the
number of the batch what it has already, so that a stream that died goes on as if it had not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from redcal_spark.backends.spark.errors import is_sparks, told
from redcal_spark.backends.spark.frames import apply_to_frame, arrow_schema
from redcal_spark.backends.spark.merge_batch import MergeBatch
from redcal_spark.backends.spark.tables import (
    Place,
    explained,
    refused,
    unread,
    unwritten,
)
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.backends.store import Commit, rows_of, run_of
from redcal_spark.backends.target import RUN_ID, Existing, Target, target_of
from redcal_spark.config.redaction import Redaction
from redcal_spark.config.schema import Config
from redcal_spark.config.tables import sibling
from redcal_spark.core.fitted import Fitted
from redcal_spark.errors import InputError, RunError, UsageError

log = logging.getLogger(__name__)

FILES = 1_000  # of the source in one batch; Delta's own default
POLL = 0.5  # seconds between two looks at a running query
SETTLE = 60.0  # seconds that a batch gets to finish when the stream is told to stop
FEED = "delta.enableChangeDataFeed"
CHANGED = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")
Told = Callable[[int | None, int], None]  # the newest version that was read, and new rows


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What a checkpoint belongs to: one source, one model, one target. A line of JSON beside it.

    number: of the last one who took it over. feed: whether the source's change data feed is read; a
    stream cannot change that on its way.
    """

    stream: str  # its name
    source: str  # as in the configuration: what variables stand for is not kept
    source_id: str
    target: str
    target_id: str
    mode: str
    model: str
    model_name: str
    feed: bool
    begun_at: str
    number: int = 0


OWNER = ", ".join(
    f"{field.name} { {'bool': 'boolean', 'int': 'int'}.get(str(field.type), 'string') }"
    for field in fields(Owner)
)


def stream_of(store: Any, config: Config, pair: Fitted, model: tuple[str, str]) -> SparkStream:
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
    if any(given.score_table(number) is not None for number in (1, 2)):
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
    elif not Path(checkpoint, "stream").exists():
        problem = store.check_target(checkpoint, "output.checkpoint")
        problems += [] if problem is None else [problem.replace("a Delta table", "a checkpoint")]
    if problems:
        raise UsageError("\n".join(problems))
    assert checkpoint is not None
    return SparkStream(store, given.table, pair, target, checkpoint, model, config.hidden)


class SparkStream:
    """One source, one pair, one target, and how far it is. Nothing runs before `begin` and `run`.

    owner: what the checkpoint says of itself; None if it is new.
    """

    def __init__(
        self,
        store: Any,
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
        self.checkpoint = Place(checkpoint).absolute.name.rstrip("/")
        self.model, self.model_name = model
        self.owner = self._owner()
        self._phase = 0
        self._open()

    # --- what can be seen beforehand ------------------------------------------------------------

    def _open(self) -> None:
        """The source as it is now, and whether its rows fit the target."""
        table = self.store.open(self.source)
        self.identity: dict[str, Any] = table.identity()
        if self.identity["kind"] != "delta":
            raise UsageError(
                f"input.table: {self.source} is not a Delta table; only a Delta table tracks which "
                "rows are new"
            )
        self._empty = self._applied(table.frame.limit(0))
        self.store.check_rows(self.target, arrow_schema(self._empty))
        self._check_owner()

    def _owner(self) -> Owner | None:
        try:
            found = self.spark.read.schema(OWNER).json(f"{self.checkpoint}/stream").collect()
        except PySparkException as err:
            if "PATH_NOT_FOUND" not in str(err):
                raise RunError(f"{self.checkpoint}: cannot be read: {told(err)}") from err
            return None
        owners = [Owner(**row.asDict()) for row in found]
        # of two that were new at the same time, both see the same one as the owner
        return max(owners, key=lambda owner: (owner.number, owner.stream), default=None)

    def _check_owner(self) -> None:
        owner = self.owner
        if owner is None:
            return
        source, target = self._shown
        for what, theirs, ours, known in (
            ("source", owner.source, source, owner.source_id == self.identity["id"]),
            ("target", owner.target, target, owner.target_id == self._target_id),
            ("output.mode", owner.mode, self.target.mode, owner.mode == self.target.mode),
        ):
            if not known:
                raise UsageError(
                    f"output.checkpoint: {self.checkpoint} belongs to another {what}: {theirs}"
                    f"{' as it was then' if theirs == ours else f', not {ours}'} (begun "
                    f"{owner.begun_at}); name another checkpoint to start again"
                )

    @property
    def _shown(self) -> tuple[str, str]:
        """Source and target by names that may be kept."""
        target = Place(self.target.table).absolute.name
        return self._hidden.text(self.source), self._hidden.text(target)

    @property
    def _target_id(self) -> str:
        return hashlib.sha256(Place(self.target.table).absolute.name.encode()).hexdigest()

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
        self.owner = self._owner()  # someone may have been here since we looked
        if self.owner is None:
            self._put(self._fresh())
        self._check_owner()
        if self.other_model is not None:
            if not switch:
                raise UsageError(self.other_model)
            assert self.owner is not None
            number, name = self.owner.number + 1, self._hidden.text(self.model_name)
            self._put(replace(self.owner, number=number, model=self.model, model_name=name))
        return self._ready(commit)

    def _fresh(self) -> Owner:
        source, target = self._shown
        return Owner(
            stream=f"redcal-{secrets.token_hex(8)}",
            source=source,
            source_id=self.identity["id"],
            target=target,
            target_id=self._target_id,
            mode=self.target.mode,
            model=self.model,
            model_name=self._hidden.text(self.model_name),
            feed=self.target.mode == "merge" and self._has_feed(),
            begun_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        )

    def _put(self, owner: Owner) -> None:
        place = f"{self.checkpoint}/stream"
        with explained(partial(unwritten, place)):
            line = self.spark.createDataFrame([asdict(owner)], OWNER).coalesce(1)
            line.write.mode("append").json(place)
        self.owner = self._owner()

    def _has_feed(self) -> bool:
        sql = Place(self.source).absolute.sql
        found = self.spark.sql(f"DESCRIBE DETAIL {sql}").select("properties").collect()
        return str((found[0][0] or {}).get(FEED, "false")).lower() == "true"

    def _ready(self, commit: Commit) -> int:
        """The target with all the columns that rows will have."""
        name = self.target.table
        old: Existing | None = self.store.existing(name)
        if old is None:
            version: int = self.store.put_frame(self.target, self._empty, commit)
            return version
        empty = self._empty
        if self.target.mode == "append":
            empty = empty.withColumn(RUN_ID, lit(commit.run_id))
        if not set(empty.columns) <= set(old.schema.names):  # refused before, unless it may evolve
            self._phase += 1
            self.store.write_frame(
                name, empty, "append", replace(commit, phase=self._phase), evolve=True
            )
        newest: int = self.store.open(name).identity()["version"]
        return newest

    def run(self, commit: Commit, every: float | None, stop: threading.Event, listen: Told) -> None:
        """Write what is there; every: and what comes, looking so many seconds apart, until `stop`.

        A source that gets new columns on the way is opened anew, and may be refused then.
        """
        while True:
            try:
                ended = self._follow(self._start(commit, every), stop, listen)
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
        writer = writer.option("checkpointLocation", f"{self.checkpoint}/state")
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every:g} seconds")
        if self.target.mode == "merge":
            return writer.start()
        return writer.start(target.name) if target.is_path else writer.toTable(target.sql)

    def _applied(self, frame: DataFrame) -> DataFrame:
        names = self.target.names(self.pair.columns, self.pair.losses)
        rows: DataFrame = apply_to_frame(frame, self.pair, names, self.target.skip)
        return rows

    def _follow(self, query: Any, stop: threading.Event, listen: Told) -> bool:
        """Until the query ends by itself (true), or is told to when its batch is done."""
        seen, ended = -1, False
        try:
            while not (ended := bool(query.awaitTermination(POLL))):
                seen = _listened(query, seen, listen)
                listen(None, 0)  # there is someone to listen still
                if stop.is_set():
                    end = time.monotonic() + SETTLE
                    while _busy(query) and time.monotonic() < end:
                        time.sleep(POLL / 5)
                    break
            _listened(query, seen, listen)
        finally:
            query.stop()
        return ended

    def written(self, run_id: str) -> tuple[int | None, int]:
        """The newest version of the target that a run wrote, if any, and how many rows in all."""
        with explained(partial(unread, self.target.table)):
            found = self.store.history(self.target.table)
        ours = [row for row in found if run_of(row["userMetadata"]) == run_id]
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
        told_ = re.search(r"terminated with exception: (.*)", text)
        return RunError(f"{self.source}: {told_[1][:500] if told_ else told(err)}")

    def _changed(self, text: str) -> InputError:
        found = re.search(r"for example (\w+).*?at version (\d+)", text, re.DOTALL)
        what = f"version {found[2]} ({found[1]})" if found else "a version"
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


def _listened(query: Any, seen: int, listen: Told) -> int:
    """Tell of the batches since the last look."""
    for progress in query.recentProgress:
        batch, [source] = int(progress["batchId"]), progress["sources"]
        rows = int(source["numInputRows"])  # Connect does not sum them up
        if batch > seen and rows:
            seen = batch
            listen(_version(source["endOffset"]), rows)
    return seen


def _version(offset: Any) -> int | None:
    """The version of the source that a batch ended in; the offset names the next one if all of it
    was read."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(found, dict) or "reservoirVersion" not in found:
        return None
    return int(found["reservoirVersion"]) - (int(found["index"]) < 0)


def _busy(query: Any) -> bool:
    status = query.status
    return bool(query.isActive and status["isTriggerActive"] and status["isDataAvailable"])

"""A streaming query that runs: how far it is, and when it ends."""

from __future__ import annotations

import ast
import json
import threading
import time
from typing import Any

from redcal_spark.backends.backend import Listen

POLL = 0.5  # seconds between two looks at a running query
SETTLE = 60.0  # seconds that a batch gets to finish when the stream is told to stop


def follow(query: Any, stop: threading.Event, listen: Listen) -> bool:
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


def _listened(query: Any, seen: int, listen: Listen) -> int:
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
    end = _object(offset) if isinstance(offset, str) else offset
    if not isinstance(end, dict) or "reservoirVersion" not in end:
        return None
    return int(end["reservoirVersion"]) - (int(end["index"]) < 0)


def _object(text: str) -> Any:
    """Of JSON; some PySparks (4.1) hand it over as the text of a Python dict instead."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return None


def _busy(query: Any) -> bool:
    status = query.status
    return bool(query.isActive and status["isTriggerActive"] and status["isDataAvailable"])

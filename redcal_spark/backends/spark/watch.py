"""How far a Spark job is, looked at while it runs: by what its tasks report, or by Connect."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from redcal_spark.backends.spark import reports

EVERY = 1.0  # seconds between two looks

Tell = Callable[[int], Any]  # how much of all is done


class Growing:
    """Takes how much is done in all, and passes on how much more that is than before."""

    def __init__(self, progress: Tell):
        self._progress = progress
        self._known = 0

    def __call__(self, done: int) -> None:
        self._progress(done - self._known)
        self._known = done


class Watch:
    """A job, from its start to its end; `tell` hears of it about once a second, even of nothing.

    place: a folder that driver and workers see, in which tasks report; None: there is none. Then
    Spark Connect tells how many tasks are done, and `total` what all of them are worth.
    """

    def __init__(self, spark: SparkSession, place: str | None, tell: Tell, total: int | None):
        self.folder = None if place is None else f"{place}/reports_{secrets.token_hex(4)}"
        self._spark, self._tell, self._total = spark, tell, total
        self._known = 0  # of what Connect told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="redcal-progress", daemon=True)

    def rows(self, reader: Any) -> Any:
        """What reads the rows of a task, with reports."""
        return reports.counted_rows(reader, self.folder)

    def cells(self, source: Any) -> Any:
        """What reads the cells of a task, with reports."""
        return reports.counted_cells(source, self.folder)

    def __enter__(self) -> Watch:
        if self.folder is not None:
            os.makedirs(self.folder, exist_ok=True)
        else:
            self._with_handler("registerProgressHandler")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self._with_handler("removeProgressHandler")

    def _with_handler(self, name: str) -> None:
        try:
            getattr(self._spark, name)(self._heard)
        except PySparkException:  # Connect alone has these
            return

    def _heard(self, stages: Iterable[Any] | None, *_: object, **__: object) -> None:
        """The stage with most tasks is the one that goes over the rows."""
        known = [(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()]
        tasks, ended = max(known, default=(0, 0))
        if tasks and self._total is not None:
            self._known = max(self._known, self._total * ended // tasks)

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            so_far = self._known if self.folder is None else self._reported(self.folder)
            self._tell(so_far if self._total is None else min(so_far, self._total))

    def _reported(self, folder: str) -> int:
        with suppress(OSError):
            self._known = max(self._known, reports.done(folder))
        return self._known

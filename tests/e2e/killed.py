"""`redcal`, killed at a chosen moment: `python -m tests.e2e.killed MOMENT COMMAND ...`.

SIGKILL to the whole process group, so that Spark's own process dies with it; or what INSTEAD says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from redcal_spark.cli import main
from redcal_spark.runs import patch_writer, start
from redcal_spark.runs.claim import Claim
from redcal_spark.runs.patch_writer import Progress
from redcal_spark.runs.run import Run

Test = Callable[..., bool]
INSTEAD = "REDCAL_TEST_STRIKE"  # a variable that has a command for the shell


def kill() -> None:
    if INSTEAD in os.environ:
        subprocess.run(os.environ[INSTEAD], shell=True, check=True)
    else:
        os.killpg(0, signal.SIGKILL)


def soon(seconds: float) -> Callable[[], None]:
    """In the middle of what is called next."""
    return lambda: threading.Timer(seconds, kill).start()


def at(owner: Any, name: str, strike: Callable[[], None] = kill, **which: Any) -> None:
    """Strike when the function is called: the nth time, among calls that pass a test.

    after: when it has returned.
    """
    original, calls = getattr(owner, name), 0
    test, nth, after = which.get("test"), which.get("nth", 1), which.get("after", False)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        hit = test is None or test(*arguments, **named)
        calls += hit
        if hit and calls == nth and not after:
            strike()
        result = original(*arguments, **named)
        if hit and calls == nth and after:
            strike()
        return result

    setattr(owner, name, wrapped)


def when(path: str) -> None:
    """Strike as soon as a file is there, whoever makes it."""

    def watch() -> None:
        while not os.path.exists(path):
            time.sleep(0.001)
        kill()

    threading.Thread(target=watch, daemon=True).start()


def prepare_stream(moment: str) -> bool:
    """A batch is one file of the source; its rows go to out/rows, whose version 0 has none."""
    from redcal_spark.backends.spark import stream
    from redcal_spark.backends.spark.merge_batch import MergeBatch

    stream.FILES = 1
    state, written = "out/rows_checkpoint/state", "out/rows/_delta_log/00000000000000000001.json"
    moments: dict[str, Callable[[], None]] = {
        "before the first batch": lambda: at(stream.SparkStream, "_start"),
        "in a batch": lambda: when(f"{state}/offsets/0"),
        "after a write": lambda: when(written),
        "between batches": lambda: when(f"{state}/commits/0"),
        "before a merge": lambda: at(MergeBatch, "merge", nth=2),
        "in a merge": lambda: at(MergeBatch, "merge", soon(0.7), nth=2),
        "after a merge": lambda: at(MergeBatch, "merge", nth=2, after=True),
    }
    from redcal_spark.backends.spark import direct_write

    moments |= {
        "files of a new table": lambda: at(direct_write, "create_table_with_add_actions"),
        "files before their commit": lambda: at(direct_write._Job, "_add"),
        "files after their commit": lambda: at(direct_write._Job, "_add", after=True),
    }
    if moment in moments:
        moments[moment]()
    return moment in moments


def prepare(moment: str, store: Any, work: Any, delay: float) -> None:
    def to(kind: str) -> Test:
        return lambda _, name, *__: name.endswith(kind)

    write = "write"
    rows = (work, "write_rows")
    moments: dict[str, Callable[[], None]] = {
        "claim": lambda: at(start, "take", after=True),
        "scan": lambda: at(work, "scan", soon(delay)),
        "after the scan": lambda: at(work, "scan", after=True),
        "first patch": lambda: at(Progress, "patch", after=True),
        "inside a calibration": lambda: at(
            Progress, "patch", test=lambda _, p, __: p.kind == "calibrate", nth=2, after=True
        ),
        "between rounds": lambda: at(Run, "_round", nth=2),
        "write of the patches": lambda: at(store, write, soon(delay / 5), test=to("_patches")),
        "after the patches": lambda: at(store, write, test=to("_history")),
        "write of the history": lambda: at(store, write, soon(delay / 5), test=to("_history")),
        "after the rows, before the metrics": lambda: at(store, write, test=to("_metrics")),
        "write of the metrics": lambda: at(store, write, soon(delay / 5), test=to("_metrics")),
        "write of the rows": lambda: at(*rows, soon(delay / 2)),
        "before the rows": lambda: at(*rows),
        "after the rows": lambda: at(*rows, after=True),
        "before the ledger's last write": lambda: at(Claim, "end"),
        "after the ledger's last write": lambda: at(Claim, "end", after=True),
    }
    moments[moment]()


def run(moment: str, *command: str) -> int:
    patch_writer.EVERY = patch_writer.SHARE = 0  # every patch is written at once
    if "spark" in command:
        from redcal_spark.backends.spark.backend import SparkBackend
        from redcal_spark.backends.spark.store import SparkStore

        if not prepare_stream(moment):
            prepare(moment, SparkStore, SparkBackend, 1.5)
    else:
        from redcal_spark.backends.local.backend import LocalBackend
        from redcal_spark.backends.local.store import DeltaRsStore

        prepare(moment, DeltaRsStore, LocalBackend, 0.02)
    return main(command)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))

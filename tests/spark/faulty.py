"""Tasks that go wrong once: wrapped around the engine's own, and pickled by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from redcal_spark.backends.spark import direct_write, scan, stored_blocks

Fault = Literal["raise", "kill worker", "kill executor", "slow"]


def once(task: Any, fault: Fault, marker: str, at: int = 0) -> Callable[[Any], Iterator[Any]]:
    """The task, which in its first attempt at one partition fails after a batch that it gave."""

    def run(batches: Any) -> Iterator[Any]:
        import os
        import signal
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mine = context.partitionId() == 0
        if mine:
            with open(f"{marker}-{time.monotonic_ns()}", "w"):
                pass
        for number, batch in enumerate(task(batches)):
            yield batch
            if not (mine and number == at):
                continue
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if fault == "raise":
                raise RuntimeError("on purpose")
            if fault == "slow":
                time.sleep(20)
                continue
            victim = os.getpid()
            if fault == "kill executor":  # its daemon's parent
                with open(f"/proc/{os.getppid()}/stat") as file:
                    victim = int(file.read().rsplit(")", 1)[1].split()[1])
            os.kill(victim, signal.SIGKILL)
            time.sleep(20)

    return run


class Faults:
    """Puts a fault into the n-th task of a kind that the engine makes."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path):
        self._patch = patch
        self._folder = folder

    def __call__(self, name: str, fault: Fault, number: int = 0, at: int = 0) -> Path:
        """name: ScanTask, AskTask, KeepTask, WriteTask. The file exists once it happened.

        at: the number of the batch after which it happens.
        """
        marker = self._folder / f"{name}-{fault.replace(' ', '-')}"
        modules: list[Any] = [scan, stored_blocks, direct_write]
        owner = next(module for module in modules if hasattr(module, name))
        plain, made = getattr(owner, name), [0]

        def make(*arguments: Any, **named: Any) -> Any:
            made[0] += 1
            task = plain(*arguments, **named)
            return once(task, fault, str(marker), at) if made[0] == number + 1 else task

        self._patch.setattr(owner, name, make)
        return marker


def attempts(marker: Path) -> int:
    """How often the partition that failed was begun."""
    return len(list(marker.parent.glob(f"{marker.name}-*")))

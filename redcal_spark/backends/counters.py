"""Counters: what a run took, in plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass
class Pass:
    """One pass over rows: those of a table, or the active ones where Spark keeps them.

    bytes: of packed rows that it read or wrote, where rows were packed.
    """

    name: str
    rows: int | None = None
    bytes: int | None = None
    seconds: float = 0.0


Heard = Callable[[str, int, int], Any]  # a pass, and how many bytes of how many it is through


def _nobody(name: str, done: int, total: int) -> None:
    """Hears how far a pass is, and does not care."""


@dataclass
class Counters:
    """Grows while a run works. heard: by those who want to know how far a pass is.

    jobs: actions on Spark that were started for the rows: a frame written or collected.
    rows_scanned: rows read from tables. rows_written: reconciled rows that were written.
    scratch_bytes: packed rows written to scratch.
    """

    jobs: int = 0
    rows_scanned: int = 0
    rows_written: int = 0
    scratch_bytes: int = 0
    passes: list[Pass] = field(default_factory=list)
    heard: Heard = field(default=_nobody, repr=False, compare=False)

    @contextmanager
    def timed(self, name: str) -> Iterator[Pass]:
        """A pass; who makes it says how much it was. One that fails does not count."""
        made, start = Pass(name), perf_counter()
        yield made
        made.seconds = perf_counter() - start
        self.passes.append(made)

    def clear(self) -> None:
        self.jobs = self.rows_scanned = self.rows_written = self.scratch_bytes = 0
        self.passes.clear()

    def to_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "rows_scanned": self.rows_scanned,
            "rows_written": self.rows_written,
            "scratch_bytes": self.scratch_bytes,
            "passes": len(self.passes),
        }

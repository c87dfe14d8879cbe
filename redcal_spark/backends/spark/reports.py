"""How far tasks are: each keeps a small file with a number, which the driver looks at.

No pyspark here: a worker finds this by importing the package, with numpy and pyarrow alone.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

EVERY = 1.0  # seconds between two reports of a task


class Report:
    """What one task has done so far. It is lost rather than waited for."""

    def __init__(self, folder: str):
        self._path = Path(folder, secrets.token_hex(8))
        self._done = 0
        self._due = time.monotonic() + EVERY

    def add(self, more: int) -> None:
        self._done += more
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        self._due = time.monotonic() + EVERY
        with suppress(OSError):
            self._path.write_text(str(self._done))


def done(folder: str) -> int:
    """What all tasks have done. One that was tried twice counts twice: more than all is all."""
    total = 0
    for path in Path(folder).iterdir():
        with suppress(OSError, ValueError):  # it is just being written
            total += int(path.read_text())
    return total


@dataclass(frozen=True)
class CountedRows:
    """Reads the rows of a task, and reports how many. reader: None where the rows come as such."""

    reader: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = Report(self.folder)
        for batch in batches if self.reader is None else self.reader(batches):
            yield batch
            report.add(batch.num_rows)
        report.write()


@dataclass(frozen=True)
class CountedCells:
    """Reads cells, and reports how many bytes they had."""

    source: Callable[[Iterable[pa.RecordBatch]], Iterator[tuple[str, memoryview]]]
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, memoryview]]:
        report = Report(self.folder)
        for kind, packed in self.source(batches):
            size = len(packed)
            yield kind, packed
            report.add(size)
        report.write()


def counted_rows(reader: Any, folder: str | None) -> Any:
    return reader if folder is None else CountedRows(reader, folder)


def counted_cells(source: Any, folder: str | None) -> Any:
    return source if folder is None else CountedCells(source, folder)

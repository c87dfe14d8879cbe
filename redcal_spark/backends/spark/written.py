"""What tasks wrote to scratch: blocks that jobs go over, or that come to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from redcal_spark.backends.spark.cells import (
    CELLS,
    DDL,
    FROM_ROWS,
    GROUPS,
    PORTIONS,
    STATISTICS,
    Cell,
    add_groups,
    cells_of,
    dense_groups,
    from_files,
    read_cells,
    unpack_groups,
)
from redcal_spark.backends.spark.frames import map_in_arrow
from redcal_spark.backends.spark.session import cores
from redcal_spark.backends.spark.tasks import CellSource
from redcal_spark.core.arrow import Batches
from redcal_spark.core.groups import Groups
from redcal_spark.core.kernel import Rules

TaskOf = Callable[[CellSource], Callable[[Batches], Iterator[pa.RecordBatch]]]  # and its cells
SHARE = 64 * 2**20  # bytes of cells that a task goes over, at most
COLLECTED = 128 * 2**20  # bytes of cells that come through the JVM at a time


class Manifest:
    """What tasks said of what they wrote: statistics, groups, and where the cells are."""

    def __init__(self, messages: Iterable[tuple[str, Any]]):
        self.statistics: list[Any] = []
        self.cells: list[Cell] = []
        self.rows: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._groups: dict[str, Any] | None = None
        for kind, data in messages:
            if kind == STATISTICS:
                self.statistics.append(data)
            elif kind == CELLS:
                cells, rows, sizes = cells_of(data)
                self.cells += cells
                self.rows += rows
                self.bytes += sizes
            elif kind == GROUPS:
                more = unpack_groups(data)
                self._groups = more if self._groups is None else add_groups(self._groups, more)

    def groups(self, rules: Rules) -> Groups:
        """Of the fitting rows, if they were grouped."""
        return Groups.none(rules) if self._groups is None else dense_groups(self._groups, rules)

    def bytes_of(self, kind: str, groups: Sequence[int] | None) -> int:
        """Of the cells of a kind; of some groups of it, about."""
        size = self.bytes[kind]
        if groups is None or self._groups is None or not self.rows[kind]:
            return size
        return int(size * int(self._groups["rows"][list(groups)].sum()) // self.rows[kind])


class Written(Protocol):
    """Blocks in scratch."""

    @property
    def manifest(self) -> Manifest: ...

    def passed(self, task: TaskOf, kinds: Sequence[str] = ("fit",)) -> DataFrame:
        """What a task says of the blocks of these kinds; not computed yet."""
        ...

    def fetch(self, kind: str, groups: Sequence[int] | None = None) -> Iterator[memoryview]:
        """Packed blocks at the driver: of some groups, or all."""
        ...


@dataclass(frozen=True)
class WrittenFiles:
    """In files that tasks wrote, which the driver sees, too."""

    spark: SparkSession
    folder: str
    manifest: Manifest

    def passed(self, task: TaskOf, kinds: Sequence[str] = ("fit",)) -> DataFrame:
        cells = [cell for cell in self.manifest.cells if cell.kind in kinds]
        size = sum(cell.length for cell in cells)
        tasks = max(1, 2 * cores(self.spark))
        source, shares = from_files(self.folder, cells, min(SHARE, size // tasks + 1))
        return map_in_arrow(self.spark.range(0, shares, 1, shares), task(source), DDL)

    def fetch(self, kind: str, groups: Sequence[int] | None = None) -> Iterator[memoryview]:
        chosen = None if groups is None else set(groups)
        cells = sorted(
            cell
            for cell in self.manifest.cells
            if cell.kind == kind and (chosen is None or cell.group in chosen)
        )
        return (data for _, data in read_cells(self.folder, cells))


@dataclass(frozen=True)
class WrittenRows:
    """In a table that Spark wrote. collected: brings the rows of a frame to the driver."""

    frame: DataFrame
    collected: Callable[[DataFrame], Iterator[tuple[str, Any]]] = field(repr=False)
    manifest: Manifest

    def passed(self, task: TaskOf, kinds: Sequence[str] = ("fit",)) -> DataFrame:
        cells = self.frame.where(col("kind").isin(list(kinds))).select("kind", "data")
        return map_in_arrow(cells, task(FROM_ROWS), DDL)

    def fetch(self, kind: str, groups: Sequence[int] | None = None) -> Iterator[memoryview]:
        cells = self.frame.where(col("kind") == kind)
        if groups is not None:
            cells = cells.where(col("group").isin([int(group) for group in groups]))
        times = min(PORTIONS, -(-self.manifest.bytes_of(kind, groups) // COLLECTED))
        for number in range(times):
            some = cells if times == 1 else cells.where(col("portion") % times == number)
            for _, data in self.collected(some):
                yield memoryview(pa.py_buffer(data))

"""What a Spark worker does with cells for `eta: auto` and for monitoring.

No pyspark here: a worker finds these by importing the package, with numpy and pyarrow alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from redcal_spark.backends.spark.cells import (
    AS_ROWS,
    FROM_ROWS,
    STATISTICS,
    Packer,
    SinkOf,
    row,
)
from redcal_spark.backends.spark.tasks import CellSource
from redcal_spark.core.arrow import Batches
from redcal_spark.core.folds import chosen
from redcal_spark.core.kernel import Rules, classify
from redcal_spark.core.packing import pack_effects, unpack_block
from redcal_spark.core.patch_effects import added_effects, patch_effects
from redcal_spark.core.patches import Patch


@dataclass(frozen=True)
class FoldTask:
    """The rows of a fold, from a level on, as cells. grouped: by their events."""

    rules: Rules
    fold: int
    level: int
    grouped: bool
    source: CellSource = FROM_ROWS
    sink: SinkOf = AS_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        sink = self.sink()
        packer = Packer("fit", sink, self.rules if self.grouped else None)
        for _, packed in self.source(batches):
            block = unpack_block(packed)
            assert block.fold is not None
            block = block.take(chosen(block.fold, self.fold, self.level))
            yield from packer.add(block, classify(block, self.rules)[1])
        yield from packer.close()
        yield from sink.close()


@dataclass(frozen=True)
class EffectsTask:
    """What every patch of a log does to rows: one row a task."""

    rules: Rules
    log: tuple[Patch, ...]
    heaviest: int  # the largest weight
    source: CellSource = FROM_ROWS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        blocks = (unpack_block(packed) for _, packed in self.source(batches))
        effects = (patch_effects(block, self.rules, self.log, self.heaviest) for block in blocks)
        total = added_effects(effects, self.log, self.rules.losses)
        yield row(STATISTICS, 0, pack_effects(total))

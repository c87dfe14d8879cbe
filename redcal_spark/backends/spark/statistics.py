"""What tasks tell of their rows, added up on workers where it is much.

No pyspark here: a worker finds these by importing the package, with numpy and pyarrow alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from redcal_spark.backends.spark.cells import CELLS, GROUPS, add_groups, row, unpack_groups
from redcal_spark.backends.spark.tasks import add_up
from redcal_spark.core.arrow import Batches
from redcal_spark.core.packing import (
    gathered_of,
    gathered_parts,
    pack,
    pack_changes,
    unpack,
    unpack_changes,
)

Kind = Literal["scan", "sums", "changes"]


@dataclass(frozen=True)
class MergeTask:
    """Adds up what tasks told, so that the driver gets few rows. kind: of the statistics."""

    kind: Kind

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        merged: dict[str, Any] = {}
        for batch in batches:
            kinds = batch.column(batch.schema.get_field_index("kind")).to_pylist()
            data = batch.column(batch.schema.get_field_index("data"))
            for kind, cell in zip(kinds, data, strict=True):
                if kind == CELLS:
                    yield row(kind, 0, cell.as_py())
                else:
                    known, more = merged.get(kind), self.unpacked(kind, cell.as_buffer())
                    merged[kind] = more if known is None else self.added(kind, known, more)
        for kind, total in merged.items():
            yield row(kind, 0, self.packed(kind, total))

    def unpacked(self, kind: str, packed: Any) -> Any:
        if kind == GROUPS:
            return unpack_groups(packed)
        if self.kind == "changes":
            return unpack_changes(packed)
        data, arrays = unpack(packed)
        return gathered_of(data, arrays) if self.kind == "scan" else (data, arrays)

    def added(self, kind: str, one: Any, two: Any) -> Any:
        if kind == GROUPS:
            return add_groups(one, two)
        if self.kind == "changes":
            return [a + b for a, b in zip(one, two, strict=True)]
        if self.kind == "scan":
            one.merge(two)
            return one
        total, arrays = dict(one[1]), two[1]
        add_up(total, arrays)
        return {name: one[0][name] + two[0][name] for name in one[0]}, total

    def packed(self, kind: str, total: Any) -> bytes:
        if kind == GROUPS:
            return pack({}, total)
        if self.kind == "changes":
            return pack_changes(total)
        return pack(*(gathered_parts(total) if self.kind == "scan" else total))

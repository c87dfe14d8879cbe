"""The patch log as people read it: by name, and changes as probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from redcal_spark.core.columns import Columns
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.patches import Patch, PatchLog, full_phi
from redcal_spark.core.tabular import Tabular

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("round", pa.int64()),
        ("kind", pa.string()),
        ("model", pa.string()),
        ("other", pa.string()),  # the model that it disagreed with
        ("loss", pa.string()),
        ("action_1", pa.string()),  # of the two, the first model's first
        ("action_2", pa.string()),
        ("action", pa.string()),  # of the model that is patched
        ("class", pa.string()),  # whose scores differed
        ("direction", pa.string()),
        ("rows", pa.int64()),
        ("share", pa.float64()),  # of the fitting rows
        ("largest_class", pa.string()),
        ("largest_change", pa.float64()),
        ("change", pa.list_(pa.float64())),  # of the probability of every class
    ]
)


class NamedLog(PatchLog, Tabular):
    """A patch log that knows what it speaks of. It is a tuple of patches, as any log."""

    columns: Columns
    losses: LossFamily
    rows: int
    shape: tuple[int, bool]  # classes, and whether scores are one column P(class 1)

    @classmethod
    def of(
        cls,
        log: Iterable[Patch],
        columns: Columns,
        losses: LossFamily,
        rows: int,
        shape: tuple[int, bool],
    ) -> NamedLog:
        named = cls(log)
        named.columns, named.losses, named.rows, named.shape = columns, losses, rows, shape
        return named

    def to_arrow(self) -> pa.Table:
        """A row a patch. `redcal log --json` has the same as indices and grid integers."""
        return pa.Table.from_pylist([self._row(patch) for patch in self], schema=SCHEMA)

    def _row(self, patch: Patch) -> dict[str, Any]:
        change = [phi / ONE for phi in full_phi(patch, *self.shape)]
        largest = max(range(len(change)), key=lambda j: (abs(change[j]), j))
        actions = () if patch.loss is None else self.losses[self.losses.place(patch.loss)].actions
        places = (patch.a1, patch.a2, patch.action)
        one, two, own = (None if a is None else actions[a] for a in places)
        at = patch.coordinate
        return {
            "step": patch.step,
            "round": patch.round,
            "kind": patch.kind,
            "model": self.columns.shown[patch.model - 1],
            "other": None if patch.other is None else self.columns.shown[patch.other - 1],
            "loss": patch.loss,
            "action_1": one,
            "action_2": two,
            "action": own,
            "class": None if at is None else self.columns.class_name(at),
            "direction": patch.direction,
            "rows": patch.rows,
            "share": patch.rows / self.rows,
            "largest_class": self.columns.class_name(largest),
            "largest_change": change[largest],
            "change": change,
        }

"""Roles: what each row was to the fit that made the model, as the column `split` tells it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from redcal_spark.core.columns import Layout
from redcal_spark.core.fixed_point import Mask
from redcal_spark.core.reading import with_label
from redcal_spark.core.splits import Split

FIT, HOLDOUT, NONE = "fit", "holdout", "none"


@dataclass(frozen=True)
class Roles:
    """How rows were split for a fit: `fit`, `holdout`, or `none` for rows that had no part in it.

    layout: of the rows that were fitted on, with their label. None: the model may have been fitted
    on these rows or on others, nobody can tell, and the column is null. split: None, if all rows
    with a label were fitted.
    """

    layout: Layout | None = None
    split: Split | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What is looked at to tell."""
        if self.layout is None:
            return ()
        split = () if self.split is None else (self.split.column,)
        weight = self.layout.columns.weight
        return (self.layout.columns.label, *(() if weight is None else (weight,)), *split)

    def column(self, batch: pa.RecordBatch, valid: Mask) -> pa.Array:
        """The role of every row. valid: those whose scores and id can be read."""
        if self.layout is None:
            return pa.nulls(batch.num_rows, pa.string())
        usable = valid & with_label(batch, self.layout)
        role = usable.astype(np.int8)
        if self.split is not None:
            fit, holdout = self.split.masks(batch)
            role = np.where(usable & fit, 1, np.where(usable & holdout, 2, 0)).astype(np.int8)
        return pa.array([NONE, FIT, HOLDOUT], pa.string()).take(pa.array(role))


UNKNOWN = Roles()

"""Parts of a table: some of its columns, rows of one run, or rows whose ids another table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.store import Table
from redcal_spark.backends.target import RUN_ID, Target
from redcal_spark.core.cells import Hashes, cell_hashes
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.roles import Roles
from redcal_spark.core.scan import BatchGroup, each_alone

# Rows as a pair would write them there, and what they were to its fit.
Made = tuple[Fitted, Target, Roles]


class View:
    """A table of which some rows or columns are left out."""

    def __init__(self, table: Table, schema: pa.Schema):
        self.name = table.name
        self.schema = schema
        self._table = table

    def count(self) -> int | None:
        return None

    def identity(self) -> dict[str, Any]:
        return self._table.identity()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))

    def _filtered(
        self, columns: Sequence[str] | None, by: str, keep: Callable[[pa.Array], pa.Array]
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are kept by what one column says of them."""
        wanted = list(self.schema.names if columns is None else columns)
        for batch in self._table.batches(list(dict.fromkeys([*wanted, by]))):
            kept = batch.filter(keep(batch.column(by)))
            if kept.num_rows:
                yield kept.select(wanted)


class SomeColumns(View):
    """Some of the columns."""

    def __init__(self, table: Table, names: Sequence[str]):
        super().__init__(table, pa.schema([table.schema.field(name) for name in names]))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._table.batches(self.schema.names if columns is None else columns)


class OfRun(View):
    """The rows of one run, in a table that runs append to."""

    def __init__(self, table: Table, run_id: str):
        super().__init__(table, table.schema)
        self._run_id = run_id

    def identity(self) -> dict[str, Any]:
        return self._table.identity() | {RUN_ID: self._run_id}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._filtered(columns, RUN_ID, lambda runs: pc.equal(runs, self._run_id))


class WithIds(View):
    """The rows whose id another table has; or those whose id it has not.

    Ids are held as hashes, eight bytes each.
    """

    def __init__(self, table: Table, other: Table, id: str, inside: bool):
        super().__init__(table, table.schema)
        self._id, self._inside = id, inside
        hashes = [cell_hashes(batch.column(0)) for batch in other.batches([id])]
        self._known: Hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        def keep(ids: pa.Array) -> pa.Array:
            return pa.array(np.isin(cell_hashes(ids), self._known, invert=not self._inside))

        return self._filtered(columns, self._id, keep)


class WithLabel(View):
    """The rows that have a label."""

    def __init__(self, table: Table, label: str):
        super().__init__(table, table.schema)
        self._label = label

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._filtered(columns, self._label, pc.is_valid)

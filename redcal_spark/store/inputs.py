"""The rows of a run: one table, or several joined on the id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from redcal_spark.columns import EXAMPLES, Columns, ScoreColumns
from redcal_spark.config import Input, ScoreTable, SplitByColumn
from redcal_spark.errors import InputError
from redcal_spark.splits import ColumnSplit, HashSplit, Split
from redcal_spark.store.base import Store, Table


def split_of(given: Input) -> Split | None:
    if given.split is None:
        return None
    if isinstance(given.split, SplitByColumn):
        return ColumnSplit(given.split.column, given.split.fit, given.split.judge)
    assert given.id is not None
    return HashSplit(given.id, given.split.judge_fraction, given.split.salt)


def open_input(store: Store, given: Input) -> tuple[Table, Columns]:
    """The input table, joined with the models' own tables where they have any; what is where."""
    own = [c for m in (1, 2) if given.score_table(m) is None for c in given.score_columns(m)]
    main = store.open(given.table, given.version, given.separator, own)
    names = [_scores(given, model, main.schema.names) for model in (1, 2)]
    columns = Columns(names[0], names[1], given.label, given.id, given.classes)
    sides = []
    for model in (1, 2):
        found = given.score_table(model)
        if found is not None:
            table = store.open(found.table, found.version, given.separator, found.columns)
            sides.append(_Side(table, found, given.id or "", _names(names[model - 1])))
    joined = JoinedTable(main, sides, given.id or "", given.join) if sides else main
    return joined, columns


def _scores(given: Input, model: int, taken: Sequence[str]) -> ScoreColumns:
    """Score columns; those of a table of their own are told apart where their names clash."""
    names: Sequence[str] = given.score_columns(model)
    if given.score_table(model) is not None:
        other = given.score_columns(3 - model)
        names = [f"model_{model}_{n}" if n in taken or n in other else n for n in names]
    return names[0] if len(names) == 1 else tuple(names)


def _names(scores: ScoreColumns) -> list[str]:
    return [scores] if isinstance(scores, str) else list(scores)


@dataclass
class _Side:
    """A table of scores, held in memory to be looked up by id."""

    table: Table
    given: ScoreTable
    main_id: str
    new_names: list[str]

    @property
    def id(self) -> str:
        return self.given.id or self.main_id

    @cached_property
    def fields(self) -> list[pa.Field]:
        """Its score columns, by the names they get."""
        self._check_columns()
        old = (self.table.schema.field(c) for c in self.given.columns)
        return [pa.field(new, f.type) for new, f in zip(self.new_names, old, strict=True)]

    def _check_columns(self) -> None:
        has = self.table.schema.names
        missing = [c for c in (self.id, *self.given.columns) if c not in has]
        if missing:
            raise InputError(
                "\n".join(
                    f"column {c!r} not found in {self.table.name}; it has: {', '.join(has)}"
                    for c in missing
                )
            )

    @cached_property
    def rows(self) -> pa.Table:
        self._check_columns()
        found = list(self.table.batches([self.id, *self.given.columns]))
        schema = pa.schema([self.table.schema.field(c) for c in (self.id, *self.given.columns)])
        return pa.Table.from_batches(found, schema).combine_chunks()

    @cached_property
    def scores(self) -> pa.Table:
        return self.rows.select(list(self.given.columns)).rename_columns(self.new_names)

    @cached_property
    def index(self) -> pd.Index[Any]:
        return _index(self.rows[self.id])

    def place(self, ids: pa.Array) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Where the ids stand; -1 for those that are not there."""
        wanted = _index(ids)
        if wanted.dtype != self.index.dtype:
            raise InputError(
                f"ids have different types: {ids.type} in the input, "
                f"{self.rows[self.id].type} in {self.table.name}"
            )
        return np.asarray(self.index.get_indexer(wanted))


def _index(ids: Any) -> pd.Index[Any]:
    if ids.null_count:
        raise InputError(f"{ids.null_count:,} ids are null; a join needs every id")
    found: pd.Index[Any] = pd.Index(ids.to_pandas())
    if pd.api.types.is_integer_dtype(found.dtype):
        found = found.astype("int64")
    return found


class JoinedTable:
    """Rows with the scores of other tables beside them, joined on the id.

    Ids must be unique and on every side. With the policy `inner` the others are left out.
    The other tables are held in memory, the rows are not.
    """

    def __init__(
        self, main: Table, sides: Sequence[_Side], id: str, policy: Literal["error", "inner"]
    ):
        self.name = main.name
        self._main, self._sides, self._id, self._policy = main, sides, id, policy
        if id not in main.schema.names:
            raise InputError(
                f"column {id!r} not found in {main.name}; it has: {', '.join(main.schema.names)}"
            )

    @property
    def schema(self) -> pa.Schema:
        added = [field for side in self._sides for field in side.fields]
        return pa.schema([*self._main.schema, *added])

    def count(self) -> int | None:
        return self._main.count()

    def identity(self) -> dict[str, Any]:
        return {
            "kind": "join",
            "tables": [self._main.identity(), *(s.table.identity() for s in self._sides)],
        }

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        good = self.left_out[1]
        added = [[n for n in s.new_names if columns is None or n in columns] for s in self._sides]
        wanted = None
        if columns is not None:
            theirs = {name for names in added for name in names}
            wanted = list(dict.fromkeys([self._id, *(c for c in columns if c not in theirs)]))
        start = 0
        for batch in self._main.batches(wanted):
            keep = np.flatnonzero(good[start : start + batch.num_rows])
            start += batch.num_rows
            if len(keep) < batch.num_rows:
                batch = batch.take(pa.array(keep))
            ids = batch.column(self._id)
            for side, names in zip(self._sides, added, strict=True):
                place = pa.array(side.place(ids))
                for name in names:
                    scores = side.scores[name].combine_chunks().take(place)
                    batch = batch.append_column(name, _one(scores))
            yield batch if columns is None else batch.select(list(columns))

    @cached_property
    def left_out(self) -> tuple[list[str], np.ndarray[Any, np.dtype[np.bool_]]]:
        """What is wrong with the ids, in words, and the rows that can be joined."""
        found = [batch.column(self._id) for batch in self._main.batches([self._id])]
        ids = pa.chunked_array(found, self._main.schema.field(self._id).type)
        index = _index(ids)
        told: list[str] = []
        good = ~index.duplicated(keep=False)
        _tell(told, f"ids occur more than once in {self._main.name}", index[~good].unique())
        for side in self._sides:
            twice = side.index.duplicated(keep=False)
            _tell(
                told, f"ids occur more than once in {side.table.name}", side.index[twice].unique()
            )
            good &= ~index.isin(side.index[twice])
            there = index.isin(side.index)
            _tell(
                told,
                f"ids of {self._main.name} are not in {side.table.name}",
                index[~there].unique(),
            )
            good &= there
            lonely = side.index[~side.index.isin(index)].unique()
            _tell(told, f"ids of {side.table.name} are not in {self._main.name}", lonely)
        if told and self._policy == "error":
            raise InputError(
                "the tables cannot be joined:\n  "
                + "\n  ".join(told)
                + "\n  (input.join: inner leaves such ids out)"
            )
        return told, good


def _one(array: Any) -> pa.Array:
    return array if not isinstance(array, pa.ChunkedArray) else pa.concat_arrays(array.chunks)


def _tell(told: list[str], what: str, ids: pd.Index[Any]) -> None:
    if len(ids):
        shown = ", ".join(repr(i) for i in ids[:EXAMPLES].tolist())
        told.append(f"{len(ids):,} {what}; first: {shown}")


def duplicate_ids(table: Table, id: str) -> list[str]:
    """For `check --ids`: what is wrong with the ids of a table, in words."""
    found = [batch.column(id) for batch in table.batches([id])]
    index = pd.Index(pa.chunked_array(found, table.schema.field(id).type).to_pandas())
    told: list[str] = []
    _tell(told, f"ids occur more than once in {table.name}", index[index.duplicated()].unique())
    nulls = sum(array.null_count for array in found)
    if nulls:
        told.append(f"{nulls:,} ids are null in {table.name}")
    return told

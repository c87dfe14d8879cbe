"""The rows of a run: one table, or several joined on the id."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.store import Store, Table
from redcal_spark.config.input import Input, ScoreTable, SplitByColumn
from redcal_spark.core.columns import Columns, ScoreColumns
from redcal_spark.core.number_text import plural
from redcal_spark.core.reading import EXAMPLES
from redcal_spark.core.scan import BatchGroup, each_alone
from redcal_spark.core.splits import ColumnSplit, HashSplit, Split
from redcal_spark.errors import InputError, JoinWarning


def split_of(given: Input) -> Split | None:
    if given.split is None:
        return None
    if isinstance(given.split, SplitByColumn):
        return ColumnSplit(given.split.column, given.split.fit, given.split.holdout)
    assert given.id is not None
    return HashSplit(given.id, given.split.holdout_fraction, given.split.salt)


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
            sides.append(Side(table, found, given.id or "", _names(names[model - 1])))
    joined = store.join(main, sides, given.id or "", given.join) if sides else main
    return joined, columns


def pinned(given: Input, identity: Mapping[str, Any]) -> Input:
    """The same input at the Delta versions that an identity names."""
    found = [identity] if identity["kind"] != "join" else list(identity["tables"])
    versions = [part.get("version") for part in found]
    changes: dict[str, Any] = {} if versions[0] is None else {"version": versions[0]}
    own = [m for m in (1, 2) if given.score_table(m) is not None]
    for model, version in zip(own, versions[1:], strict=True):
        if version is not None:
            table = given.score_table(model)
            assert table is not None
            changes[f"model_{model}"] = table.model_copy(update={"version": version})
    return given.model_copy(update=changes)


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
class Side:
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
        old = (self.table.schema.field(c) for c in self.given.columns)
        return [pa.field(new, f.type) for new, f in zip(self.new_names, old, strict=True)]

    @cached_property
    def rows(self) -> pa.Table:
        wanted = list(dict.fromkeys([self.id, *self.given.columns]))
        schema = pa.schema([self.table.schema.field(c) for c in wanted])
        found = [_plain_ids(batch, self.id) for batch in self.table.batches(wanted)]
        return pa.Table.from_batches(found, _plain_ids(schema.empty_table(), self.id).schema)

    @cached_property
    def scores(self) -> pa.Table:
        found = self.rows.select(list(self.given.columns)).rename_columns(self.new_names)
        return found.combine_chunks()

    @cached_property
    def index(self) -> pd.Index[Any]:
        return _index(self.rows[self.id])

    @cached_property
    def repeated(self) -> pd.Index[Any]:
        return _repeated(self.index)

    @cached_property
    def places(self) -> pd.Series[int]:
        """Where each id stands that stands there once."""
        once = ~self.index.isin(self.repeated)
        return pd.Series(np.flatnonzero(once), self.index[once])

    def place(self, ids: pd.Index[Any]) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Where the ids stand; -1 for those that do not, or more than once."""
        found = self.places.index.get_indexer(ids)
        return np.where(found < 0, -1, self.places.to_numpy()[found] if len(self.places) else -1)


class JoinedTable:
    """Rows with the scores of other tables beside them, joined on the id.

    Ids must be unique and on every side. With the policy `inner` the others are left out, and a
    warning says how many. The other tables are held in memory, the rows are not.
    """

    def __init__(
        self, main: Table, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ):
        self.name = main.name
        self._main, self._sides, self._id, self._policy = main, sides, id, policy
        check_join(main, sides, id)

    @property
    def schema(self) -> pa.Schema:
        added = [field for side in self._sides for field in side.fields]
        return pa.schema([*self._main.schema, *added])

    def count(self) -> int | None:
        return self._joined[1]

    def identity(self) -> dict[str, Any]:
        return {
            "kind": "join",
            "tables": [self._main.identity(), *(s.table.identity() for s in self._sides)],
        }

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        repeated, _ = self._joined
        added = [[n for n in s.new_names if columns is None or n in columns] for s in self._sides]
        wanted = None
        if columns is not None:
            theirs = {name for names in added for name in names}
            wanted = list(dict.fromkeys([self._id, *(c for c in columns if c not in theirs)]))
        for batch in self._main.batches(wanted):
            ids = _index(_plain_ids(batch, self._id).column(self._id))
            places = [side.place(ids) for side in self._sides]
            good = np.flatnonzero((np.stack(places) >= 0).all(axis=0) & ~ids.isin(repeated))
            if len(good) < batch.num_rows:
                batch = batch.take(pa.array(good))
            for side, names, place in zip(self._sides, added, places, strict=True):
                for name in names:
                    scores = _one(side.scores[name]).take(pa.array(place[good]))
                    batch = batch.append_column(name, scores)
            yield batch if columns is None else batch.select(list(columns))

    def pieces(self, columns: Sequence[str]) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))

    @cached_property
    def _joined(self) -> tuple[pd.Index[Any], int]:
        """Ids that the rows have more than once, and the number of rows that can be joined."""
        index = _all_ids(self._main, self._id)
        repeated = _repeated(index)
        good = ~index.isin(repeated) & index.notna()
        told = _told(index, repeated, self._main.name)
        for side in self._sides:
            told += _told(side.index, side.repeated, side.table.name)
            there = index.isin(side.index)
            told += _tell(f"in {self._main.name} but not in {side.table.name}", index[~there])
            lonely = side.index[~side.index.isin(index)]
            told += _tell(f"in {side.table.name} but not in {self._main.name}", lonely)
            good &= there & ~index.isin(side.repeated)
        rows = int(np.count_nonzero(good))
        if told and self._policy == "error":
            advice = "(input.join: inner leaves such ids out)"
            raise InputError("\n  ".join(["the tables cannot be joined:", *told, advice]))
        if told and not rows:
            raise InputError("\n  ".join(["the join leaves no rows:", *told]))
        if told:
            left = f"the join leaves out {len(index) - rows:,} of {len(index):,} rows"
            warnings.warn("; ".join([left, *told]), JoinWarning, stacklevel=2)
        return repeated, rows


class RunTable:
    """The rows of one run, in a table that runs append to."""

    def __init__(self, table: Table, column: str, run_id: str):
        self.name = table.name
        self._table, self._column, self._run_id = table, column, run_id

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def count(self) -> int | None:
        return None

    def identity(self) -> dict[str, Any]:
        return self._table.identity() | {self._column: self._run_id}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.schema.names if columns is None else columns)
        for batch in self._table.batches(list(dict.fromkeys([*wanted, self._column]))):
            kept = batch.filter(pc.equal(batch.column(self._column), self._run_id))
            if kept.num_rows:
                yield kept.select(wanted)

    def pieces(self, columns: Sequence[str]) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))


def check_join(main: Table, sides: Sequence[Side], id: str) -> None:
    """What can be seen of a join beforehand: columns, and the types of the ids."""
    problems = _missing(main, [id])
    for side in sides:
        problems += _missing(side.table, [side.id, *side.given.columns])
    for side in sides if not problems else ():
        ours, theirs = main.schema.field(id).type, side.table.schema.field(side.id).type
        if _family(ours) != _family(theirs):
            problems.append(
                f"ids have different types: {id!r} is {ours} in {main.name}, {side.id!r} is "
                f"{theirs} in {side.table.name}; cast one of them"
            )
    if problems:
        raise InputError("\n".join(problems))


def _missing(table: Table, columns: Sequence[str]) -> list[str]:
    has = table.schema.names
    return [
        f"column {c!r} not found in {table.name}; it has: {', '.join(has)}"
        for c in columns
        if c not in has
    ]


def _one(array: Any) -> pa.Array:
    """A column that was combined, as one array."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks else pa.array([], array.type)


def _family(kind: pa.DataType) -> str:
    """Ids of one family are compared as they are."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return str(kind)


def _plain_ids(rows: Any, id: str) -> Any:
    """The rows (a batch or a table) with ids of one type for each family."""
    place = rows.schema.get_field_index(id)
    family = _family(rows.schema.field(place).type)
    kind = {"integer": pa.int64(), "text": pa.string()}.get(family)
    if kind is None:
        return rows
    return rows.set_column(place, id, rows.column(place).cast(kind, safe=False))


def _index(ids: Any) -> pd.Index[Any]:
    """Ids to be looked up. Integers stay integers beside nulls."""
    kinds = {pa.int64(): pd.Int64Dtype()} if ids.null_count else {}
    found: pd.Index[Any] = pd.Index(ids.to_pandas(types_mapper=kinds.get))
    return found


def _all_ids(table: Table, id: str) -> pd.Index[Any]:
    kind = _plain_ids(pa.schema([table.schema.field(id)]).empty_table(), id).schema.field(0).type
    found = [_plain_ids(batch, id).column(0) for batch in table.batches([id])]
    return _index(pa.chunked_array(found, kind))


def _repeated(index: pd.Index[Any]) -> pd.Index[Any]:
    return index[index.duplicated() & index.notna()].unique()


def _told(index: pd.Index[Any], repeated: pd.Index[Any], name: str) -> list[str]:
    told = null_ids(int(np.count_nonzero(index.isna())), name)
    return told + _tell(f"more than once in {name}", repeated)


def _tell(what: str, ids: pd.Index[Any]) -> list[str]:
    ids = ids[ids.notna()].unique()
    return in_words(what, len(ids), nsmallest(EXAMPLES, ids.tolist()))


def null_ids(count: int, name: str) -> list[str]:
    return [f"null in {name}: {plural(count, 'id')}"] if count else []


def in_words(what: str, count: int, first: Sequence[Any]) -> list[str]:
    """Ids that something is the matter with: how many, and the first few in their order."""
    shown = ", ".join(map(repr, first))
    return [f"{what}: {plural(count, 'id')}, first {shown}"] if count else []


def duplicate_ids(table: Table, id: str) -> list[str]:
    """For `check --ids`: what is wrong with the ids of a table, in words."""
    index = _all_ids(table, id)
    return _told(index, _repeated(index), table.name)

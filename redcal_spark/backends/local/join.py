"""Rows with the scores of other tables beside them, joined on the id in memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.inputs import Side, check_join, family, in_words, joined_name, null_ids
from redcal_spark.backends.store import Table
from redcal_spark.core.reading import EXAMPLES
from redcal_spark.core.scan import BatchGroup, each_alone
from redcal_spark.core.shown_values import value_of
from redcal_spark.errors import InputError, JoinWarning

# Ids of a family are looked up in one type.
PLAIN = {
    "integer": pa.int64(),
    "text": pa.string(),
    "binary_view": pa.binary(),
    "halffloat": pa.float32(),
}


class JoinedTable:
    """Rows with the scores of other tables beside them, joined on the id.

    Ids must be unique and on every side. With the policy `inner` the others are left out, and a
    warning says how many. The other tables are held in memory; of the rows, four bytes for each.
    """

    def __init__(
        self, main: Table, sides: Sequence[Side], id: str, policy: Literal["error", "inner"]
    ):
        self.name = joined_name(main, sides)
        self._main, self._sides, self._id, self._policy = main, sides, id, policy
        check_join(main, sides, id)

    @property
    def schema(self) -> pa.Schema:
        added = [field for side in self._sides for field in side.fields]
        return pa.schema([*self._main.schema, *added])

    def count(self) -> int | None:
        place = self._places[0]
        return len(place) - int(place.null_count)

    def identity(self) -> dict[str, Any]:
        return {
            "kind": "join",
            "tables": [self._main.identity(), *(s.table.identity() for s in self._sides)],
        }

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        theirs = [name for side in self._sides for name in side.new_names]
        ours = None if columns is None else [name for name in columns if name not in theirs]
        wanted = None if ours is None else ours or [self._id]  # rows without columns have no number
        start = 0
        for batch in self._main.batches(wanted):
            places = [place.slice(start, batch.num_rows) for place in self._places]
            start += batch.num_rows
            if places[0].null_count:
                batch = batch.filter(places[0].is_valid())
            for scores, place in zip(self._scores, places, strict=True):
                for name, column in scores.items():
                    if columns is None or name in columns:
                        batch = batch.append_column(name, column.take(place.drop_null()))
            yield batch if columns is None else batch.select(list(columns))

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))

    @cached_property
    def _held(self) -> list[pa.Table]:
        """The ids and scores of every other table, whole."""
        tables = []
        for side in self._sides:
            names = list(dict.fromkeys([side.id, *side.given.columns]))
            schema = pa.schema([side.table.schema.field(name) for name in names])
            tables.append(pa.Table.from_batches(side.table.batches(names), schema))
        return tables

    @cached_property
    def _scores(self) -> list[dict[str, pa.Array]]:
        """The score columns of every other table, by the names they get."""
        return [
            {
                new: table[name].combine_chunks()
                for new, name in zip(side.new_names, side.given.columns, strict=True)
            }
            for side, table in zip(self._sides, self._held, strict=True)
        ]

    @cached_property
    def _places(self) -> list[pa.Array]:
        """For every other table where the id of each row stands; null if the row is left out."""
        ids = _ids_of(self._main, self._id)
        repeated = _repeated(ids)
        problems = _own_problems(ids, repeated, self._main.name)
        good = pc.and_(ids.is_valid(), pc.invert(pc.is_in(ids, repeated)))
        places = []
        for side, table in zip(self._sides, self._held, strict=True):
            name, theirs = side.table.name, _plain(table[side.id])
            repeated = _repeated(theirs)
            problems += _own_problems(theirs, repeated, name)
            places.append(place := pc.index_in(ids, theirs))
            missing, lonely = place.is_null(), _others(theirs, place, ids)
            problems += _in_words(f"in {self._main.name} but not in {name}", ids.filter(missing))
            problems += _in_words(f"in {name} but not in {self._main.name}", lonely)
            good = pc.and_not(good, pc.or_(missing, pc.is_in(ids, repeated)))
        places = [pc.if_else(good, place, None).combine_chunks() for place in places]
        rows = len(places[0]) - places[0].null_count
        if problems and self._policy == "error":
            advice = "(input.join: inner leaves such ids out)"
            raise InputError(
                "\n  ".join(["the tables cannot be joined:", *dict.fromkeys(problems), advice])
            )
        if problems and not rows:
            raise InputError("\n  ".join(["the join leaves no rows:", *problems]))
        if problems:
            left = f"the join leaves out {len(ids) - rows:,} of {len(ids):,} rows"
            warnings.warn("; ".join([left, *problems]), JoinWarning, stacklevel=2)
        return places


def duplicate_ids(table: Table, id: str) -> list[str]:
    """For `check --ids`: what is wrong with the ids of a table, in words."""
    ids = _ids_of(table, id)
    return _own_problems(ids, _repeated(ids), table.name)


def _ids_of(table: Table, id: str) -> pa.ChunkedArray:
    none = _plain(pa.chunked_array([], table.schema.field(id).type))
    return pa.chunked_array([_plain(batch.column(0)) for batch in table.batches([id])], none.type)


def _plain(ids: Any) -> Any:
    """Ids (an array, or one in chunks) in the type of their family."""
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    ids = ids.cast(PLAIN.get(family(kind), kind), safe=False)
    if pa.types.is_floating(ids.type):  # NaN is no id, and zero has no sign
        ids = pc.if_else(pc.is_nan(ids), None, pc.add(ids, pa.scalar(0, ids.type)))
    return ids


def _others(ids: pa.ChunkedArray, place: pa.ChunkedArray, known: pa.ChunkedArray) -> Any:
    """The ids that are not among the known ones. place: where those stand, which saves most."""
    unseen = np.ones(len(ids), np.bool_)
    unseen[place.drop_null().to_numpy()] = False
    rest = ids.filter(pa.array(unseen))
    return rest.filter(pc.invert(pc.is_in(rest, known))) if len(rest) else rest


def _repeated(ids: pa.ChunkedArray) -> pa.Array:
    if len(values := ids.unique()) == len(ids):
        return values[:0]  # quicker than to count them
    counts = pc.value_counts(ids)
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1)).drop_null()


def _own_problems(ids: pa.ChunkedArray, repeated: pa.Array, name: str) -> list[str]:
    return null_ids(ids.null_count, name) + _in_words(f"more than once in {name}", repeated)


def _in_words(what: str, ids: Any) -> list[str]:
    values = ids.drop_null().unique()
    first = values.take(pc.array_sort_indices(values)[:EXAMPLES])
    return in_words(what, len(values), [value_of(value) for value in first])

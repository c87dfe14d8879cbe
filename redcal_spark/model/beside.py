"""Some rows of several tables put together on their id, to guess what the columns are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.inputs import different_ids
from redcal_spark.config.rules import MODELS
from redcal_spark.core.columns import is_text
from redcal_spark.errors import InputError
from redcal_spark.model.guess import Guess, id_of
from redcal_spark.settings import setting


class Beside:
    """Rows of a first table, with columns of others beside them.

    id: what they were joined on, once they were.
    """

    def __init__(self, name: str, rows: pa.Table):
        self.name, self.rows = name, rows
        self.id: str | None = None
        self._first = name
        # of every column its table, None for the first, and its name there
        self.origins: dict[str, tuple[str | None, str]] = {c: (None, c) for c in rows.schema.names}

    def add(self, name: str, theirs: pa.Table, model: str) -> None:
        """Put a model's table beside the rows, its columns under names of their own."""
        id = self.id or self._common_id(name, theirs, model)
        self._check_id(id, name, theirs, model)
        ours = _plain(self.rows.column(id))
        place = pc.index_in(ours, value_set=_plain(theirs.column(id)))
        if place.null_count == len(place):
            raise InputError(
                f"{self._first} and {name}: no {id!r} of the first rows is in both; describe them "
                f"yourself: {_key(model)}: {{table: {name}, columns: ..., id: ...}}"
            )
        self.id, self.name = id, f"{self.name} joined with {name}"
        self.rows = self.rows.filter(place.is_valid())
        matched = theirs.take(place.drop_null())
        for column in theirs.schema.names:
            if column != id:
                called = f"{model}_{column}"
                self.origins[called] = (name, column)
                self.rows = self.rows.append_column(called, matched.column(column))

    def check(self, known: Guess) -> None:
        """Labels and split must be in the first table."""
        for what, column in (("label", known.label), ("split", (known.split or (None,))[0])):
            table = None if column is None else self.origins[column][0]
            if table is not None:
                raise InputError(
                    f"the {what} seems to be {self.origins[str(column)][1]!r} of {table}: give the "
                    "table with the labels first"
                )

    def _common_id(self, name: str, theirs: pa.Table, model: str) -> str:
        common = [n for n in self.rows.schema.names if n in theirs.schema.names]
        alike = [n for n in common if _family(self.rows, n) == _family(theirs, n) is not None]
        ours, _ = id_of(self.rows.select(alike))
        if ours is not None and id_of(theirs.select([ours]))[0] == ours:
            return ours
        own, doubt = id_of(self.rows)
        if own is not None and doubt is None:  # by its name
            self._check_id(own, name, theirs, model)
        raise InputError(
            f"{self._first} and {name}: no column of both names every row once, as text or integer "
            f"(columns: {', '.join(self.rows.schema.names)}; {', '.join(theirs.schema.names)})"
        )

    def _check_id(self, id: str, name: str, theirs: pa.Table, model: str) -> None:
        """Refuse a table without the id, or with one of another type."""
        if id not in theirs.schema.names:
            own = id_of(theirs)[0]
            way_out = f"{_key(model)}: {{table: {name}, id: {own}, columns: ...}}"
            hint = f"; name the column {id!r} there, or write {way_out}" if own else ""
            has = ", ".join(theirs.schema.names)
            raise InputError(f"{name} has no column {id!r}; it has: {has}{hint}")
        if _family(self.rows, id) != _family(theirs, id):
            ours, kind = (rows.schema.field(id).type for rows in (self.rows, theirs))
            raise InputError(different_ids((id, ours, self._first), (id, kind, name)))


def _key(model: str) -> str:
    return setting(model) if model in MODELS else f"{setting('models')}.{model}"


def _family(rows: pa.Table, name: str) -> str | None:
    kind = rows.schema.field(name).type
    if is_text(kind):
        return "text"
    return "integer" if pa.types.is_integer(kind) else None


def _plain(ids: pa.ChunkedArray) -> pa.Array:
    kind = pa.string() if is_text(ids.type) else pa.int64()
    return ids.cast(kind).combine_chunks()

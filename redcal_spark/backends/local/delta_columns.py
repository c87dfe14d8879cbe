"""Columns of a Delta table in its files: under which names, and in the types that they have now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from redcal_spark.backends.delta_protocol import Mapping, not_read
from redcal_spark.backends.delta_types import is_list
from redcal_spark.core.parquet_columns import fields_of
from redcal_spark.errors import InputError

PHYSICAL_NAME = b"delta.columnMapping.physicalName"
PHYSICAL_ID = b"delta.columnMapping.id"
FILE_ID = b"PARQUET:field_id"
KEPT = b"comment"  # of what the log says of a column; the rest tells Delta how to read and write it


class StoredColumns:
    """Finds columns in files by name, by mapped name or by mapped id, however deep.

    A field that a file has not is null there: it is younger than the file.
    """

    def __init__(self, table: str, schema: pa.Schema, mapping: Mapping):
        self._table = table
        self.schema = pa.schema([plain(field) for field in schema])
        self._mapped = schema
        self._mapping = mapping

    def names(self, file: pa.Schema, columns: Sequence[str]) -> list[str]:
        """What the file calls those of the columns that it has."""
        there = self._there(file)
        wanted = (self._stored(there, self._mapped.field(name)) for name in columns)
        return [field.name for field in wanted if field is not None]

    def find(
        self, batch: pa.RecordBatch, columns: Sequence[str], repeated: Sequence[str] = ()
    ) -> dict[str, pa.Array]:
        """The columns in rows of a file. repeated: texts that may stay dictionaries."""
        there = self._there(batch.schema)
        arrays = {}
        for name in columns:
            wanted = self._mapped.field(name)
            stored = self._stored(there, wanted)
            if stored is None:
                arrays[name] = pa.nulls(batch.num_rows, self.schema.field(name).type)
            else:
                array = batch.column(stored.name)
                values = pa.types.is_dictionary(array.type) and array.type.value_type
                if not (name in repeated and values == self.schema.field(name).type):
                    array = self._shaped(array, wanted, stored)
                arrays[name] = array
        return arrays

    def check(self, file: pa.Schema) -> None:
        """Refuse a file without ids where columns are found by them: all would be null."""
        if self._mapping == "id" and len(file) and not self._there(file):
            raise InputError(
                f"{self._table}: cannot be read: it maps columns by ids, and a file of it has none"
            )

    def _key(self, field: pa.Field) -> bytes:
        said = field.metadata or {}
        if self._mapping == "none":
            return str(field.name).encode()
        key = said.get(PHYSICAL_NAME if self._mapping == "name" else PHYSICAL_ID)
        if key is None:
            raise InputError(
                f"{self._table}: cannot be read: it maps columns by {self._mapping}, but not "
                f"{field.name!r}"
            )
        return bytes(key)

    def _stored(self, there: dict[bytes, pa.Field], wanted: pa.Field) -> pa.Field | None:
        """The field of a file, if it has it.

        Spark may take one that differs in upper and lower case, so that null would be a guess.
        """
        key = self._key(wanted)
        if key in there or self._mapping == "id":
            return there.get(key)
        same = [name for name in there if name.decode().casefold() == key.decode().casefold()]
        if same:
            why = f"a file of it calls column {key.decode()!r} {same[0].decode()!r}"
            raise not_read(self._table, why)
        return None

    def _there(self, fields: Sequence[pa.Field]) -> dict[bytes, pa.Field]:
        if self._mapping != "id":
            return {field.name.encode(): field for field in fields}
        return {f.metadata[FILE_ID]: f for f in fields if f.metadata and FILE_ID in f.metadata}

    def _shaped(self, array: pa.Array, wanted: pa.Field, there: pa.Field) -> pa.Array:
        kind, new = there.type, plain(wanted).type
        if self._mapping == "none" and kind == new:
            return array
        if pa.types.is_struct(kind) and pa.types.is_struct(new):
            return self._struct(array, wanted.type, kind)
        if pa.types.is_map(kind) and pa.types.is_map(new):
            old = wanted.type
            keys = self._shaped(array.keys, old.key_field, kind.key_field)
            items = self._shaped(array.items, old.item_field, kind.item_field)
            entries = pa.StructArray.from_arrays(
                [keys, items], fields=[new.key_field, new.item_field]
            )
            return _around(array, new, entries)
        if is_list(kind) and pa.types.is_list(new):
            array = array.cast(pa.list_(kind.value_field))  # others write lists of other forms
            values = self._shaped(array.values, wanted.type.value_field, kind.value_field)
            return _around(array, new, values)
        return array.cast(new)

    def _struct(self, array: pa.Array, wanted: pa.DataType, kind: pa.DataType) -> pa.Array:
        there = self._there(fields_of(kind))
        parts = dict(zip((field.name for field in fields_of(kind)), array.flatten(), strict=True))
        arrays = []
        for field in fields_of(wanted):
            stored = self._stored(there, field)
            if stored is None:
                arrays.append(pa.nulls(len(array), plain(field).type))
            else:
                arrays.append(self._shaped(parts[stored.name], field, stored))
        fields = [plain(field) for field in fields_of(wanted)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null())


def plain(field: pa.Field) -> pa.Field:
    """The field as users know it, without what Delta notes of it, however deep."""
    said = {key: value for key, value in (field.metadata or {}).items() if key == KEPT}
    return field.with_type(_plain_type(field.type)).with_metadata(said or None)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([plain(field) for field in fields_of(kind)])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_field), plain(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_field))
    return kind


def _around(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """A list or map of the same lengths around other values."""
    make = partial(pa.Array.from_buffers, kind, len(array), array.buffers()[:2])
    return make(offset=array.offset, children=[values])

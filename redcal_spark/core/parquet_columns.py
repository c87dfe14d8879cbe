"""Columns of a Parquet file as their table has them: by name, in types that are read right.

What is named here is known to mean the same to Spark and to pyarrow. Of all else nobody here knows,
so that it is not read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from redcal_spark.core.columns import inside, is_text

SAME = (kinds.is_boolean, kinds.is_floating, kinds.is_date32)  # where equal, with nothing to add
UNITS = ("s", "ms", "us")  # Spark reads no nanoseconds
DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of integers, by their bits, as Delta widens them
SPARK_VERSION = b"org.apache.spark.version"
OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class UnlikeTable(Exception):
    """A file whose columns are not known to be read right."""


def known(kind: pa.DataType) -> bool:
    """Whether columns of a table may have this type."""
    return fits(kind, kind)


def stored_columns(file: pq.ParquetFile, wanted: pa.Schema) -> list[str]:
    """Those of the columns that the file has; raises `UnlikeTable` if it has one in another way."""
    there = file.schema_arrow
    same = {name.casefold(): name for name in there.names}
    if len(same) < len(there.names):
        raise UnlikeTable("names of columns differ in upper and lower case alone")
    old = _old_calendar(file)
    stored = []
    for field in wanted:
        name = same.get(field.name.casefold())
        if name is None:
            continue
        if name != field.name:
            raise UnlikeTable(f"column {field.name!r} is {name!r} there")
        kind = there.field(name).type
        if not fits(_in_utc(kind) if _is_int96(file, name) else kind, field.type):
            raise UnlikeTable(f"column {name!r} has type {kind} there, {field.type} in the table")
        if old and any(kinds.is_temporal(part) for part in inside(kind)):
            raise UnlikeTable(f"column {name!r} may have dates of the Julian calendar")
        stored.append(name)
    return stored


def as_in_table(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in a type that `fits`."""
    return array if array.type.equals(wanted) else array.cast(wanted)


def fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a file's type are those of a table's, as Spark would read them."""
    if kinds.is_dictionary(kind):
        return fits(kind.value_type, wanted)
    if kinds.is_list(wanted):
        lists = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
        return lists and fits(kind.value_type, wanted.value_type)
    if kinds.is_struct(wanted):
        return kinds.is_struct(kind) and _fields_fit(fields_of(kind), fields_of(wanted))
    if kinds.is_map(wanted):
        return kinds.is_map(kind) and _fields_fit(
            [kind.key_field.with_name("key"), kind.item_field.with_name("value")],
            [wanted.key_field.with_name("key"), wanted.item_field.with_name("value")],
        )
    if kinds.is_string(wanted):
        return is_text(kind)
    if kinds.is_binary(wanted):
        return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))
    if kinds.is_timestamp(wanted):
        return wanted.unit == "us" and _is_time(kind, wanted)
    return _number_fits(kind, wanted)


def _number_fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if kinds.is_signed_integer(kind) and kinds.is_decimal128(wanted):
        return bool(wanted.precision - wanted.scale >= DIGITS[kind.bit_width])
    if kinds.is_signed_integer(kind) and kinds.is_float64(wanted):
        return bool(kind.bit_width <= 32)
    if kinds.is_signed_integer(kind) and kinds.is_signed_integer(wanted):
        return bool(kind.bit_width <= wanted.bit_width)
    if kinds.is_decimal128(kind) and kinds.is_decimal128(wanted):
        more = wanted.scale - kind.scale
        return bool(more >= 0 and wanted.precision - kind.precision >= more)
    if kinds.is_float32(kind) and kinds.is_float64(wanted):
        return True
    alike = any(is_one(kind) for is_one in SAME) and not kinds.is_float16(kind)
    return alike and bool(kind == wanted)


def _is_time(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """With a zone or without must not differ: Spark turns one into the other by its own zone."""
    if kinds.is_date32(kind):
        return wanted.tz is None
    if not kinds.is_timestamp(kind) or kind.unit not in UNITS:
        return False
    return (kind.tz is None) == (wanted.tz is None)


def _fields_fit(there: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> bool:
    """Fields of structs in the same order; of missing ones nobody here knows."""
    return [f.name for f in there] == [f.name for f in wanted] and all(
        fits(one.type, two.type) for one, two in zip(there, wanted, strict=True)
    )


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _is_int96(file: pq.ParquetFile, name: str) -> bool:
    """Whether a column holds Spark's old timestamps, which are of UTC and do not say so."""
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    return any(leaf.path == name and leaf.physical_type == "INT96" for leaf in leaves)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC")


def _old_calendar(file: pq.ParquetFile) -> bool:
    """Whether Spark would move days and times of this file from an older calendar."""
    said = file.metadata.metadata or {}
    version = re.match(rb"(\d+)\.", said.get(SPARK_VERSION, b"3."))
    return any(key in said for key in OLD_CALENDAR) or version is None or int(version[1]) < 3

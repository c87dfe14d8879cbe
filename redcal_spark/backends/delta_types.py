"""What Delta tables can hold: types that are widened on the way in, types that have no place."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from redcal_spark.core.columns import inside, is_text
from redcal_spark.errors import InputError

# delta-rs stores unsigned numbers in signed ones of the same width, where large values do not fit.
WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that a Delta table keeps without loss of values."""
    return pa.schema([_rebuilt(field, _wider) for field in schema], metadata=schema.metadata)


def as_stored(batch: pa.RecordBatch, stored: pa.Schema) -> pa.RecordBatch:
    """The batch in the types that a Delta table keeps. A value that does not fit is refused."""
    try:
        return batch.cast(stored)
    except pa.ArrowInvalid as err:
        raise InputError(_does_not_fit(batch, stored) or str(err)) from err


def _does_not_fit(batch: pa.RecordBatch, stored: pa.Schema) -> str | None:
    for name, column, field in zip(batch.schema.names, batch.columns, stored, strict=True):
        try:
            column.cast(field.type)
        except pa.ArrowInvalid:
            return (
                f"column {name!r} has type {column.type}, with values that {field.type} cannot "
                "hold, and Delta tables have nothing finer: round the column in the input, or "
                "leave it out"
            )
    return None


def unstorable(schema: pa.Schema) -> list[str]:
    """Why a Delta table cannot hold rows of this schema, in words."""
    problems = []
    for field in schema:
        bad = next(filter(_has_no_place, inside(field.type)), None)
        if bad is not None:
            problems.append(
                f"column {field.name!r} has type {field.type}; Delta tables cannot hold {bad}: "
                "cast the column in the input, or leave it out"
            )
    seen: dict[str, str] = {}
    for name in schema.names:
        if "\0" in name:
            problems.append(
                f"column {name!r} has a NUL in its name, which would end there: rename it in the "
                "input"
            )
        other = seen.setdefault(name.casefold(), name)
        if other is not name:
            problems.append(
                f"columns {other!r} and {name!r} have the same name but for upper and lower case, "
                "which Delta tables do not tell apart: rename one in the input"
            )
    return problems


def delta_type(kind: pa.DataType) -> str:
    """What a Delta table calls a type; how Arrow holds its values makes no difference."""
    if pa.types.is_dictionary(kind):
        return delta_type(kind.value_type)
    if pa.types.is_struct(kind):
        parts = (kind.field(i) for i in range(kind.num_fields))
        return f"struct<{', '.join(f'{part.name}: {delta_type(part.type)}' for part in parts)}>"
    if pa.types.is_map(kind):
        return f"map<{delta_type(kind.key_type)}, {delta_type(kind.item_type)}>"
    if is_list(kind):
        return f"array<{delta_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return next((name for name, of_it in CALLED.items() if of_it(kind)), str(kind))


def is_list(kind: pa.DataType) -> bool:
    views = (pa.types.is_list_view, pa.types.is_large_list_view)
    plain = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(of_it(kind) for of_it in (*plain, *views))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


CALLED: dict[str, Callable[[pa.DataType], bool]] = {
    "void": pa.types.is_null,
    "boolean": pa.types.is_boolean,
    "byte": pa.types.is_int8,
    "short": pa.types.is_int16,
    "integer": pa.types.is_int32,
    "long": pa.types.is_int64,
    "float": pa.types.is_float32,
    "double": pa.types.is_float64,
    "string": is_text,
    "binary": _is_bytes,
    "date": pa.types.is_date,
}


def _wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # whole microseconds fit, others do not
        return pa.timestamp("us", kind.tz)
    return WIDER.get(kind, kind)


def _has_no_place(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_time(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_interval(kind)
        or pa.types.is_decimal256(kind)
        or pa.types.is_union(kind)
    )


def _rebuilt(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """The field with every type in it, however deep, changed."""
    kind = field.type
    if pa.types.is_struct(kind):
        new = pa.struct([_rebuilt(kind.field(i), change) for i in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        new = pa.map_(_rebuilt(kind.key_field, change), _rebuilt(kind.item_field, change))
    elif pa.types.is_fixed_size_list(kind):
        new = pa.list_(_rebuilt(kind.value_field, change), kind.list_size)
    elif pa.types.is_large_list(kind):
        new = pa.large_list(_rebuilt(kind.value_field, change))
    elif pa.types.is_list(kind):
        new = pa.list_(_rebuilt(kind.value_field, change))
    elif pa.types.is_dictionary(kind):
        new = change(kind.value_type)
    else:
        new = change(kind)
    return field.with_type(new)

"""What can be seen of a Spark write beforehand: names, and what the table that is there allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame

from redcal_spark.backends.delta_protocol import identity_columns
from redcal_spark.backends.delta_types import is_list
from redcal_spark.backends.local.errors import delta_table
from redcal_spark.backends.location import Location
from redcal_spark.backends.names import Place
from redcal_spark.backends.spark.frames import arrow_schema
from redcal_spark.backends.spark.tables import check_collations
from redcal_spark.backends.target import Existing, Target, change_of, is_append_only
from redcal_spark.errors import UsageError

# Features of a Delta table whose commits go through its catalog.
MANAGED = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")
NOT_IN_NAMES = " ,;{}()\n\t="  # but in tables with column mapping, which delta-rs does not write


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether columns have other names in the files; a mapping can be switched off again."""
    return properties.get("delta.columnMapping.mode", "none") != "none"


def check_names(target: Target, schema: pa.Schema, old: Existing | None) -> None:
    """Refuse names that Spark would refuse only after the fit; those of fields in columns too."""
    void = [] if old is None else [f.name for f in old.schema if pa.types.is_null(f.type)]
    if target.mode == "merge" and void:
        raise UsageError(
            "output.mode: Spark merges no columns of type void: "
            f"{', '.join(map(repr, void))}; use overwrite or append, or name another table"
        )
    quoted = [name for name in schema.names if "`" in name]
    if target.mode == "merge" and quoted:
        raise UsageError(
            "output.mode: Spark merges no columns with a backtick in their names: "
            f"{', '.join(map(repr, quoted))}; rename them, or use overwrite or append"
        )
    odd = [path for path, name in _names(schema) if not set(name).isdisjoint(NOT_IN_NAMES)]
    if odd and not (old is not None and old.any_name):
        raise UsageError(
            f"output.table: Spark writes no columns with any of {NOT_IN_NAMES!r} in their "
            f"names: {', '.join(map(repr, odd))}; rename them, or use engine.name: local, or a "
            "table with delta.columnMapping.mode = name"
        )


def check_numbered(target: Target, place: Location) -> None:
    """Refuse a table that makes the values of a column itself: Delta would, after the fit.

    Spark does not tell of such columns; the log does, where delta-rs can read it.
    """
    try:
        numbered = identity_columns(delta_table(place))
    except (DeltaError, OSError):
        return
    if target.mode == "merge" and numbered:
        raise UsageError(
            f"output.mode: Delta updates no IDENTITY columns, and {target.table} has "
            f"{', '.join(map(repr, numbered))}; use overwrite or append, or name another table"
        )
    always = [name for name, takes_values in numbered.items() if not takes_values]
    if always:
        raise UsageError(
            f"output.table: {target.table} numbers {', '.join(map(repr, always))} itself "
            "(GENERATED ALWAYS AS IDENTITY) and takes no values for it; name another table"
        )


def check_managed(target: Target, schema: pa.Schema, old: Existing | None) -> None:
    """Refuse what would replace a table that its catalog manages."""
    if old is None or not old.managed or target.mode != "overwrite":
        return
    if change_of(target, schema, old) == "all of it":
        raise UsageError(
            f"output.table: {target.table} is managed by its catalog, which lets nobody replace "
            "it, and output.schema: evolve would have to: columns are missing, of another type, or "
            "laid out otherwise. Change it with ALTER TABLE, or name another table"
        )


def existing_table(frame: DataFrame, place: Place, name: str) -> Existing:
    """What a table looks like that rows will be put into. frame: its rows."""
    check_collations(name, frame.schema)
    detail = frame.sparkSession.sql(f"DESCRIBE DETAIL {place.sql}")
    said = detail.select("partitionColumns", "clusteringColumns", "properties").first()
    assert said is not None
    partitions, clusters, properties = (part or () for part in said)
    known = dict(properties)
    return Existing(
        *(arrow_schema(frame), tuple(partitions), tuple(clusters)),
        any_name=is_mapped(known),
        append_only=is_append_only(known),
        managed=any(key in known for key in MANAGED),
    )


def _names(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Names of columns and of all fields in them, each with where it is."""
    for field in schema:
        yield field.name, field.name
        yield from _inside(field.type, field.name)


def _inside(kind: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            field = kind.field(number)
            yield f"{path}.{field.name}", field.name
            yield from _inside(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _inside(kind.key_type, f"{path}.key")
        yield from _inside(kind.item_type, f"{path}.value")
    elif is_list(kind):
        yield from _inside(kind.value_type, f"{path}.element")

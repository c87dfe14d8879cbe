"""What a Delta table asks of its readers and writers, and what the local engine knows of that.

Both lists name what was tried on tables that Spark wrote. A feature that stands in neither of them
is refused by its name: a table that is read half right looks like one that is read right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args

from deltalake import DeltaTable

from redcal_spark.errors import InputError

Mapping = Literal["none", "name", "id"]

READABLE = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",  # asks something of VACUUM alone
}
WRITABLE = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
}
# What the versions before there were features ask for; newer ones name their features.
LEGACY_READER = {1: set[str](), 2: {"columnMapping"}}
LEGACY_WRITER = (
    (2, ("appendOnly", "invariants")),
    (3, ("checkConstraints",)),
    (4, ("changeDataFeed", "generatedColumns")),
    (5, ("columnMapping",)),
    (6, ("identityColumns",)),
)
NAMED = {"reader": 3, "writer": 7}  # versions that name their features
TYPES = {
    "binary",
    "boolean",
    "byte",
    "date",
    "double",
    "float",
    "integer",
    "long",
    "short",
    "string",
    "timestamp",
    "timestamp_ntz",
    "void",
}
SPARK = "use --engine spark"


class UnsupportedTable(InputError):
    """A Delta table that asks for more than the local engine knows; Spark may know it."""


def mapping_of(table: DeltaTable) -> Mapping:
    """How the columns of a table are found in its files."""
    said = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if said not in get_args(Mapping):
        raise UnsupportedTable(
            f"cannot be read by the local engine: its columns are mapped by {said!r}; {SPARK}"
        )
    if said != "none" and "columnMapping" not in _reader_features(table):
        raise UnsupportedTable(
            f"cannot be read by the local engine: its property delta.columnMapping.mode is {said}, "
            f"but its protocol knows no columnMapping; {SPARK}"
        )
    found: Mapping = said  # type: ignore[assignment]
    return found


def check_readable(name: str, table: DeltaTable) -> None:
    """Refuse a table that the local engine might read wrong."""
    try:
        unknown = sorted(_reader_features(table) - READABLE)
        if unknown:
            raise UnsupportedTable(
                f"cannot be read by the local engine: it does not know the reader "
                f"{_features(unknown)}; {SPARK}"
            )
        mapping_of(table)
        for column, kind in _kinds(table):
            raise UnsupportedTable(
                f"cannot be read by the local engine: column {column!r} has type {kind}; {SPARK}, "
                "or leave the column out of the table"
            )
    except UnsupportedTable as err:
        raise UnsupportedTable(f"{name}: {err}") from None


def unwritable(table: DeltaTable) -> str | None:
    """What a table asks of its writers that the local engine cannot do, if anything."""
    unknown = sorted((_writer_features(table) - WRITABLE) | (_reader_features(table) - READABLE))
    if unknown:
        return f"it does not know the table's {_features(unknown)}"
    config = table.metadata().configuration
    if config.get("delta.columnMapping.mode", "none") != "none":
        return "its columns are mapped to other names (columnMapping)"
    checks = sorted(key for key in config if key.startswith("delta.constraints."))
    if checks:
        named = ", ".join(key.removeprefix("delta.constraints.") for key in checks)
        return f"Spark alone can tell whether rows pass its checks (checkConstraints): {named}"
    for path, field in _fields(_schema(table)):
        for key, what in COMPUTED.items():
            if key in field["metadata"]:
                return f"Spark alone can {what}: {path!r}"
    return next((f"column {path!r} has type {kind}" for path, kind in _kinds(table)), None)


def not_written(name: str, why: str) -> str:
    return f"{name} cannot be written by the local engine: {why}; {SPARK}, or name another table"


# Metadata of columns that ask something of writers.
COMPUTED = {
    "delta.generationExpression": "compute its generated column (generatedColumns)",
    "delta.identity.start": "number its identity column (identityColumns)",
    "delta.invariants": "tell whether rows keep the invariant of its column (invariants)",
    "CURRENT_DEFAULT": "fill in the default of its column (allowColumnDefaults)",
}


def is_append_only(table: DeltaTable) -> bool:
    return table.metadata().configuration.get("delta.appendOnly", "").lower() == "true"


def _reader_features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    version = protocol.min_reader_version
    if version < NAMED["reader"]:
        return LEGACY_READER[version]
    _check_version("reader", version)
    return set(protocol.reader_features or ())


def _writer_features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    version = protocol.min_writer_version
    if version < NAMED["writer"]:
        return {name for since, names in LEGACY_WRITER if since <= version for name in names}
    _check_version("writer", version)
    return set(protocol.writer_features or ())


def _check_version(kind: str, version: int) -> None:
    if version > NAMED[kind]:
        raise UnsupportedTable(
            f"cannot be used by the local engine: its {kind} version is {version}, and the newest "
            f"known one is {NAMED[kind]}; {SPARK}"
        )


def _features(names: list[str]) -> str:
    return f"feature{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _schema(table: DeltaTable) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema().to_json())
    return found


def _kinds(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """Columns, and fields in them, of types that only Spark carries as they are."""
    for path, field in _fields(_schema(table)):
        for kind in _primitives(field["type"]):
            if kind not in TYPES and not kind.startswith("decimal("):
                yield path, kind
        if "__COLLATIONS" in field["metadata"]:
            given = set(field["metadata"]["__COLLATIONS"].values())
            yield path, f"string with the collation {', '.join(sorted(given))}"


def _fields(kind: Any, above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields in a type, however deep, with their paths."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        path = above + field["name"]
        yield path, field
        yield from _fields(field["type"], path + ".")
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(part), above)


def _primitives(kind: Any) -> Iterator[str]:
    """The types in a field that are no fields of their own."""
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "array":
        yield from _primitives(kind["elementType"])
    elif kind["type"] == "map":
        yield from _primitives(kind["keyType"])
        yield from _primitives(kind["valueType"])

"""What a Delta table asks of its readers and writers, and what the local engine knows of that.

READABLE and WRITABLE name what was tried on tables that Spark wrote. Any other feature is refused
by its name: a table that is read half right looks like one that is read right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
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
    "variantType",  # of columns that are refused themselves; delta-rs lists it where there are none
    "vacuumProtocolCheck",  # asks something of VACUUM alone
}
# Known, but not to the part of delta-rs that tells which rows are deleted.
NOT_WITH_DELETED = {"typeWidening", "typeWidening-preview", "vacuumProtocolCheck"}
# Some of them only where they are not used: see `unwritable`.
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
    "variantType",
}
# What the versions before there were features ask for; newer ones name their features.
LEGACY_READER = {2: {"columnMapping"}}
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
CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps the lengths of texts
MODE = "delta.columnMapping.mode"
NAMED_BY = {"variant": "variant (variantType)"}
SPARK = "use --engine spark"


class UnsupportedTable(InputError):
    """A Delta table that asks for more than the local engine knows; Spark may know it."""


@contextmanager
def known_log(name: str) -> Iterator[None]:
    """Tell in our words of a log that asks for more than delta-rs knows."""
    try:
        yield
    except Exception as err:
        for pattern, why in UNSUPPORTED.items():
            if match := re.search(pattern, str(err)):
                raise not_read(name, why.format(*match.groups())) from err
        raise


# What delta-rs says of logs that it does not know, and what we say.
UNSUPPORTED = {
    r"Feature '([^']+)' is not supported": "it does not support the reader feature {}",
    r"catalog-managed": "it does not support the reader feature catalogManaged",
    r"minimum reader version (\d+)": "it does not support the reader version {}",
    r"Unsupported Delta table type: '([^']+)'": "a column has type {}",
    r"Kernel error: Unsupported: (.+)": "{}",
}


def check_readable(name: str, table: DeltaTable) -> None:
    """Refuse a table that the local engine might read wrong."""
    why = _unreadable(table)
    if why is not None:
        raise not_read(name, why)


def not_read(name: str, why: str) -> UnsupportedTable:
    return UnsupportedTable(f"{name}: cannot be read by the local engine: {why}; {SPARK}")


def mapping_of(table: DeltaTable) -> Mapping:
    """How the columns of a table are found in its files."""
    mapping: Mapping = table.metadata().configuration.get(MODE, "none")  # type: ignore[assignment]
    return mapping


def _unreadable(table: DeltaTable) -> str | None:
    version = table.protocol().min_reader_version
    if version > NAMED["reader"]:
        return f"it does not support the reader version {version}"
    features = _reader_features(table)
    unknown = sorted(features - READABLE)
    if unknown:
        return f"it does not support the reader {_features(unknown)}"
    alone = sorted(features & NOT_WITH_DELETED)
    if alone and "deletionVectors" in features:
        return f"it does not support the reader {_features(alone)} beside deletionVectors"
    mapping = mapping_of(table)
    if mapping not in get_args(Mapping):
        return f"it does not support the column mapping {mapping!r}"
    if mapping != "none" and "columnMapping" not in features:
        return f"{MODE} is {mapping}, but the protocol of the table has no columnMapping"
    return next(_odd_types(table), None)


def unwritable(table: DeltaTable) -> str | None:
    """What a table asks of its writers that the local engine cannot do, if anything."""
    version = table.protocol().min_writer_version
    if version > NAMED["writer"]:
        return f"it does not support the writer version {version}"
    unknown = sorted(_writer_features(table) - WRITABLE)
    if unknown:
        return f"it does not support the table's writer {_features(unknown)}"
    config = table.metadata().configuration
    if config.get(MODE, "none") != "none":
        return "its columns are mapped to other names (columnMapping)"
    checks = sorted(key for key in config if key.startswith("delta.constraints."))
    if checks:
        named = ", ".join(key.removeprefix("delta.constraints.") for key in checks)
        return f"Spark alone can check its constraints (checkConstraints): {named}"
    for path, field in _fields(_schema(table)):
        for key, what in COMPUTED.items():
            if key in field["metadata"]:
                return f"Spark alone can {what}: {path!r}"
    return _unreadable(table)


def not_written(name: str, why: str) -> str:
    return f"{name} cannot be written by the local engine: {why}; {SPARK}, or name another table"


# Metadata of columns that ask something of writers.
COMPUTED = {
    "delta.generationExpression": "compute its generated column (generatedColumns)",
    "delta.identity.start": "number its identity column (identityColumns)",
    "delta.invariants": "check the invariant of its column (invariants)",
    CHAR: "check the lengths in its column (char, varchar)",
    "CURRENT_DEFAULT": "fill in the default of its column (allowColumnDefaults)",
}


def identity_columns(table: DeltaTable) -> dict[str, bool]:
    """Columns that Delta numbers itself, and whether they take values from who writes."""
    return {
        path: field["metadata"].get("delta.identity.allowExplicitInsert") is not False
        for path, field in _fields(_schema(table))
        if any(key.startswith("delta.identity.") for key in field["metadata"])
    }


def _reader_features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    version = protocol.min_reader_version
    if version < NAMED["reader"]:
        return LEGACY_READER.get(version, set())
    return set(protocol.reader_features or ())


def _writer_features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    version = protocol.min_writer_version
    if version < NAMED["writer"]:
        return {name for since, names in LEGACY_WRITER if since <= version for name in names}
    return set(protocol.writer_features or ())


def _features(names: list[str]) -> str:
    return f"feature{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _schema(table: DeltaTable) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(table.schema().to_json())
    return schema


def _odd_types(table: DeltaTable) -> Iterator[str]:
    """Columns, and fields in them, of types that only Spark carries as they are."""
    for path, field in _fields(_schema(table)):
        for kind in _primitives(field["type"]):
            if kind not in TYPES and not kind.startswith("decimal("):
                yield f"column {path!r} has type {NAMED_BY.get(kind, kind)}"
        if filled := re.search(r"\bchar\(\d+\)", field["metadata"].get(CHAR, "")):
            # Spark fills such texts up with spaces, in files or when it reads them
            yield f"column {path!r} has type {filled[0]}"
        if collations := field["metadata"].get("__COLLATIONS"):
            named = ", ".join(sorted(set(collations.values())))
            yield f"column {path!r} has the collation {named}"


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

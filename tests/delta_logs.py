"""Delta tables written by hand, after the protocol: what Spark writes and delta-rs does not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def column(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    """A column, or a field of a struct, in the schema of a log."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped(name: str, kind: Any, physical: str, id: int) -> dict[str, Any]:
    """The same under column mapping."""
    told = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": id}
    return column(name, kind, **told)


def struct_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def file_of(
    table: str,
    rows: pa.Table,
    name: str,
    partition: Mapping[str, str | None] | None = None,
    *,
    vector: dict[str, Any] | None = None,
    counted: bool = True,
    absolute: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Write a data file; the action that adds it to the log."""
    place = Path(table, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place, store_schema=False, **options)
    path = quote(f"{place.resolve()}" if absolute else name, safe="/=")
    found: dict[str, Any] = {
        "path": f"file://{path}" if absolute else path,
        "partitionValues": dict(partition or {}),
        "size": place.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
    }
    if counted:
        found["stats"] = json.dumps({"numRecords": rows.num_rows})
    if vector is not None:
        found["deletionVector"] = vector
    return {"add": found}


def write_log(
    table: str,
    columns: Sequence[dict[str, Any]],
    files: Sequence[dict[str, Any]] = (),
    *,
    readers: Sequence[str] | int = 1,
    writers: Sequence[str] | int = 2,
    properties: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Version 0 of a table. readers, writers: their features, or a version from before those."""
    reader = {"minReaderVersion": readers} if isinstance(readers, int) else {"minReaderVersion": 3}
    writer = {"minWriterVersion": writers} if isinstance(writers, int) else {"minWriterVersion": 7}
    protocol: dict[str, Any] = {**reader, **writer}
    if not isinstance(readers, int):
        protocol["readerFeatures"] = list(readers)
    if not isinstance(writers, int):
        protocol["writerFeatures"] = list(writers)
    metadata = {
        "id": "5f9ab7c1-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(struct_of(*columns)),
        "partitionColumns": list(partitions),
        "configuration": dict(properties or {}),
        "createdTime": 1,
    }
    log = Path(table, "_delta_log")
    log.mkdir(parents=True, exist_ok=True)
    actions = [{"protocol": protocol}, {"metaData": metadata}, *files]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def deletion_vector(rows: Sequence[int]) -> dict[str, Any]:
    """Row numbers below 2^16 as an inline deletion vector: a roaring bitmap in Z85."""
    bitmap = struct.pack("<IIHHI", 12_346, 1, 0, len(rows) - 1, 16)
    bitmap += struct.pack(f"<{len(rows)}H", *rows)
    data = struct.pack("<IQI", 1_681_511_377, 1, 0) + bitmap
    size = len(data)
    data += bytes(-size % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(LETTERS[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": size,
        "cardinality": len(rows),
    }

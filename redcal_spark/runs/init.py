"""`redcal init`: a configuration for a table that nobody has described yet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from redcal_spark.backends.backend import Backend
from redcal_spark.backends.names import is_catalog_name
from redcal_spark.config.load import costs_header
from redcal_spark.config.starter import Starter
from redcal_spark.config.tables import sibling
from redcal_spark.core.folds import check_id
from redcal_spark.errors import InputError, UsageError
from redcal_spark.model.guess import guess

LOOKED_AT = 20_000  # rows, at most


def starter_of(work: Backend, name: str, costs: str | None = None) -> Starter:
    """What a table seems to be. costs: a CSV file of them, whose header may name the classes."""
    table = work.store.open(name)
    first = work.first(table, table.schema.names)
    if first is None:
        raise InputError(f"{name} has no rows")
    rows = pa.Table.from_batches([first]).slice(0, LOOKED_AT)
    header = None if costs is None else costs_header(costs)
    known = guess(rows, name, header)
    width = known.model_1.classes
    if header is not None and len(header) != width:
        raise UsageError(
            f"--costs {costs}: has {len(header)} classes (columns), and {known.model_1.name} has "
            f"{width}"
        )
    return Starter(
        table=name,
        output=sibling(_without_ending(name), "reconciled"),
        model_1=known.model_1.columns,
        model_2=known.model_2.columns,
        label=known.label,
        classes=width,
        id=known.id,
        names=known.classes,
        split=known.split,
        hashed=known.id is not None and _hashes(rows.schema, known.id),
        costs=costs,
        doubts=known.doubts,
    )


def _hashes(schema: pa.Schema, id: str) -> bool:
    try:
        check_id(schema, id, "")
    except InputError:
        return False
    return True


def _without_ending(name: str) -> str:
    """The name of a table for what is written beside it; a catalog has no endings."""
    if is_catalog_name(name) and not Path(name).exists():
        return name
    path = name.rstrip("/")
    ending = Path(path).suffix
    return path.removesuffix(ending) if ending.lower() in (".parquet", ".csv", ".tsv") else path

"""`redcal init`: a configuration for a table that nobody has described yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from redcal_spark.backends.backend import Backend
from redcal_spark.backends.names import is_catalog_name
from redcal_spark.config.load import costs_header
from redcal_spark.config.starter import Starter
from redcal_spark.config.tables import sibling
from redcal_spark.core.folds import check_id
from redcal_spark.errors import InputError, SeparatorError, UsageError
from redcal_spark.model.beside import Beside
from redcal_spark.model.guess import guess

LOOKED_AT = 20_000  # rows, at most


def starter_of(work: Backend, name: str, costs: str | None, others: Sequence[str]) -> Starter:
    """What a table seems to be. costs: a CSV file of them, whose header may name the classes.

    others: tables of models' scores, to be joined with it on the id.
    """
    rows, separator = _looked_at(work, name)
    seen = Beside(name, rows)
    for number, other in enumerate(others, 2 if len(others) == 1 else 1):
        theirs, its_separator = _looked_at(work, other)
        if separator and its_separator and separator != its_separator:
            raise InputError(
                f"{name} has {separator!r} between columns and {other} {its_separator!r}: CSV "
                "files of a job must have the same; write one of them anew"
            )
        separator = separator or its_separator
        seen.add(other, theirs, f"model_{number}_")
    rows = seen.rows
    header = None if costs is None else costs_header(costs)
    known = guess(rows, seen.name, header)
    seen.check(known)
    width, id = known.model_1.classes, seen.id or known.id
    if header is not None and len(header) != width:
        raise UsageError(
            f"--costs {costs}: has {len(header)} classes (columns), and {known.model_1.name} has "
            f"{width}"
        )
    return Starter(
        table=name,
        output=sibling(_without_ending(name), "reconciled"),
        model_1=seen.own_names(known.model_1.columns),
        model_2=seen.own_names(known.model_2.columns),
        label=known.label,
        classes=width,
        tables=tuple(map(seen.table_of, (known.model_1.columns, known.model_2.columns))),
        separator=None if separator == "," else separator,
        id=id,
        names=known.classes,
        split=known.split,
        hashed=id is not None and _hashes(rows.schema, id),
        costs=costs,
        doubts=known.doubts,
    )


def _looked_at(work: Backend, name: str) -> tuple[pa.Table, str | None]:
    """Some rows, and what separates the columns if it is a CSV file."""
    separator = ","
    try:
        table = work.store.open(name)
    except SeparatorError as err:
        if err.likely is None:
            raise
        separator = err.likely
        table = work.store.open(name, separator=separator)
    first = work.first(table, table.schema.names)
    if first is None:
        raise InputError(f"{name} has no rows")
    is_csv = getattr(getattr(table, "seen", table), "kind", None) == "csv"
    return pa.Table.from_batches([first]).slice(0, LOOKED_AT), separator if is_csv else None


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

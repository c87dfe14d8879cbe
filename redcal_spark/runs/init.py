"""`redcal init`: a configuration for a table that nobody has described yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from redcal_spark.backends.backend import Backend
from redcal_spark.backends.names import is_catalog_name
from redcal_spark.config.class_order import in_other_order, order_told
from redcal_spark.config.costs_file import costs_names
from redcal_spark.config.starter import Starter
from redcal_spark.config.tables import sibling
from redcal_spark.core.folds import check_id
from redcal_spark.errors import InputError, SeparatorError, UsageError
from redcal_spark.model.beside import Beside
from redcal_spark.model.guess import Guess, class_names, guess

LOOKED_AT = 20_000  # rows, at most


def starter_of(work: Backend, name: str, costs: str | None, others: Sequence[str]) -> Starter:
    """What a table seems to be. costs: a CSV file of them, whose header may name the classes.

    others: tables of models' scores, to be joined with it on the id.
    """
    twice = next((other for k, other in enumerate(others) if other in (name, *others[:k])), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice: give every table once")
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
        seen.add(other, theirs, f"model_{number}")
    rows = seen.rows
    header, actions = (None, []) if costs is None else costs_names(costs)
    known = guess(rows, seen.name, header, seen.origins)
    seen.check(known)
    if header is not None:
        _check_costs(str(costs), header, actions, known, class_names(rows, known.label))
    id, names = seen.id or known.id, _names(known)
    return Starter(
        table=name,
        output=sibling(_without_ending(name), "reconciled"),
        models={name: model.own for name, model in zip(names, known.models, strict=True)},
        label=known.label,
        classes=known.models[0].classes,
        tables={name: model.table for name, model in zip(names, known.models, strict=True)},
        separator=None if separator == "," else separator,
        id=id,
        names=known.classes,
        split=known.split,
        hashed=id is not None and _hashes(rows.schema, id),
        costs=costs,
        doubts={names[0] if key == "model_1" else key: why for key, why in known.doubts.items()},
    )


def _check_costs(
    costs: str, header: list[str], actions: list[str], known: Guess, labels: list[str]
) -> None:
    """Refuse a file of costs whose classes are not those of labels and scores.

    labels: the names of classes among them, if they are names.
    """
    model = known.models[0]
    numbered = header == [str(k) for k in range(len(header))]
    strange = labels and not {*labels} <= {*header} and not numbered
    if (strange and {*labels} <= {*actions}) or (
        order_told(model.own, actions) and not order_told(model.own, header)
    ):
        raise UsageError(
            f"--costs {costs}: its rows are the classes ({', '.join(actions)}): turn it, so that a "
            "row is an action and a column a class"
        )
    if len(header) != model.classes:
        raise UsageError(
            f"--costs {costs}: has {len(header)} classes (columns), and {model.name} has "
            f"{model.classes}"
        )
    if strange:
        raise UsageError(
            f"--costs {costs}: has the classes {', '.join(header)}, but the labels in "
            f"{known.label!r} are {', '.join(labels)}"
        )
    if (problem := in_other_order(model.own, header, costs)) is not None:
        raise UsageError(f"--costs {costs}: {problem}")


def _names(known: Guess) -> list[str]:
    """What to call the models: by their keys if they are two, by their tables if these differ."""
    numbered = [f"model_{k}" for k in range(1, len(known.models) + 1)]
    tables = [_without_ending(model.table or "").rpartition("/")[2] for model in known.models]
    usable = all(re.fullmatch(r"\w[\w-]*", name) for name in tables)
    usable = usable and len({*map(str.casefold, tables)}) == len(tables) > 2
    return tables if usable else numbered


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
    rows = pa.Table.from_batches([first]).slice(0, LOOKED_AT)
    for place, column in enumerate(rows.columns):
        if pa.types.is_string_view(column.type):  # Arrow can filter few kinds of text
            rows = rows.set_column(place, rows.schema.names[place], column.cast(pa.string()))
    return rows, separator if is_csv else None


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

"""The rows of a run: one table, or several joined on the id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from redcal_spark.backends.store import Store, Table
from redcal_spark.config.input import Input, ScoreTable, SplitByColumn
from redcal_spark.core.columns import Columns, ScoreColumns, is_text
from redcal_spark.core.number_text import plural
from redcal_spark.core.splits import ColumnSplit, HashSplit, Split
from redcal_spark.errors import InputError


def split_of(given: Input) -> Split | None:
    if given.split is None:
        return None
    if isinstance(given.split, SplitByColumn):
        return ColumnSplit(given.split.column, given.split.fit, given.split.holdout)
    assert given.id is not None
    return HashSplit(given.id, given.split.holdout_fraction, given.split.salt)


def columns_read(columns: Columns, split: Split | None) -> list[str]:
    """The columns that a scan reads."""
    names = columns.names(label=True)
    if split is not None and split.column not in names:
        names.append(split.column)
    return names


def open_input(store: Store, given: Input) -> tuple[Table, Columns]:
    """The input table, joined with the models' own tables where they have any; what is where."""
    models = range(1, given.n_models + 1)
    own = [c for m in models if given.score_table(m) is None for c in given.score_columns(m)]
    main = store.open(given.table, given.version, given.separator, own)
    names = tuple(_scores(given, model, main.schema.names) for model in models)
    opened, sides = {given.table: main}, []
    for model in models:
        own_table = given.score_table(model)
        if own_table is not None:
            version = own_table.version
            if version is None and own_table.table in opened:  # one table has one version in a run
                version = opened[own_table.table].identity().get("version")
            wanted = own_table.table, version, given.separator, own_table.columns
            table = store.open(*wanted)
            opened.setdefault(own_table.table, table)
            sides.append(Side(table, own_table, given.id or "", _names(names[model - 1])))
    joined = store.join(main, sides, given.id or "", given.join) if sides else main
    return joined, columns_for(given, names)


def columns_for(given: Input, scores: tuple[ScoreColumns, ...]) -> Columns:
    """What is where, with the models' scores in these columns."""
    return Columns(
        *(scores, given.label, given.id, given.classes, given.model_names),
        weight=given.weight,
        weight_unit=given.weight_unit,
        segments=given.segments or (),
    )


def parts_of(identity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The identities of the tables that an input is made of."""
    return list(identity["tables"]) if identity["kind"] == "join" else [identity]


def pinned(given: Input, identity: Mapping[str, Any]) -> Input:
    """The same input at the Delta versions that an identity names."""
    versions = [part.get("version") for part in parts_of(identity)]
    changes: dict[str, Any] = {} if versions[0] is None else {"version": versions[0]}
    own = [m for m in range(1, given.n_models + 1) if given.score_table(m) is not None]
    for model, version in zip(own, versions[1:], strict=True):
        if version is not None:
            table = given.score_table(model)
            assert table is not None
            newer = table.model_copy(update={"version": version})
            given = given.model_copy(update=given.with_scores(model, newer))
    return given.model_copy(update=changes)


def _scores(given: Input, model: int, taken: Sequence[str]) -> ScoreColumns:
    """Score columns; those of a table of their own are told apart where their names clash."""
    names: Sequence[str] = given.score_columns(model)
    if given.score_table(model) is not None:
        others = [m for m in range(1, given.n_models + 1) if m != model]
        clash = {*taken, *(name for m in others for name in given.score_columns(m))}
        own = f"model_{model}" if given.model_names is None else given.model_names[model - 1]
        names = [f"{own}_{n}" if n in clash else n for n in names]
    return names[0] if len(names) == 1 else tuple(names)


def _names(scores: ScoreColumns) -> list[str]:
    return [scores] if isinstance(scores, str) else list(scores)


@dataclass
class Side:
    """A table of scores that rows are joined with by their ids."""

    table: Table
    given: ScoreTable
    main_id: str
    new_names: list[str]

    @property
    def id(self) -> str:
        return self.given.id or self.main_id

    @cached_property
    def fields(self) -> list[pa.Field]:
        """Its score columns, by the names they get."""
        old = (self.table.schema.field(c) for c in self.given.columns)
        return [pa.field(new, f.type) for new, f in zip(self.new_names, old, strict=True)]


def check_join(main: Table, sides: Sequence[Side], id: str) -> None:
    """What can be seen of a join beforehand: columns, and the types of the ids."""
    problems = _missing(main, [id])
    for side in sides:
        problems += _missing(side.table, [side.id, *side.given.columns])
    for side in sides if not problems else ():
        ours, theirs = main.schema.field(id).type, side.table.schema.field(side.id).type
        if family(ours) != family(theirs):
            problems.append(
                different_ids((id, ours, main.name), (side.id, theirs, side.table.name))
            )
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))


def different_ids(one: tuple[str, pa.DataType, str], two: tuple[str, pa.DataType, str]) -> str:
    """What to say of ids that cannot be the same: of each its column, type and table."""
    (id, ours, main), (other_id, theirs, other) = one, two
    return (
        f"ids have different types: {id!r} is {ours} in {main}, {other_id!r} is {theirs} in "
        f"{other}; cast one of them"
    )


def joined_name(main: Table, sides: Sequence[Side]) -> str:
    """What messages call the rows of several tables."""
    others = dict.fromkeys(side.table.name for side in sides if side.table.name != main.name)
    return main.name if not others else f"{main.name} joined with {', '.join(others)}"


def _missing(table: Table, columns: Sequence[str]) -> list[str]:
    has = table.schema.names
    return [
        f"column {c!r} not found in {table.name}; it has: {', '.join(has)}"
        for c in columns
        if c not in has
    ]


def family(kind: pa.DataType) -> str:
    """Ids of one family are compared as they are."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return "integer"
    if is_text(kind):
        return "text"
    return str(kind)


def null_ids(count: int, name: str) -> list[str]:
    return [f"null in {name}: {plural(count, 'id')}"] if count else []


def in_words(what: str, count: int, first: Sequence[Any]) -> list[str]:
    """Ids that something is the matter with: how many, and the first few in their order."""
    shown = ", ".join(map(repr, first))
    return [f"{what}: {plural(count, 'id')}, first {shown}"] if count else []

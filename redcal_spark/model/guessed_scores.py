"""Which columns look like models' scores, and which of them are of the same kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.config.class_order import MARK, endings
from redcal_spark.core.columns import Form, is_text
from redcal_spark.core.fixed_point import Floats
from redcal_spark.core.problem import HINTS
from redcal_spark.core.reading import OUTSIDE
from redcal_spark.core.shown_values import such_as
from redcal_spark.errors import InputError
from redcal_spark.model.column_values import corners, numbers, shares, sum_to
from redcal_spark.settings import setting

OTHER_TABLE = "if another table has the other model's, name it after this one"
MOST_CLASSES = 1_000  # that columns of their own may stand for
# A number as a spreadsheet may write it.
NUMBER = r"^\s*[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*$"

# Of every column its table (None: the first) and its name there.
Origins = Mapping[str, tuple[str | None, str]]


@dataclass(frozen=True)
class Scores:
    """Columns that look like one model's scores. whole: they sum to 1 on all rows.

    table: where they are; None: in the first. own: what they are called there.
    """

    columns: tuple[str, ...]
    form: Form
    classes: int
    own: tuple[str, ...]
    table: str | None = None
    whole: bool = True

    @property
    def name(self) -> str:
        """What messages call them."""
        first = self.own[0] if len(self.own) == 1 else f"{self.own[0]}, ..."
        return first if self.table is None else f"{first} of {self.table}"

    @property
    def endings(self) -> tuple[str, ...]:
        """What tells the columns of a model apart."""
        return next(endings(self.own)) if self.form == "columns" else ()

    def alike(self, other: Scores) -> bool:
        """Whether both have the same classes, in any order, and no column in common."""
        same = (self.form, self.classes) == (other.form, other.classes)
        same = same and sorted(self.endings) == sorted(other.endings)
        return same and not {*self.columns} & {*other.columns}

    def in_order_of(self, other: Scores) -> Scores:
        """With the classes in the order of a model that is alike."""
        if self.endings == other.endings:
            return self
        places = [self.endings.index(each) for each in other.endings]
        columns = tuple(self.columns[k] for k in places)
        return replace(self, columns=columns, own=tuple(self.own[k] for k in places))


def models_in(
    rows: pa.Table, where: str, origins: Origins
) -> tuple[tuple[Scores, ...], str | None]:
    """The models whose scores are there, and what is doubtful: two of a table, or one of each."""
    scores = list(_scores(rows, origins))
    of_classes = {name for each in scores if each.form == "columns" for name in each.columns}
    clear = {each.table for each in scores if each.form != "binary"}
    for form in ("array", "columns", "binary"):
        same = [each for each in scores if each.form == form]
        if form == "binary":  # a class's column is no model
            same = [each for each in same if not of_classes.issuperset(each.columns)]
        # two of one table only where no other has any
        pairs = [
            (a, b.in_order_of(a))
            for a, b in combinations(same, 2)
            if a.alike(b) and (a.table != b.table or clear <= {a.table})
        ]
        if pairs:
            chosen = _with_others(min(pairs, key=_unlikely), same)
            unused = {table for table, _ in origins.values()} - {None, *(m.table for m in chosen)}
            if not unused:
                return chosen, _doubt(chosen, same, form)
            break
    raise InputError(_none_alike(rows, where, scores, of_classes, origins))


def _unlikely(pair: tuple[Scores, Scores]) -> tuple[bool, ...]:
    """What speaks against two models; of those that are as likely, the first are taken."""
    one, two = pair
    one_column = one.form == "binary"
    return (
        one.table == two.table,
        one_column and one.table is None,  # some other share, beside the labels
        one_column and one.own != two.own,
        not (one.whole and two.whole),
    )


def _with_others(pair: tuple[Scores, Scores], same: Sequence[Scores]) -> tuple[Scores, ...]:
    """Two models, and one of every further table."""
    chosen = [*pair]
    for each in same:
        new = each.table is not None and each.table not in {model.table for model in chosen}
        if new and all(model.alike(each) for model in chosen):
            chosen.append(each.in_order_of(chosen[0]))
    return tuple(chosen)


def _doubt(chosen: Sequence[Scores], same: Sequence[Scores], form: Form) -> str | None:
    used = {name for model in chosen for name in model.columns}
    others = [each.name for each in same if not used >= {*each.columns}]
    if others:
        return f"these look like scores, too: {', '.join(others)} ({setting('models')})"
    if form == "binary":
        return "numbers from 0 to 1; they must be P(class 1) of two models"
    return None


# --- what may be scores --------------------------------------------------------------------------


def _scores(rows: pa.Table, origins: Origins) -> Iterator[Scores]:
    """Every model that the columns may be scores of, table by table."""
    for table in dict.fromkeys(origins[name][0] for name in rows.schema.names):
        names = [name for name in rows.schema.names if origins[name][0] == table]
        own = {name: origins[name][1] for name in names}
        for columns, form, classes, whole in _candidates(rows.select(names), own):
            named = tuple(own[name] for name in columns)
            yield Scores(columns, form, classes, named, table, whole)


Candidate = tuple[tuple[str, ...], Form, int, bool]


def _candidates(rows: pa.Table, own: Mapping[str, str]) -> Iterator[Candidate]:
    """Arrays, columns by class, single columns."""
    single: list[str] = []
    for name in rows.schema.names:
        column = rows.column(name).combine_chunks()
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            lengths = set(pc.list_value_length(column.drop_null()).to_pylist())
        elif pa.types.is_fixed_size_list(kind):
            lengths = {kind.list_size}
        else:
            if pa.types.is_floating(kind) and shares(column):
                single.append(name)
            continue
        values = column.flatten()
        number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
        if len(lengths) == 1 and number and shares(values) and not corners(values):
            (d,) = lengths
            if d >= 2:
                whole = sum_to(1, numbers(values).reshape(-1, d))
                yield (name,), "array", d, whole
    for group in _groups(single, own):
        if sum_to(1, _beside(rows, group)):
            yield group, "columns", len(group), True
    for name in single:
        if not corners(rows.column(name)):
            yield (name,), "binary", 2, True


def _groups(names: Sequence[str], own: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Columns whose own names have a common beginning, every group once."""
    beginnings: dict[str, list[str]] = {}
    for name in names:
        for mark in MARK.finditer(own[name]):
            beginnings.setdefault(own[name][: mark.end()], []).append(name)
    for group in dict.fromkeys(map(tuple, beginnings.values())):
        if 2 <= len(group) <= MOST_CLASSES:
            yield group


def _beside(rows: pa.Table, names: Sequence[str]) -> Floats:
    return np.stack([numbers(rows.column(name)) for name in names], axis=1)


# --- why there are none --------------------------------------------------------------------------


def _none_alike(
    rows: pa.Table, where: str, scores: list[Scores], of_classes: set[str], origins: Origins
) -> str:
    tables = {table for table, _ in origins.values()}
    models = [each for each in scores if each.form != "binary"]
    if len(tables) == 1 and len(models) == 1 and models[0].form == "columns":
        seen = f"those of one model: {', '.join(models[0].own)}"
    else:
        rest = [each for each in scores if not of_classes.issuperset(each.columns)]
        seen = ", ".join(each.name for each in models or rest) or "none"
    way_out = "; ".join(_nearly(rows, origins)) or (
        "every table named must have a model's scores, in columns named alike"
        if len(tables) > 1
        else OTHER_TABLE
    )
    return (
        f"{where}: no two models' scores in the same form: array columns, columns of which each "
        f"model's sum to 1, or one column P(class 1) each. What looks like scores: {seen}; "
        f"{way_out}; its columns: {listed_by_table(rows.schema.names, origins)}"
    )


def _nearly(rows: pa.Table, origins: Origins) -> Iterator[str]:
    """Columns that would be scores, were they written otherwise; the first of each table."""
    for table in dict.fromkeys(origins[name][0] for name in rows.schema.names):
        names = [name for name in rows.schema.names if origins[name][0] == table]
        of = "" if table is None else f" of {table}"
        text = next((name for name in names if _written_as_text(rows.column(name))), None)
        if text is not None:
            first = rows.select([text]).combine_chunks().to_batches()[0]
            shown = such_as(text, first, numbers=True)
            yield f"column {origins[text][1]!r}{of} holds text; scores must be numbers{shown}"
            continue
        own = {name: origins[name][1] for name in names}
        floats = [name for name in names if pa.types.is_floating(rows.schema.field(name).type)]
        for group in _groups(floats, own):
            if sum_to(100, _beside(rows, group)):
                shown = ", ".join(own[name] for name in group)
                yield f"columns {shown}{of} sum to 100; {HINTS[OUTSIDE]}"
                break


def _written_as_text(column: Any) -> bool:
    """Whether most values of a text column read as numbers, and not all are codes of digits."""
    known = column.drop_null()
    if not is_text(column.type) or not len(known):
        return False
    read = pc.match_substring_regex(known, NUMBER)
    codes = pc.all(pc.match_substring_regex(known, r"^\d+$")).as_py()
    return bool(pc.mean(read).as_py() >= 0.5 and not codes)


def listed_by_table(names: Sequence[str], origins: Origins) -> str:
    """Columns by their own names, those of every table together."""
    tables: dict[str | None, list[str]] = {}
    for name in names:
        tables.setdefault(origins[name][0], []).append(origins[name][1])
    return "; ".join(
        ", ".join(own) if table is None else f"of {table}: {', '.join(own)}"
        for table, own in tables.items()
    )

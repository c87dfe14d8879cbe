"""What a table looks like: which columns hold the id, the label and two models' scores.

Guesses from names, types and some rows. Every guess that is not certain is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.columns import Form, is_text
from redcal_spark.core.fixed_point import Floats
from redcal_spark.core.number_text import plural
from redcal_spark.errors import InputError
from redcal_spark.settings import setting

LABELS = ("label", "outcome", "target", "y", "truth", "actual", "class", "condition", "diagnosis")
IDS = ("id", "key", "uuid", "case", "row")
FIT = ("fit", "train", "training", "dev")
HOLDOUT = ("holdout", "test", "valid", "validation", "eval")
CLOSE = 1e-3  # of a sum to 1
OTHER_TABLE = "if another table has the other model's, name it after this one"
MOST_CLASSES = 1_000  # that columns of their own may stand for


@dataclass(frozen=True)
class Scores:
    """Columns that look like one model's scores. whole: they sum to 1 on all rows."""

    columns: tuple[str, ...]
    form: Form
    classes: int
    endings: tuple[str, ...] = ()  # what tells the columns of a model apart
    whole: bool = True

    @property
    def name(self) -> str:
        return self.columns[0] if len(self.columns) == 1 else f"{self.columns[0]}, ..."


@dataclass
class Guess:
    """What seems to be what. doubts: what is not certain, in words, by the key that it is of."""

    model_1: Scores
    model_2: Scores
    label: str
    id: str | None = None
    classes: tuple[str, ...] | None = None
    split: tuple[str, Any, Any] | None = None  # column, value of fitting rows, of holdout rows
    doubts: dict[str, str] = field(default_factory=dict)


def guess(rows: pa.Table, where: str, classes: Sequence[str] | None = None) -> Guess:
    """What the columns of some rows seem to be.

    classes: their names in order, where they are known. Nothing to guess from is refused.
    """
    known = [name for name in rows.schema.names if not name.endswith("_reconciled")]
    one, two, doubt = _pair(list(_scores(rows.select(known))), where, rows.schema.names)
    doubts = {} if doubt is None else {"model_1": doubt}
    used = {*one.columns, *two.columns}
    others = rows.select([name for name in known if name not in used])
    label, doubt = _label(others, one.classes, where)
    if doubt is not None:
        doubts["label"] = doubt
    id, doubt = id_of(others.drop_columns([label]))
    if doubt is not None:
        doubts["id"] = doubt
    names, doubt = _classes(rows, label, one, two, classes)
    if doubt is not None:
        doubts["classes"] = doubt
    return Guess(one, two, label, id, names, _split(others.drop_columns([label])), doubts)


# --- scores --------------------------------------------------------------------------------------


def _scores(rows: pa.Table) -> Iterator[Scores]:
    """Every model that the columns may be scores of: arrays, columns by class, single columns."""
    single: list[str] = []
    for name in rows.schema.names:
        column = rows.column(name).combine_chunks()
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            lengths = set(pc.list_value_length(column.drop_null()).to_pylist())
        elif pa.types.is_fixed_size_list(kind):
            lengths = {kind.list_size}
        else:
            if pa.types.is_floating(kind) and _shares(column):
                single.append(name)
            continue
        values = column.flatten()
        numbers = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
        if len(lengths) == 1 and numbers and _shares(values) and not _corners(values):
            (d,) = lengths
            sums = _numbers(values).reshape(-1, d).sum(axis=1) if d >= 2 else np.zeros(1)
            if d >= 2:
                whole = bool((np.abs(sums - 1) < CLOSE).all())
                yield Scores((name,), "array", d, whole=whole)
    yield from _groups(rows, single)
    for name in single:
        if not _corners(rows.column(name)):
            yield Scores((name,), "binary", 2)


def _groups(rows: pa.Table, names: Sequence[str]) -> Iterator[Scores]:
    """Columns with a common beginning whose sum is 1: a class each."""
    beginnings: dict[str, list[str]] = {}
    for name in names:
        for mark in re.finditer(r"[_.\-\s]|(?<=[A-Za-z])(?=\d)", name):
            beginnings.setdefault(name[: mark.end()], []).append(name)
    for start, group in beginnings.items():
        if 2 <= len(group) <= MOST_CLASSES:
            sums = sum(_numbers(rows.column(name)) for name in group)
            if bool((np.abs(sums - 1) < CLOSE).all()):
                endings = tuple(name[len(start) :] for name in group)
                yield Scores(tuple(group), "columns", len(group), endings)


def _pair(
    models: list[Scores], where: str, names: Sequence[str]
) -> tuple[Scores, Scores, str | None]:
    """The first two in the same form, arrays before columns before single ones."""
    of_classes = {name for each in models if each.form == "columns" for name in each.columns}
    for form in ("array", "columns", "binary"):
        if form == "binary":  # a class's column is no model
            models = [each for each in models if not of_classes.issuperset(each.columns)]
        same = [each for each in models if each.form == form]
        pairs = [
            (a, b)
            for a, b in combinations(same, 2)
            if a.classes == b.classes and a.endings == b.endings and not {*a.columns} & {*b.columns}
        ]
        pairs.sort(key=lambda pair: not (pair[0].whole and pair[1].whole))
        if pairs:
            one, two = pairs[0]
            used = {*one.columns, *two.columns}
            others = [each.name for each in same if not used >= {*each.columns}]
            doubt = (
                f"these look like scores, too: {', '.join(others)} ({setting('models')})"
                if others
                else None
            )
            if form == "binary" and doubt is None:
                doubt = "numbers from 0 to 1; they must be P(class 1) of two models"
            return one, two, doubt
    alone = f"those of one model: {', '.join(n for n in names if n in of_classes)}"
    seen = ", ".join(each.name for each in models) or (alone if of_classes else "none")
    raise InputError(
        f"{where}: no two models' scores in the same form: array columns, columns of which each "
        f"model's sum to 1, or one column P(class 1) each. What looks like scores: {seen}; "
        f"{OTHER_TABLE}; its columns: {', '.join(names)}"
    )


# --- the other columns ---------------------------------------------------------------------------


def _label(rows: pa.Table, d: int, where: str) -> tuple[str, str | None]:
    """By name if there is one, else by its values: class indices or few names."""
    fits = [name for name in rows.schema.names if _may_be_label(rows.column(name), d)]
    named = [name for word in LABELS for name in fits if word in _words(name)]
    if named:
        return named[0], None
    if not fits:
        raise InputError(
            f"{where}: no column looks like a label of {d} classes (an index from 0 to {d - 1}, "
            f"at most {d} names, or an array); its other columns: {_counted(rows)}"
        )
    # the more classes it has, the less likely it is something else
    best = max(fits, key=lambda name: len(_distinct(rows.column(name))))
    others = [name for name in fits if name != best]
    return best, f"by its values{f'; so could be {chr(44).join(others)}' if others else ''}"


def _counted(rows: pa.Table) -> str:
    """Columns, and how many values they have in these rows."""
    return ", ".join(
        name
        if pa.types.is_nested(rows.schema.field(name).type)
        else f"{name} ({plural(len(_distinct(rows.column(name))), 'value')})"
        for name in rows.schema.names
    )


def _may_be_label(column: pa.ChunkedArray, d: int) -> bool:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_nested(kind):
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        lists = lists or pa.types.is_fixed_size_list(kind)
        if not lists or not pa.types.is_floating(kind.value_type):
            return False
        return set(pc.list_value_length(column.drop_null()).to_pylist()) == {d}
    values = _distinct(column)
    if pa.types.is_boolean(kind):
        return d == 2
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        whole = all(float(v).is_integer() and 0 <= v < d for v in values)
        return 2 <= len(values) <= d and whole
    return is_text(kind) and 2 <= len(values) <= d


def id_of(rows: pa.Table) -> tuple[str | None, str | None]:
    """A column whose values are all different: by name, else the first."""
    fits = []
    for name in rows.schema.names:
        column = rows.column(name)
        kind = column.type
        usable = (pa.types.is_integer(kind) or is_text(kind)) and not column.null_count
        if usable and len(_distinct(column)) == len(column):
            fits.append(name)
    named = [n for n in fits if any(w in IDS or w.endswith("id") for w in _words(n))]
    if named:
        return named[0], None
    return (fits[0], "its values are all different in the rows looked at") if fits else (None, None)


def _classes(
    rows: pa.Table, label: str, one: Scores, two: Scores, given: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, str | None]:
    """Names of the classes in the order of the scores; needed where labels are names."""
    column = rows.column(label)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not is_text(kind):
        return (None if given is None else tuple(given)), None
    values = sorted(map(str, _distinct(column)))
    for names in (given, one.endings):
        if names and {*values} <= {*names}:
            return tuple(names), None
    if len(values) < one.classes:
        values += [f"class_{k}" for k in range(len(values), one.classes)]
        doubt = "the rows looked at have not all classes: write them in the order of the scores"
        return tuple(values), doubt
    rows = _with_scores(rows, one, two)
    column = rows.column(label)
    scores = [_matrix(rows, model) for model in (one, two)]
    means = np.array([sum(s[_is(column, v)].mean(axis=0) for s in scores) for v in values])
    order = means.argmax(axis=1)
    if len({*order.tolist()}) == len(values):
        return tuple(values[int(np.flatnonzero(order == k)[0])] for k in range(len(values))), (
            "in the order in which the models score them highest: check it"
        )
    return tuple(values), "the order is not known: write them in the order of the scores"


def _with_scores(rows: pa.Table, one: Scores, two: Scores) -> pa.Table:
    known = [rows.column(name).is_valid() for name in (*one.columns, *two.columns)]
    everywhere = known[0]
    for each in known[1:]:
        everywhere = pc.and_(everywhere, each)
    return rows.filter(everywhere)


def _split(rows: pa.Table) -> tuple[str, Any, Any] | None:
    for name in rows.schema.names:
        if is_text(rows.column(name).type):
            values = {str(v).lower(): v for v in _distinct(rows.column(name))}
            fit = [values[word] for word in FIT if word in values]
            holdout = [values[word] for word in HOLDOUT if word in values]
            if len(values) <= 5 and fit and holdout:
                return name, fit[0], holdout[0]
    return None


# --- values --------------------------------------------------------------------------------------


def _shares(values: pa.Array) -> bool:
    """Whether all numbers are from 0 to 1, and there are some."""
    known = values.drop_null()
    if not len(known):
        return False
    low, high = pc.min_max(known.cast(pa.float64(), safe=False)).values()
    return bool(low.as_py() >= -CLOSE and high.as_py() <= 1 + CLOSE)


def _corners(values: Any) -> bool:
    """Whether all numbers are 0 or 1: then they are labels."""
    return {*pc.unique(values.drop_null()).to_pylist()[:3]} <= {0, 1}


def _numbers(column: Any) -> Floats:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    filled = array.cast(pa.float64(), safe=False).fill_null(float("nan"))
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _matrix(rows: pa.Table, model: Scores) -> Floats:
    if model.form == "array":
        flat = rows.column(model.columns[0]).combine_chunks().flatten()
        return _numbers(flat).reshape(-1, model.classes)
    columns = [_numbers(rows.column(name)) for name in model.columns]
    return np.stack([1 - columns[0], *columns] if model.form == "binary" else columns, axis=1)


def _is(column: pa.ChunkedArray, value: str) -> Any:
    same = pc.equal(column.cast(pa.string()), value).fill_null(False)
    return np.asarray(same.combine_chunks().to_numpy(zero_copy_only=False))


def _distinct(column: Any) -> list[Any]:
    return [value for value in pc.unique(column).to_pylist() if value is not None]


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]

"""What a table looks like: which columns hold the id, the label and two models' scores.

Guesses from names, types and some rows. Every guess that is not certain is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.config.class_order import endings
from redcal_spark.core.columns import is_text
from redcal_spark.core.fixed_point import Floats
from redcal_spark.core.number_text import plural
from redcal_spark.errors import InputError
from redcal_spark.model.column_values import distinct, equals, numbers, words
from redcal_spark.model.guessed_scores import Origins, Scores, models_in

LABELS = ("label", "outcome", "target", "y", "truth", "actual", "class", "condition", "diagnosis")
IDS = ("id", "key", "uuid", "case", "row")
FIT = ("fit", "train", "training", "dev")
HOLDOUT = ("holdout", "test", "valid", "validation", "eval")


@dataclass
class Guess:
    """What seems to be what. doubts: what is not certain, in words, by the key that it is of."""

    models: tuple[Scores, ...]
    label: str
    id: str | None = None
    classes: tuple[str, ...] | None = None
    split: tuple[str, Any, Any] | None = None  # column, value of fitting rows, of holdout rows
    doubts: dict[str, str] = field(default_factory=dict)

    @property
    def model_1(self) -> Scores:
        return self.models[0]

    @property
    def model_2(self) -> Scores:
        return self.models[1]


def guess(
    rows: pa.Table,
    where: str,
    classes: Sequence[str] | None = None,
    origins: Origins | None = None,
) -> Guess:
    """What the columns of some rows seem to be.

    classes: their names in the order of the costs, if these have names. origins: the tables that
    the columns are of, where there are several. Nothing to guess from is refused.
    """
    origins = origins or {name: (None, name) for name in rows.schema.names}
    known = [name for name in rows.schema.names if not name.endswith("_reconciled")]
    models, doubt = models_in(rows.select(known), where, origins)
    doubts = {} if doubt is None else {"model_1": doubt}
    used = {name for model in models for name in model.columns}
    others = rows.select([name for name in known if name not in used])
    label, doubt = _label(others, models[0].classes, where, origins)
    if doubt is not None:
        doubts["label"] = doubt
    id, doubt = id_of(others.drop_columns([label]))
    if doubt is not None:
        doubts["id"] = doubt
    names, doubt = _classes(rows, label, models, classes)
    if doubt is not None:
        doubts["classes"] = doubt
    return Guess(models, label, id, names, _split(others.drop_columns([label])), doubts)


# --- the other columns ---------------------------------------------------------------------------


def _label(rows: pa.Table, d: int, where: str, origins: Origins) -> tuple[str, str | None]:
    """By name if there is one, else by its values: class indices or few names."""
    fits = [name for name in rows.schema.names if _may_be_label(rows.column(name), d)]
    named = [name for word in LABELS for name in fits if word in words(name)]
    if named:
        return named[0], None
    if not fits:
        raise InputError(
            f"{where}: no column looks like a label of {d} classes (an index from 0 to {d - 1}, "
            f"at most {d} names, or an array); its other columns: {_counted(rows, origins)}"
        )
    # the more classes it has, the less likely it is something else
    best = max(fits, key=lambda name: _values(rows.column(name)))
    others = [name for name in fits if name != best]
    return best, f"by its values{f'; so could be {chr(44).join(others)}' if others else ''}"


def _values(column: pa.ChunkedArray) -> int:
    """How many it has; arrays may all differ, so that only a lack of others speaks for them."""
    return 0 if pa.types.is_nested(column.type) else len(distinct(column))


def _counted(rows: pa.Table, origins: Origins) -> str:
    """Columns of the first table, and how many values they have in these rows."""
    return ", ".join(
        name
        if pa.types.is_nested(rows.schema.field(name).type)
        else f"{name} ({plural(len(distinct(rows.column(name))), 'value')})"
        for name in rows.schema.names
        if origins[name][0] is None
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
    values = distinct(column)
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
        if usable and len(distinct(column)) == len(column):
            fits.append(name)
    named = [n for n in fits if any(w in IDS or w.endswith("id") for w in words(n))]
    if named:
        return named[0], None
    return (fits[0], "its values are all different in the rows looked at") if fits else (None, None)


def class_names(rows: pa.Table, label: str) -> list[str]:
    """The names of classes among the labels, by the alphabet; none where labels are no names."""
    kind = rows.schema.field(label).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return sorted(map(str, distinct(rows.column(label)))) if is_text(kind) else []


def _classes(
    rows: pa.Table, label: str, models: Sequence[Scores], given: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, str | None]:
    """Names of the classes in the order of the scores; needed where labels are names.

    given: those of the costs, which know nothing of the order of the scores.
    """
    values = class_names(rows, label)
    if not values:
        return (None if given is None else tuple(given)), None
    for names in endings(models[0].own) if models[0].form == "columns" else ():
        if {*values} <= {*names}:
            return names, None
    scored = _as_scored(rows, label, values, models)
    if given is not None and {*values} <= {*given}:
        if scored is None:
            return tuple(given), "in the order of the costs: check that the scores have the same"
        if scored == tuple(given):
            return scored, None
        doubt = f"as in the costs, but the models score them highest as {', '.join(scored)}"
        return tuple(given), f"{doubt}: check that the scores have the same order"
    if len(values) < models[0].classes:
        values += [f"class_{k}" for k in range(len(values), models[0].classes)]
        doubt = "the rows looked at have not all classes: write them in the order of the scores"
        return tuple(values), doubt
    if scored is not None:
        return scored, "in the order in which the models score them highest: check it"
    return tuple(values), "the order is not known: write them in the order of the scores"


def _as_scored(
    rows: pa.Table, label: str, values: Sequence[str], models: Sequence[Scores]
) -> tuple[str, ...] | None:
    """The classes in the order in which the models score them highest, if that is one."""
    if len(values) != models[0].classes:
        return None
    rows = _with_scores(rows, [name for model in models for name in model.columns])
    column = rows.column(label)
    scores = [_matrix(rows, model) for model in models]
    means = np.array([sum(s[equals(column, v)].mean(axis=0) for s in scores) for v in values])
    order = means.argmax(axis=1).tolist()
    if len({*order}) < len(values):
        return None
    return tuple(values[order.index(k)] for k in range(len(values)))


def _with_scores(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    for name in names:
        rows = rows.filter(rows.column(name).is_valid())
    return rows


def _matrix(rows: pa.Table, model: Scores) -> Floats:
    if model.form == "array":
        flat = rows.column(model.columns[0]).combine_chunks().flatten()
        return numbers(flat).reshape(-1, model.classes)
    columns = [numbers(rows.column(name)) for name in model.columns]
    return np.stack([1 - columns[0], *columns] if model.form == "binary" else columns, axis=1)


def _split(rows: pa.Table) -> tuple[str, Any, Any] | None:
    for name in rows.schema.names:
        if is_text(rows.column(name).type):
            values = {str(v).lower(): v for v in distinct(rows.column(name))}
            fit = [values[word] for word in FIT if word in values]
            holdout = [values[word] for word in HOLDOUT if word in values]
            if len(values) <= 5 and fit and holdout:
                return name, fit[0], holdout[0]
    return None

"""Columns: which of them hold what, and in what form, decided from a table's schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.fixed_point import exact
from redcal_spark.core.shown_values import such_as
from redcal_spark.errors import InputError
from redcal_spark.settings import MAX_CLASSES, setting

# Columns in a message, at most:
MAX_MISSING = 100
MAX_LISTED = 200

ScoreColumns = str | tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """Which columns hold what. Scores: one array column, one column P(class 1), or d columns.

    models: the score columns of every model. model_names: what users call them, if they do.
    """

    models: tuple[ScoreColumns, ...] = ("model_1", "model_2")
    label: str = "label"
    id: str | None = None
    classes: tuple[str, ...] | None = None
    model_names: tuple[str, ...] | None = None
    weight: str | None = None
    weight_unit: float = 1.0
    segments: tuple[str, ...] = ()

    @property
    def unit(self) -> Fraction:
        """What weights are multiples of: the decimal that the user wrote."""
        return exact(self.weight_unit)

    @property
    def n_models(self) -> int:
        return len(self.models)

    @property
    def shown(self) -> tuple[str, ...]:
        """What people know the models by: their names, or columns where these tell them apart."""
        return shown_models(self.model_names, self.models)

    def scores(self, model: int) -> ScoreColumns:
        return self.models[model - 1]

    def of_model(self, model: int) -> tuple[str, ...]:
        scores = self.scores(model)
        return (scores,) if isinstance(scores, str) else scores

    @property
    def as_arrays(self) -> Columns:
        """One column a model, whatever there are in a table: scores may come as arrays, too."""
        alone = (
            name if isinstance(name, str) else f"the scores of model {number}"
            for number, name in enumerate(self.models, 1)
        )
        return replace(self, models=tuple(alone))

    def class_name(self, number: int) -> str:
        return f"class {number}" if self.classes is None else self.classes[number]

    def names(self, *, label: bool) -> list[str]:
        """Every column that is read, once: weights and segments with the labels."""
        others = [self.label, self.weight, *self.segments, self.id] if label else [self.id]
        scores = [name for i in range(self.n_models) for name in self.of_model(i + 1)]
        names = [*scores, *others]
        return list(dict.fromkeys(name for name in names if name is not None))


def shown_models(names: Sequence[str] | None, scores: Sequence[Any]) -> tuple[str, ...]:
    """What people know models by: their names, or columns where these tell them apart."""
    if names is not None:
        return tuple(names)
    alone = [own for own in scores if isinstance(own, str)]
    if len(set(alone)) == len(scores):
        return tuple(alone)
    return tuple(f"model {i}" for i in range(1, len(scores) + 1))


@dataclass(frozen=True)
class Layout:
    """Columns whose types are known: the form of the scores and the number of classes.

    skip_missing: rows without a model's scores are not valid, and no error.
    """

    columns: Columns
    n_classes: int
    forms: tuple[Form, ...]
    label: LabelForm | None  # None: labels are not read
    skip_missing: bool = False

    @property
    def binary(self) -> bool:
        return all(form == "binary" for form in self.forms)


Form = Literal["array", "columns", "binary"]
LabelForm = Literal["index", "name", "vector"]


def plan(
    schema: pa.Schema,
    columns: Columns,
    where: str,
    n_classes: int | None,
    first: pa.RecordBatch | None,
    labels: bool = True,
) -> Layout:
    """Decide the form of every column from its type. Every problem is told at once.

    n_classes: what losses or `classes` say; without them the first batch decides.
    """
    there = Counter(schema.names)
    wanted = columns.names(label=labels)
    problems = [
        f"column {name!r} not found in {where}; it has: {listed(schema.names)}"
        for name in [name for name in wanted if name not in there][:MAX_MISSING]
    ]
    problems += [
        f"{where} has {there[name]} columns named {name!r}; rename or drop the others"
        for name in wanted
        if there[name] > 1
    ]
    if problems:
        raise InputError("\n".join(problems))
    forms, widths = [], []
    for model in range(1, columns.n_models + 1):
        form, width, problem = _score_form(schema, columns.scores(model), n_classes, first)
        forms.append(form)
        widths.append(width)
        problems += problem
    problems += _id_problems(schema, columns)
    label: LabelForm | None = None
    if labels:
        label, problem = _label_form(schema, columns, first)
        problems += problem + _weight_problems(schema, columns, first)
        problems += _segment_problems(schema, columns)
    if not problems:
        problems += _width_problems(columns, forms, widths, n_classes)
    if problems:
        raise InputError("\n".join(f"{where}: {problem}" for problem in problems))
    d = n_classes or next((width for width in widths if width), None)
    if d is None:
        raise InputError(f"{where} has no rows")
    return Layout(columns, d, tuple(forms), label)


def _id_problems(schema: pa.Schema, columns: Columns) -> list[str]:
    if columns.id is None or not pa.types.is_nested(kind := schema.field(columns.id).type):
        return []
    return [f"id column {columns.id!r} has type {kind}; an id is one text, number or date"]


def _weight_problems(
    schema: pa.Schema, columns: Columns, first: pa.RecordBatch | None
) -> list[str]:
    if columns.weight is None or _is_number(kind := schema.field(columns.weight).type):
        return []
    shown = such_as(columns.weight, first)
    return [f"weight column {columns.weight!r} has type {kind}; weights are numbers{shown}"]


def _segment_problems(schema: pa.Schema, columns: Columns) -> list[str]:
    def fine(kind: pa.DataType) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)
        return bool(whole or is_text(kind) or pa.types.is_null(kind))

    return [
        f"segment column {name!r} has type {schema.field(name).type}; segments are values of text, "
        "whole numbers, true and false, or dates"
        for name in columns.segments
        if not fine(schema.field(name).type)
    ]


def listed(names: Sequence[str]) -> str:
    """Names of columns in a message: as many as someone may want to read."""
    more = f", ... and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _score_form(
    schema: pa.Schema, source: ScoreColumns, n_classes: int | None, first: pa.RecordBatch | None
) -> tuple[Form, int | None, list[str]]:
    if not isinstance(source, str):
        problems = [
            f"column {name!r} has type {schema.field(name).type}; scores must be numbers"
            + such_as(name, first, numbers=True)
            for name in source
            if not _is_number(schema.field(name).type)
        ]
        return "columns", len(source), problems
    kind = schema.field(source).type
    if _is_number(kind):
        return "binary", 2, []
    problem = None
    if not _is_list(kind):
        problem = f"column {source!r} has type {kind}; scores are arrays of numbers or one number"
        problem += such_as(source, first, numbers=True)
    elif not _is_number(kind.value_type):
        problem = f"column {source!r} holds arrays of {kind.value_type}, not of numbers"
    if problem is not None:
        return "array", None, [problem]
    if pa.types.is_fixed_size_list(kind):
        return "array", kind.list_size, []
    if first is None:
        return "array", None, []
    lengths = pc.drop_null(pc.list_value_length(first.column(source)))
    if not len(lengths):
        return "array", None, []
    # a few rows may be ragged: they are told, or skipped, one by one
    widths, counts = np.unique(lengths.to_numpy(zero_copy_only=False), return_counts=True)
    usual = int(widths[counts.argmax()])
    return "array", n_classes if n_classes in widths else usual, []


def _label_form(
    schema: pa.Schema, columns: Columns, first: pa.RecordBatch | None
) -> tuple[LabelForm | None, list[str]]:
    kind = schema.field(columns.label).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_list(kind) and _is_number(kind.value_type):
        return "vector", []
    if _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return "index", []
    if is_text(kind):
        if columns.classes is not None:
            return "name", []
        if first is None:
            return None, []  # no rows: told by whoever wants some
        shown = such_as(columns.label, first)
        if not shown:
            return None, [
                f"label column {columns.label!r} has no label in the first {first.num_rows:,} "
                "rows; if it has names of classes further down, list them in "
                f"`{setting('classes')}`"
            ]
        return None, [
            f"label column {columns.label!r} holds text; name the classes with "
            f"`{setting('classes')}`{shown}"
        ]
    return None, [
        f"label column {columns.label!r} has type {kind}; labels are class indices, class names, "
        "0/1 or arrays of numbers"
    ]


def _width_problems(
    columns: Columns, forms: Sequence[Form], widths: Sequence[int | None], n_classes: int | None
) -> list[str]:
    problems = []
    known = [width for width in widths if width is not None]
    if 0 < forms.count("binary") < len(forms):  # a patch keeps f0 + f1 = 1 for such columns only
        problems.append(_mixed_forms(columns, forms, widths))
    elif len(set(known)) > 1:
        counts = " and ".join(map(str, known))
        if len(widths) > 2:
            each = zip(columns.shown, widths, strict=True)
            counts = ", ".join(f"{name!r} has {width}" for name, width in each if width is not None)
        problems.append(f"the models have different numbers of classes: {counts}")
    for source, width in zip(columns.models, widths, strict=True):
        if width is None:
            continue
        if n_classes is not None and width != n_classes and not problems:
            name = source if isinstance(source, str) else ", ".join(source[:3])
            problems.append(
                f"column {name!r} has {width} classes, {setting('losses')} and "
                f"`{setting('classes')}` have {n_classes}"
            )
        if not 2 <= width <= MAX_CLASSES and not problems:
            problems.append(f"needs 2 to {MAX_CLASSES:,} classes, got {width}")
    return problems


def _mixed_forms(columns: Columns, forms: Sequence[Form], widths: Sequence[int | None]) -> str:
    """Some models have one column P(class 1), others a score for every class."""
    counts = ["an array" if width is None else f"{width} classes" for width in widths]
    if len(forms) == 2:
        other = counts[1 - forms.index("binary")]
        return f"one model has one column P(class 1), the other {other}; give both in one form"
    each = zip(columns.shown, forms, counts, strict=True)
    named = [
        f"{name!r} has {'one column P(class 1)' if form == 'binary' else width}"
        for name, form, width in each
    ]
    return f"{', '.join(named)}; give all models in one form"


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def inside(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of all values in a type, however deep."""
    if pa.types.is_dictionary(kind):
        yield from inside(kind.value_type)
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        for number in range(kind.num_fields):
            yield from inside(kind.field(number).type)
    else:
        yield kind

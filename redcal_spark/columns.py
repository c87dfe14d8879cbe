"""Columns: from Arrow batches to rows on the grid, with every bad row counted and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.blocks import Block
from redcal_spark.errors import InputError
from redcal_spark.fixed_point import MAX_CLASSES, ONE, Floats, Grid

Mask = npt.NDArray[np.bool_]
ScoreColumns = str | tuple[str, ...]

SUM_TOLERANCE = ONE // 1_000  # rows further than this from 1 are told: softmax noise is far below
EXAMPLES = 3


@dataclass(frozen=True)
class Columns:
    """Which columns hold what. Scores: one array column, one column P(class 1), or d columns."""

    model_1: ScoreColumns = "model_1"
    model_2: ScoreColumns = "model_2"
    label: str = "label"
    id: str | None = None
    classes: tuple[str, ...] | None = None

    def scores(self, model: int) -> ScoreColumns:
        return self.model_1 if model == 1 else self.model_2

    def names(self, *, label: bool) -> list[str]:
        """Every column that is read, once."""
        found: dict[str, None] = {}
        for columns in (self.model_1, self.model_2):
            found.update(dict.fromkeys((columns,) if isinstance(columns, str) else columns))
        if label:
            found[self.label] = None
        if self.id is not None:
            found[self.id] = None
        return list(found)


@dataclass(frozen=True)
class Layout:
    """Columns whose types are known: the form of the scores and the number of classes."""

    columns: Columns
    n_classes: int
    forms: tuple[Form, Form]
    label: LabelForm | None  # None: labels are not read

    @property
    def binary(self) -> bool:
        return self.forms == ("binary", "binary")


Form = Literal["array", "columns", "binary"]
LabelForm = Literal["index", "name", "vector"]


@dataclass
class Problem:
    rows: int = 0
    examples: list[str] = field(default_factory=list)


class Problems:
    """Bad rows, by column and kind, with the first few of each. Adds up over batches."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Problem] = {}

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, column: str, kind: str, rows: int, examples: Sequence[str]) -> None:
        problem = self.found.setdefault((column, kind), Problem())
        problem.rows += rows
        problem.examples += examples[: EXAMPLES - len(problem.examples)]

    def merge(self, other: Problems) -> None:
        for (column, kind), problem in other.found.items():
            self.add(column, kind, problem.rows, problem.examples)

    def to_json(self) -> list[Any]:
        return [[column, kind, p.rows, p.examples] for (column, kind), p in self.found.items()]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Problems:
        problems = cls()
        for column, kind, rows, examples in data:
            problems.add(column, kind, rows, examples)
        return problems

    def lines(self) -> list[str]:
        return [
            f"column {column!r}: {problem.rows:,} {'row' if problem.rows == 1 else 'rows'} {kind}; "
            f"first: {', '.join(problem.examples)}"
            for (column, kind), problem in self.found.items()
        ]

    def raise_if_any(self, where: str, advice: str = "") -> None:
        if self.found:
            raise InputError(
                "\n  ".join([f"{where} has rows that cannot be used:", *self.lines()]) + advice
            )


@dataclass
class Reading:
    """A batch on the grid. Rows that are not `valid` hold zeros; `labelled` rows have a known y."""

    block: Block
    valid: Mask
    labelled: Mask
    off_sum: int  # valid rows whose scores do not sum to 1

    @property
    def usable(self) -> Mask:
        """Rows that can be fitted or judged."""
        return self.valid & self.labelled


# --- schema ---------------------------------------------------------------------------------------


def plan(
    schema: pa.Schema,
    columns: Columns,
    where: str,
    n_classes: int | None,
    first: pa.RecordBatch | None,
    labels: bool = True,
) -> Layout:
    """Decide the form of every column from its type. Problems are told all at once.

    n_classes: what losses or `classes` say; without them the first batch decides.
    """
    problems = [
        f"column {name!r} not found in {where}; it has: {', '.join(schema.names)}"
        for name in columns.names(label=labels)
        if name not in schema.names
    ]
    if problems:
        raise InputError("\n".join(problems))
    forms, widths = [], []
    for model in (1, 2):
        form, width, problem = _score_form(schema, columns.scores(model), n_classes, first)
        forms.append(form)
        widths.append(width)
        problems += problem
    label: LabelForm | None = None
    if labels:
        label, problem = _label_form(schema, columns, first)
        problems += problem
    if not problems:
        problems += _width_problems(columns, forms, widths, n_classes)
    if problems:
        raise InputError("\n".join(f"{where}: {problem}" for problem in problems))
    d = n_classes or widths[0] or widths[1]
    if d is None:
        raise InputError(f"{where} has no rows")
    return Layout(columns, d, (forms[0], forms[1]), label)


def _score_form(
    schema: pa.Schema, source: ScoreColumns, n_classes: int | None, first: pa.RecordBatch | None
) -> tuple[Form, int | None, list[str]]:
    if not isinstance(source, str):
        told = [
            f"column {name!r} has type {schema.field(name).type}; scores must be numbers"
            + _such_as(name, first)
            for name in source
            if not _is_number(schema.field(name).type)
        ]
        return "columns", len(source), told
    kind = schema.field(source).type
    if _is_number(kind):
        return "binary", 2, []
    if not _is_list(kind):
        return (
            "array",
            None,
            [
                f"column {source!r} has type {kind}; scores are arrays of numbers or one number"
                + _such_as(source, first)
            ],
        )
    if not _is_number(kind.value_type):
        return (
            "array",
            None,
            [f"column {source!r} holds arrays of {kind.value_type}, not of numbers"],
        )
    if pa.types.is_fixed_size_list(kind):
        return "array", kind.list_size, []
    if first is None:
        return "array", None, []
    lengths = pc.drop_null(pc.list_value_length(first.column(source)))
    if not len(lengths):
        return "array", None, []
    # a few rows may be ragged: they are told, or skipped, one by one
    found, counts = np.unique(lengths.to_numpy(zero_copy_only=False), return_counts=True)
    usual = int(found[counts.argmax()])
    return "array", n_classes if n_classes in found else usual, []


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
    if _is_text(kind):
        if columns.classes is not None:
            return "name", []
        if first is None:
            return None, []  # no rows: told by whoever wants some
        shown = _such_as(columns.label, first)
        if not shown:
            return None, [
                f"label column {columns.label!r} has no label in the first {first.num_rows:,} "
                "rows; if it has names of classes further down, list them in `classes`"
            ]
        told = f"label column {columns.label!r} holds text; name the classes with `classes`"
        return None, [told + shown]
    return None, [
        f"label column {columns.label!r} has type {kind}; labels are class indices, class names, "
        "0/1 or arrays of numbers"
    ]


def _such_as(name: str, first: pa.RecordBatch | None) -> str:
    """The first value of a column, to be shown where its type is wrong."""
    values = () if first is None else (v.as_py() for v in first.column(name))
    value = next((v for v in values if v is not None), None)
    return "" if value is None else f"; first: {str(value)[:60]!r}"


def _width_problems(
    columns: Columns, forms: Sequence[Form], widths: Sequence[int | None], n_classes: int | None
) -> list[str]:
    told = []
    one, two = widths
    if forms.count("binary") == 1 and 2 not in (widths[1 - forms.index("binary")], None):
        one, two = (one, two) if forms[0] != "binary" else (two, one)
        told.append(f"one model has one column P(class 1), the other {one} classes")
    elif one is not None and two is not None and one != two:
        told.append(f"the models have different numbers of classes: {one} and {two}")
    for source, width in zip((columns.model_1, columns.model_2), widths, strict=True):
        if width is None:
            continue
        if n_classes is not None and width != n_classes and not told:
            name = source if isinstance(source, str) else ", ".join(source[:3])
            told.append(
                f"column {name!r} has {width} classes, losses and `classes` have {n_classes}"
            )
        if not 2 <= width <= MAX_CLASSES and not told:
            told.append(f"needs 2 to {MAX_CLASSES:,} classes, got {width}")
    return told


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


# --- rows -----------------------------------------------------------------------------------------


def read(batch: pa.RecordBatch, layout: Layout, problems: Problems, start: int = 0) -> Reading:
    """A batch as rows on the grid. `start`: the number of its first row, for messages."""
    reader = _Reader(batch, layout, problems, start)
    f1, f2 = reader.scores(1), reader.scores(2)
    y, labelled = reader.labels()
    return Reading(Block(f1, f2, y), reader.valid, labelled, reader.off_sum)


class _Reader:
    def __init__(self, batch: pa.RecordBatch, layout: Layout, problems: Problems, start: int):
        self.batch, self.layout, self.problems, self.start = batch, layout, problems, start
        self.n, self.d = batch.num_rows, layout.n_classes
        self.valid = np.ones(self.n, np.bool_)
        self._off = np.zeros(self.n, np.bool_)
        id = layout.columns.id
        if id is not None and id in batch.schema.names:
            self._reject(id, "with null", _nulls(batch.column(id)))

    @property
    def off_sum(self) -> int:
        return int(np.count_nonzero(self._off & self.valid))

    def scores(self, model: int) -> Grid:
        source, form = self.layout.columns.scores(model), self.layout.forms[model - 1]
        grid = np.empty((self.n, self.d), np.int32)
        if form == "binary":
            assert isinstance(source, str)
            self._quantise(source, self._numbers(source)[:, None], grid[:, 1:])
            np.subtract(ONE, grid[:, 1], out=grid[:, 0])
            return grid
        if form == "array":
            assert isinstance(source, str)
            self._off |= self._quantise(source, self._vectors(source, self.valid), grid)
            return grid
        sums = np.zeros(self.n)
        for j, name in enumerate(source):
            self._quantise(name, self._numbers(name)[:, None], grid[:, j : j + 1])
            sums += grid[:, j]
        self._off |= np.abs(sums - ONE) > SUM_TOLERANCE
        return grid

    def labels(self) -> tuple[Grid | None, Mask]:
        form, name = self.layout.label, self.layout.columns.label
        if form is None:
            return None, np.zeros(self.n, np.bool_)
        column = self.batch.column(name)
        known = ~_nulls(column)
        if form == "vector":
            grid = np.empty((self.n, self.d), np.int32)
            self._quantise(name, self._vectors(name, known.copy(), nulls=False), grid)
            return grid, known
        if form == "name":
            classes = pa.array(self.layout.columns.classes, pa.string())
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            index = pc.index_in(column.cast(pa.string()), classes)
            bad = known & _nulls(index)
            self._reject(name, f"with a label not among the {len(classes)} classes", bad)
            return _filled(index, 0).astype(np.int32), known
        values = _filled(column, 0)
        bad = known & ~((values >= 0) & (values < self.d) & (values == np.floor(values)))
        self._reject(name, f"with a label that is no class index from 0 to {self.d - 1}", bad)
        return np.where(bad | ~known, 0, values).astype(np.int32), known

    def _quantise(self, name: str, values: Floats, grid: Grid) -> Mask:
        """Round onto the grid, chunk by chunk in cache. Returns rows that do not sum to 1."""
        off = np.zeros(self.n, np.bool_)
        rows = max(1, 2**17 // values.shape[1])
        buffer = np.empty((min(rows, self.n), values.shape[1]))
        ones = np.ones(values.shape[1])
        for start in range(0, self.n, rows):
            part = slice(start, min(start + rows, self.n))
            q = buffer[: part.stop - start]
            np.multiply(values[part], float(ONE), out=q)
            np.rint(q, out=q)
            if not (q.min() >= 0 and q.max() <= ONE):
                self._reject_values(name, values, q, part)
            grid[part] = q
            off[part] = np.abs(q @ ones - ONE) > SUM_TOLERANCE
        return off

    def _reject_values(self, name: str, values: Floats, q: Floats, part: slice) -> None:
        inside = (q >= 0) & (q <= ONE)
        q[~inside] = 0
        fresh = np.zeros(self.n, np.bool_)
        fresh[part] = ~inside.all(axis=1)
        fresh &= self.valid  # rows already refused, for a null say, are told once
        number = np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=np.inf)
        endless = fresh & np.isinf(number).any(axis=1)
        self._reject(name, "with NaN or infinity", endless)
        self._reject(name, "with a value outside [0, 1]", fresh & ~endless)

    def _numbers(self, name: str) -> Floats:
        column = self.batch.column(name)
        self._reject(name, "with null", _nulls(column))
        return _filled(column, 0)

    def _vectors(self, name: str, wanted: Mask, nulls: bool = True) -> Floats:
        """An array column as n x d; zeros where a row cannot be read."""
        column = self.batch.column(name)
        if nulls:
            self._reject(name, "with null", _nulls(column))
        flat = column.flatten()
        whole = len(flat) == self.n * self.d and not column.null_count and not flat.null_count
        if whole and (
            pa.types.is_fixed_size_list(column.type)
            or bool((np.diff(column.offsets.to_numpy()) == self.d).all())
        ):
            return _filled(flat, 0).reshape(self.n, self.d)
        lengths = _filled(pc.list_value_length(column), 0).astype(np.int64)
        short = wanted & (lengths != self.d)
        self._reject(name, f"without exactly {self.d} values", short)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.zeros((self.n, self.d))
        full = np.flatnonzero((lengths == self.d) & ~_nulls(column))
        places = offsets[full][:, None] + np.arange(self.d)
        values[full] = _filled(flat, 0)[places]
        holes = np.zeros(self.n, np.bool_)
        holes[full] = _nulls(flat)[places].any(axis=1)
        self._reject(name, "with a null among its values", holes & wanted)
        return values

    def _reject(self, name: str, kind: str, bad: Mask) -> None:
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        self.valid[rows] = False
        shown = [f"{self._row(int(i))}: {self._shown(name, int(i))}" for i in rows[:EXAMPLES]]
        self.problems.add(name, kind, len(rows), shown)

    def _row(self, i: int) -> str:
        id = self.layout.columns.id
        if id is not None and (value := self.batch.column(id)[i].as_py()) is not None:
            return f"id {value!r}"
        return f"row {self.start + i}"

    def _shown(self, name: str, i: int) -> str:
        value = self.batch.column(name)[i].as_py()
        if isinstance(value, list) and len(value) > 6:
            return f"[{', '.join(f'{v}' for v in value[:5])}, ... {len(value)} values]"
        return str(value)


def _nulls(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _filled(column: pa.Array, fill: Any) -> npt.NDArray[Any]:
    """Numbers as float64, nulls replaced."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    if column.null_count:
        column = column.fill_null(fill)
    return np.asarray(column.to_numpy(zero_copy_only=False))

"""Costs as users hold them: lists, arrays and data frames as rows of numbers, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.core.fixed_point import Floats

Names = tuple[str, ...]


@dataclass(frozen=True)
class Costs:
    """An action x class matrix, and the names that came with it: of a frame's rows and columns."""

    matrix: Floats
    actions: Names | None = None
    classes: Names | None = None


def read_costs(given: Any) -> tuple[Costs | None, list[str]]:
    """What the user gave as a matrix, or what is wrong with it."""
    frame, problems = _frame(given)
    if problems:
        return None, problems
    if frame is None:
        matrix, problems = _matrix(given)
        return None if matrix is None else Costs(matrix), problems
    names, columns, index = frame
    if columns and index is None and _all_text(columns[0]):  # as in a CSV file
        index, names, columns = columns[0], names[1:], columns[1:]
    actions, problems = _actions(index)
    classes, odd = _classes(names)
    matrix, wrong = _matrix([list(row) for row in zip(*columns, strict=True)])
    problems += odd + wrong
    if matrix is None or problems:
        return None, problems
    return Costs(matrix, actions, classes), []


Frame = tuple[list[Any], list[list[Any]], list[Any] | None]


def _frame(given: Any) -> tuple[Frame | None, list[str]]:
    """A frame's column names, columns and index. Going through one would give its columns or names,
    which are not the rows: a square matrix would be read as its transpose."""
    if isinstance(given, pa.Table | pa.RecordBatch):
        return (list(given.column_names), [c.to_pylist() for c in given.columns], None), []
    if not hasattr(type(given), "columns"):  # a LazyFrame would work to give its own
        return None, []
    if hasattr(given, "iloc"):
        index = given.index.tolist()
        numbered = index == list(range(len(index)))
        columns = [given.iloc[:, j].tolist() for j in range(given.shape[1])]
        return (given.columns.tolist(), columns, None if numbered else index), []
    if hasattr(given, "get_columns"):
        return (list(given.columns), [c.to_list() for c in given.get_columns()], None), []
    return None, [
        f"costs are a {type(given).__name__} of {type(given).__module__.partition('.')[0]}, which "
        "cannot be read here; give a DataFrame of pandas or polars, an array, or lists"
    ]


def _all_text(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


def _actions(index: list[Any] | None) -> tuple[Names | None, list[str]]:
    if index is None:
        return None, []
    odd = [name for name in index if not isinstance(name, str | int | np.integer)]
    if odd:
        return None, [f"the index of the costs names the actions by text, and has {odd[0]!r}"]
    return tuple(map(str, index)), []


def _classes(names: list[Any]) -> tuple[Names | None, list[str]]:
    """The names of the columns; none where they only count."""
    d = range(len(names))
    if names == list(d) or names in ([str(j) for j in d], [f"column_{j}" for j in d]):
        return None, []
    if not _all_text(names):
        shown = ", ".join(map(repr, names[:6]))
        return None, [
            f"the columns of the costs are {shown}: give the names of the classes as text, or "
            f"number them from 0 to {len(names) - 1} in their order"
        ]
    if len(set(names)) < len(names):
        return None, [f"the columns of the costs repeat: {', '.join(names)}"]
    return tuple(names), []


def _matrix(costs: Any) -> tuple[Floats | None, list[str]]:
    if isinstance(costs, np.ndarray) and costs.ndim == 2:
        costs = costs.tolist() if costs.dtype.kind in "iuf" else np.asarray(costs)
    try:
        rows = [list(row) for row in costs]
    except TypeError:
        return None, ["costs must be a matrix: one list of class costs per action"]
    if not rows:
        return None, ["costs are empty: give one list of class costs per action"]
    widths = [len(row) for row in rows]
    if len(set(widths)) > 1:
        return None, [f"rows of different width: {widths}"]
    for a, row in enumerate(rows):
        for j, cost in enumerate(row):
            if isinstance(cost, bool | np.bool_ | str | bytes) or cost is None or np.ndim(cost):
                return None, [f"cost of action {a}, class {j} is not a number: {cost!r}"]
    try:
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1), []
    except (TypeError, ValueError, OverflowError):
        return None, ["costs must be numbers"]

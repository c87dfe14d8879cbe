"""What users hand over in Python, as a table: tables, arrays of scores, or all models in one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.arrow import check_indexes, from_numpy, labels_of, to_arrow
from redcal_spark.core.columns import Columns
from redcal_spark.errors import InputError, UsageError


def is_spark(data: Any) -> bool:
    """Whether this is a Spark DataFrame, asked without importing Spark."""
    return any(kind.__module__.startswith("pyspark.sql") for kind in type(data).__mro__)


def labelled(
    columns: Columns,
    data: Any,
    model_2: Any,
    labels: Any,
    more: Sequence[str] = (),
    weight: Any = None,
) -> pa.Table:
    """Labelled rows: a table; (scores, scores, labels); ([scores, ...], labels); or (X, y).

    more: other columns of a table that are needed. weight: of arrays, how often each row counts.
    """
    names = [*columns.names(label=model_2 is None), *more]
    if model_2 is None:
        if labels is not None:
            raise UsageError("labels: given with a table; give (scores, scores, labels), or (X, y)")
        return to_arrow(data, names)
    if labels is not None:
        return from_numpy(columns, [data, model_2], labels, weight)
    if is_many(data):
        return from_numpy(columns, data, model_2, weight)
    if is_both(data) and np.ndim(model_2) == 1:  # more are scores of a model, without labels
        return from_numpy(columns, parts(data, columns.n_models), model_2, weight)
    if not _is_table(data):
        raise UsageError(
            "labels are missing: fit(scores_1, scores_2, labels), or fit([scores_1, ...], labels); "
            "or fit(X, y), X a table or an array with the scores of all models side by side"
        )
    table = to_arrow(data, names)
    if columns.label in table.column_names:
        raise UsageError(
            f"the data has the column {columns.label!r}, and labels were given beside it: leave "
            "out one of them"
        )
    check_indexes({"the data": data}, model_2)
    y = labels_of(model_2)
    if len(y) != table.num_rows:
        raise InputError(f"{len(y):,} labels for {table.num_rows:,} rows")
    return table.append_column(columns.label, y)


def score_arrays(data: Any, model_2: Any, labels: Any) -> list[Any]:
    """The scores of every model, where they were given beside labels of their own."""
    if labels is not None:
        return [data, model_2]
    return list(data) if model_2 is not None and is_many(data) else []


def unit_of(given: Any) -> float:
    number = isinstance(given, int | float | np.number | Decimal) and not isinstance(given, bool)
    if not number or not 0 < float(given) < math.inf:
        raise UsageError(f"weight_unit: must be a number above 0, got {given!r}")
    return float(given)


def segments_given(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"segments: must be a list of columns, got {given!r}")
    if len(set(given)) < len(given):
        raise UsageError(f"segments: a column is given twice: {', '.join(given)}")
    return tuple(given)


def is_both(data: Any) -> TypeGuard[npt.NDArray[Any]]:
    """Whether it is an array with the scores of all models side by side."""
    return isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind in "fiu"


def parts(both: npt.NDArray[Any], models: int) -> list[npt.NDArray[Any]]:
    """Model 1's columns, then model 2's, and so on: as many as models, P(class 1) of each."""
    width = both.shape[1]
    if width < models or width % models:
        raise InputError(
            f"an array of {models} models' scores has as many columns for each; got {width} columns"
        )
    if width == models:
        return list(both.T)
    return np.hsplit(both, models)


def is_many(data: Any) -> bool:
    """Whether this is a list of arrays, one for each model."""
    if not isinstance(data, list | tuple):
        return False
    return all(hasattr(scores, "__len__") and not isinstance(scores, str) for scores in data)


# --- one row --------------------------------------------------------------------------------------


def is_row(data: Any) -> bool:
    """Whether it is one row with named values: a mapping, a row of pandas' or of Spark's."""
    return (
        isinstance(data, Mapping)
        or hasattr(data, "asDict")
        or (hasattr(data, "to_dict") and hasattr(data, "index") and not hasattr(data, "columns"))
    )


def one_row(columns: Columns, row: Any, model_2: Any = None) -> tuple[pa.Table, Columns]:
    """What a user holds of one row as a table, and its columns; an id is not needed.

    row: a mapping, a pandas or Spark row, a table of one row; or the scores of model 1, with those
    of model 2 beside them, or the scores of every model as a list or tuple.
    """
    scores: Sequence[Any] | None = None if model_2 is None else [row, model_2]
    if model_2 is None and isinstance(row, tuple | list) and not hasattr(row, "asDict"):
        scores, needed = row, columns.n_models
        if len(row) != needed and needed == 2:
            raise UsageError(f"explain: a pair (scores, scores) is needed, got {len(row)} parts")
        if len(row) != needed:
            raise UsageError(f"explain: the scores of {needed} models are needed, got {len(row)}")
    if scores is not None:
        columns = columns.as_arrays
        table = from_numpy(columns, [one_of(own) for own in scores])
    elif isinstance(row, str | int):
        raise UsageError(f"explain: takes the row itself, got {row!r}; a pair has no rows by id")
    elif hasattr(row, "asDict"):  # a row of Spark's
        table = from_mapping(columns, row.asDict())
    elif isinstance(row, Mapping):
        table = from_mapping(columns, row)
    elif hasattr(row, "to_dict") and not hasattr(row, "columns"):  # a row of pandas'
        table = from_mapping(columns, row.to_dict())
    else:
        table = to_arrow(row, columns.names(label=False))
    if table.num_rows != 1:
        raise UsageError(f"explain: takes one row, got {table.num_rows:,}")
    if columns.id is not None and columns.id not in table.column_names:
        columns = replace(columns, id=None)
    return table.combine_chunks(), columns


def from_mapping(columns: Columns, row: Mapping[Any, Any]) -> pa.Table:
    wanted = columns.names(label=False)
    arrays = {}
    for name, value in row.items():
        if name not in wanted:
            arrays[str(name)] = pa.nulls(1)  # seen in messages only
            continue
        try:
            arrays[name] = pa.array([value])
        except (pa.ArrowException, TypeError, ValueError) as err:
            raise InputError(f"column {name!r}: {str(err).splitlines()[0]}") from err
    return pa.table(arrays)


def one_of(scores: Any) -> Any:
    """Scores of one row as those of a table: a number, or a vector."""
    array = np.asarray(scores)
    return array[None] if array.ndim == 0 or (array.ndim == 1 and len(array) > 1) else array


def _is_table(data: Any) -> bool:
    return hasattr(data, "columns") or hasattr(data, "__arrow_c_stream__")

"""Tables in memory: what users hold (numpy, pandas, Arrow) as Arrow, and back again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.columns import Columns
from redcal_spark.errors import InputError, UsageError

BATCH = 65_536  # rows at a time: enough for threads to share, small enough for the cache


def to_arrow(data: Any, names: Sequence[str]) -> pa.Table:
    """The named columns of a table in memory. Missing ones are left to `plan` to name."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "to_arrow"):  # polars, duckdb
        return to_arrow(data.to_arrow(), names)
    if not (hasattr(data, "columns") and hasattr(data, "dtypes")):
        raise UsageError(
            "data must be a pandas DataFrame, a pyarrow Table, a Spark DataFrame, "
            f"or numpy arrays (scores, scores, labels); got {type(data).__name__}"
        )
    arrays = []
    for place, name in enumerate(data.columns):
        if name in names:
            # by place: of a name that is there twice, pandas would give both
            arrays.append((name, _from_pandas(data.iloc[:, place], name)))
        else:
            arrays.append((str(name), pa.nulls(len(data))))  # seen in messages only
    return pa.table([array for _, array in arrays], names=[name for name, _ in arrays])


def from_numpy(columns: Columns, model_1: Any, model_2: Any, label: Any = None) -> pa.Table:
    """Arrays as the columns that the reconciler was told of."""
    arrays = {
        _only(columns.model_1): _scores(model_1, "the scores of model 1"),
        _only(columns.model_2): _scores(model_2, "the scores of model 2"),
    }
    if label is not None:
        arrays[columns.label] = _scores(label, "the labels")
    lengths = {len(a) for a in arrays.values()}
    if len(lengths) > 1:
        told = ", ".join(f"{name}: {len(a)}" for name, a in arrays.items())
        raise InputError(f"arrays of different length: {told}")
    return pa.table(arrays)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=BATCH)


def _only(columns: Any) -> str:
    if not isinstance(columns, str):
        raise UsageError("numpy arrays stand for one column each; name model_1 and model_2 by text")
    return columns


def _from_pandas(series: Any, name: str) -> pa.Array:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as err:
        raise InputError(f"column {name!r} mixes types: {str(err).splitlines()[0]}") from err


def _scores(values: Any, name: str) -> pa.Array:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different length: left to the reader, which names them
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
    if array.ndim == 2:
        if not np.issubdtype(array.dtype, np.number):
            raise InputError(f"{name}: must be numbers, got an array of {array.dtype}")
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    if array.ndim != 1:
        raise InputError(f"{name}: must have one or two dimensions, got {array.ndim}")
    if array.dtype == object:  # rows of different length, or text
        return _from_pandas(array, name)
    try:
        return pa.array(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as err:
        raise InputError(f"{name}: {str(err).splitlines()[0]}") from err

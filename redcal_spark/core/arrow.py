"""Tables in memory: what users hold (numpy, pandas, polars, Arrow) as Arrow, and back again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.columns import Columns
from redcal_spark.errors import InputError, UsageError

Batches = Iterable[pa.RecordBatch]

BATCH = 65_536  # rows at a time: enough for threads to share, small enough for the cache
FEW = 4_096  # rows


def to_arrow(data: Any, names: Sequence[str]) -> pa.Table:
    """The named columns of a table in memory. Missing ones are left to `plan` to name."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if is_polars(data):
        return _from_polars(data, names)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        arrays = []
        for place, name in enumerate(data.columns):
            if name in names:
                # by place: of a name that is there twice, pandas would give both
                arrays.append((name, _from_pandas(data.iloc[:, place], name)))
            else:
                arrays.append((str(name), pa.nulls(len(data))))  # seen in messages only
        return pa.table([array for _, array in arrays], names=[name for name, _ in arrays])
    if hasattr(data, "__arrow_c_stream__"):  # DuckDB's relations, and whatever speaks Arrow
        return pa.table(data)
    if hasattr(data, "to_arrow"):
        return to_arrow(data.to_arrow(), names)
    raise UsageError(
        "data must be a DataFrame of pandas, polars or Spark, a pyarrow Table, a DuckDB relation, "
        "another table that has __arrow_c_stream__, "
        f"or numpy arrays (scores, scores, labels); got {type(data).__name__}"
    )


def with_columns(data: Any, table: pa.Table, added: Sequence[str]) -> Any:
    """The user's table with columns added that an Arrow table of the same rows has."""
    if isinstance(data, pa.RecordBatch):
        return next(iter(table.combine_chunks().to_batches()), empty_batch(table.schema))
    if is_polars(data):
        return data.hstack(type(data)(table.select(added)))
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    if _is_of(data, "duckdb", "_duckdb"):
        extended = table  # noqa: F841  # by this name DuckDB finds it, on the relation's connection
        return data.query("given", "SELECT * FROM extended")
    if isinstance(data, pa.Table) or not hasattr(data, "assign"):
        made = getattr(type(data), "from_arrow", None)
        # Arrow for Arrow, and for what only gives Arrow
        return table if made is None or isinstance(data, pa.Table) else made(table)
    new = table.select(added).to_pandas()
    new.index = data.index
    return data.assign(**{name: new[name] for name in added})


def is_polars(data: Any) -> bool:
    """Whether this is of polars, asked without importing polars."""
    return _is_of(data, "polars")


def _is_of(data: Any, *packages: str) -> bool:
    return any(kind.__module__.partition(".")[0] in packages for kind in type(data).__mro__)


def from_numpy(
    columns: Columns,
    scores: Sequence[Any],
    label: Any = None,
    weight: Any = None,
    fitted: Sequence[str] | None = None,
) -> pa.Table:
    """Arrays as the columns that the reconciler was told of, one of scores for each model.

    fitted: the names of the columns of frames that were fitted, where that is known.
    """
    if len(scores) != columns.n_models:
        raise UsageError(
            f"{len(scores)} arrays of scores, and there are {columns.n_models} models: "
            f"{', '.join(columns.shown)}"
        )
    if columns.segments:
        raise UsageError("segments: are columns of a table; with arrays there are none")
    tables = {f"the scores of model {i}": given for i, given in enumerate(scores, 1)}
    check_indexes(tables, label)
    orders = {"the classes": columns.classes, "the scores that were fitted": fitted}
    check_orders({**tables, "the labels": label}, orders)
    arrays = {
        _only(columns.scores(i)): _array(given, f"the scores of model {i}")
        for i, given in enumerate(scores, 1)
    }
    if label is not None:
        arrays[columns.label] = labels_of(label)
    if weight is not None and columns.weight is not None:
        arrays[columns.weight] = _array(weight, "the weights")
    lengths = {len(a) for a in arrays.values()}
    if len(lengths) > 1:
        sizes = ", ".join(f"{name}: {len(a)}" for name, a in arrays.items())
        raise InputError(f"arrays of different length: {sizes}")
    return pa.table(arrays)


def check_indexes(tables: Mapping[str, Any], label: Any) -> None:
    """Refuse pandas objects whose rows are named differently: here they are paired by place."""
    given = {**tables, "the labels": label}
    named = [(what, of.index) for what, of in given.items() if hasattr(of, "iloc")]
    for what, index in named[1:]:
        first, known = named[0]
        if len(index) != len(known) or known.equals(index):
            continue  # a length of its own has a message of its own
        i = next(i for i, (a, b) in enumerate(zip(known, index, strict=True)) if a != b or a != a)
        raise InputError(
            f"{first} and {what} have different indexes: place {i} is {known[i]} in one and "
            f"{index[i]} in the other; rows are paired by place. Put them in the same order "
            "(.loc[other.index]), or give arrays (.to_numpy()) if they are"
        )


def check_orders(tables: Mapping[str, Any], known: Mapping[str, Sequence[str] | None]) -> None:
    """Refuse frames whose columns have the same names in another order: they are taken by place.

    known: what has an order already.
    """
    orders = {**known, **{what: column_names(of) for what, of in tables.items()}}
    seen: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for what, given in orders.items():
        if given is None:
            continue
        names = list(given)
        first, expected = seen.setdefault(tuple(sorted(names)), (what, names))
        if names != expected:
            raise InputError(
                f"columns in another order: {first}: {', '.join(expected)}; {what}: "
                f"{', '.join(names)}; they are taken by their place: put them in the same order, "
                f"[{expected}]"
            )


def column_names(data: Any) -> list[str] | None:
    """Of a frame that stands for an array, if it is one."""
    names = getattr(data, "column_names", None)
    if names is None and hasattr(data, "iloc"):
        names = getattr(data, "columns", None)
    return None if names is None else [str(name) for name in names]


def labels_of(values: Any) -> pa.Array:
    """Labels as a column; NaN is none."""
    return _known(_array(values, "the labels"))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=BATCH)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small neighbours as one batch: to count its events costs more than a few rows."""
    few: list[pa.RecordBatch] = []
    for batch in batches:
        if few and sum(each.num_rows for each in few) + batch.num_rows > FEW:
            yield _one(few)
            few = []
        few.append(batch)
    if few:
        yield _one(few)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _only(columns: Any) -> str:
    if not isinstance(columns, str):
        raise UsageError(
            "scores that are given model by model stand for one column each; name model_1 and "
            "model_2 by text"
        )
    return columns


# --- frames ---------------------------------------------------------------------------------------


def _from_pandas(series: Any, name: str) -> pa.Array:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as err:
        raise InputError(f"column {name!r} mixes types: {str(err).splitlines()[0]}") from err


def _from_polars(data: Any, names: Sequence[str]) -> pa.Table:
    kind = type(data).__name__
    if hasattr(data, "collect"):
        raise UsageError(f"data is a polars {kind}, which has no rows yet: give data.collect()")
    if not hasattr(data, "get_columns"):
        raise UsageError(f"data must be a table; got a polars {kind}")
    arrays = [
        # others are seen in messages only, and not all of them have a type in Arrow
        column.to_arrow() if column.name in names else pa.nulls(len(column))
        for column in data.get_columns()
    ]
    return pa.table(arrays, names=data.columns)


# --- arrays ---------------------------------------------------------------------------------------


def _array(values: Any, name: str) -> pa.Array:
    """An array of one or two dimensions; what is masked is null."""
    if is_polars(values):
        if not hasattr(values, "to_frame"):
            raise UsageError(f"{name}: must be an array, got a polars {type(values).__name__}")
        return values.to_arrow()
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            array = _objects(values) if array.ndim == 1 else array  # numpy makes text of NaN
    except ValueError:  # rows of different length: left to the reader, which names them
        array = _objects(values)
    if array.ndim not in (1, 2):
        raise InputError(f"{name}: must have one or two dimensions, got {array.ndim}")
    if array.dtype == object:  # rows of different length, text, or some are None
        if hidden is not None:
            array = array.copy()
            array[hidden] = None
        if array.ndim == 2:
            _check_texts(array, values, name)
            return _from_pandas(_objects(array.tolist()), name)
        return _from_pandas(array, name)
    if array.ndim == 2:
        if array.dtype == np.bool_:  # one-hot labels as pandas makes them
            array = array.astype(np.int8)
        if not np.issubdtype(array.dtype, np.number):
            raise InputError(f"{name}: must be numbers, got an array of {array.dtype}")
        mask = None if hidden is None else hidden.reshape(-1)
        flat = pa.array(np.ascontiguousarray(array).reshape(-1), mask=mask)
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    try:
        return pa.array(array, mask=hidden)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as err:
        raise InputError(f"{name}: {str(err).splitlines()[0]}") from err


def _check_texts(array: npt.NDArray[Any], frame: Any, name: str) -> None:
    """Refuse a frame that has more than scores, such as ids, by the names of its columns."""
    names = column_names(frame) if len(array) else None
    texts = [each for each, value in zip(names or (), array[0], strict=False) if _is_text(value)]
    if names is not None and texts:
        scores = [each for each in names if each not in texts]
        raise InputError(
            f"{name}: column {texts[0]!r} holds text; give the scores alone, [{scores}]"
        )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _objects(values: Any) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def _known(labels: pa.Array) -> pa.Array:
    """Labels of arrays: NaN is none, as in pandas, and a vector of nothing else is none too."""
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    kind = labels.type
    if pa.types.is_floating(kind):
        absent = _absent(labels)
    elif pa.types.is_nested(kind) and pa.types.is_floating(getattr(kind, "value_type", kind)):
        lengths = labels.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(lengths)
        known = np.concatenate([[0], np.cumsum(~_absent(labels.flatten()))])
        absent = (known[ends] == known[ends - lengths]) & (lengths > 0)
    else:
        return labels
    if not absent.any():
        return labels
    return labels.take(pa.array(np.arange(len(labels)), mask=absent))


def _absent(values: pa.Array) -> npt.NDArray[np.bool_]:
    numbers: npt.NDArray[np.float64] = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.isnan(numbers)

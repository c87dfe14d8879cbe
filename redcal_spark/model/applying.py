"""A pair applied to whatever users hold: tables, arrays, or one row; and the rows that change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from redcal_spark.core.arrow import batches, empty_batch, from_numpy, to_arrow, with_columns
from redcal_spark.core.columns import plan
from redcal_spark.core.decisions import tie_of
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.normalised import with_nan
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.core.reading import BadRows
from redcal_spark.core.serving import ROWS, serve
from redcal_spark.errors import UsageError
from redcal_spark.model.given import is_many, is_row, is_spark, one_of, one_row
from redcal_spark.settings import setting

OnBadRows = Literal["error", "skip"]
MissingModel = Literal["error", "skip_row"]


@dataclass(frozen=True)
class Applying:
    """How new columns are called, what becomes of bad rows, and whether scores are normalised."""

    suffix: str
    on_bad_rows: OnBadRows
    normalise: bool
    missing_model: MissingModel = "error"
    tie: str | None = "off"

    def __post_init__(self) -> None:
        if self.on_bad_rows not in get_args(OnBadRows):
            raise UsageError(f"on_bad_rows: must be 'error' or 'skip', got {self.on_bad_rows!r}")
        if not isinstance(self.normalise, bool):
            raise UsageError(f"normalise: must be True or False, got {self.normalise!r}")
        check_missing_model(self.missing_model)

    @property
    def skip(self) -> bool:
        return self.on_bad_rows == "skip"

    def names(self, pair: Fitted) -> OutputNames:
        absent = self.missing_model == "skip_row"
        columns = pair.columns
        return OutputNames(
            *(columns, pair.losses, self.suffix),
            normalise=self.normalise,
            tie=tie_of(self.tie, columns.n_models, columns.model_names),
            skip_missing=absent,
        )


def check_missing_model(given: str) -> None:
    if given not in get_args(MissingModel):
        raise UsageError(f"missing_model: must be 'error' or 'skip_row', got {given!r}")


def applied(pair: Fitted, how: Applying, data: Any, model_2: Any = None) -> Any:
    """The same kind of thing as was given, with new scores."""
    scores = _scores(pair, data, model_2)
    if scores is not None and (few := _few(pair, how, scores)) is not None:
        return few
    names = how.names(pair)
    if is_spark(data):
        from redcal_spark.backends.spark.frames import apply_to_frame

        return apply_to_frame(data, pair, names, how.skip)
    if scores is not None:
        return _arrays(pair, how, names, scores)
    if is_row(data):
        return _row(pair, how, names, data)
    table = to_arrow(data, pair.columns.names(label=False))
    return with_columns(data, _extended(pair, table, names, how.skip), names.all(how.skip))


def changed(pair: Fitted, how: Applying, data: Any) -> Any:
    """The rows of a table that patches touch: their id, old and new columns."""
    read = pair.columns.names(label=False)
    names = replace(how.names(pair), carried=tuple(read), touched_only=True)
    if is_spark(data):
        from redcal_spark.backends.spark.frames import apply_to_frame

        return apply_to_frame(data, pair, names, how.skip)
    rows = _extended(pair, to_arrow(data, read), names, how.skip)
    if hasattr(data, "iloc"):
        return rows.to_pandas()
    return with_columns(data, rows, []) if not _is_polars_like(data) else type(data)(rows)


def _is_polars_like(data: Any) -> bool:
    return hasattr(data, "hstack")


# --- arrays ---------------------------------------------------------------------------------------


def _scores(pair: Fitted, data: Any, model_2: Any) -> list[Any] | None:
    """The scores of every model, if they were given one by one."""
    if model_2 is not None:
        return [data, model_2]
    if isinstance(data, list | tuple) and not hasattr(data, "asDict"):
        numbers = pair.binary and all(isinstance(x, float | int) for x in data)
        return list(data) if numbers or is_many(data) else None
    return None


def _few(pair: Fitted, how: Applying, scores: list[Any]) -> tuple[Any, ...] | None:
    """New scores for few rows in arrays of numbers; None: they go the long way, by Arrow."""
    if (how.normalise, how.missing_model, how.tie) != (False, "error", "off") or len(
        scores
    ) != pair.columns.n_models:
        return None
    if all(isinstance(x, float | int) for x in scores):
        alone, given = True, [np.array([x], np.float64) for x in scores]
    elif all(type(x) is np.ndarray and x.dtype.kind == "f" for x in scores):
        alone = scores[0].ndim == (0 if pair.binary else 1)
        given = [np.asarray(x, np.float64)[None if alone else ...] for x in scores]
    else:
        return None
    rows = len(given[0])
    wanted = (rows,) if pair.binary else (rows, pair.n_classes)
    if rows > ROWS or any(x.shape != wanted for x in given):
        return None
    new = serve(pair.serving, given)
    if new is None or not alone:
        return None if new is None else tuple(new)
    return tuple(float(x[0]) if pair.binary else x[0] for x in new)


def _arrays(pair: Fitted, how: Applying, names: OutputNames, scores: list[Any]) -> tuple[Any, ...]:
    """New arrays for arrays; for the scores of one row, what they are."""
    alone = _of_one_row(pair, scores[0])
    if alone:
        scores = [one_of(own) for own in scores]
    nameless = replace(pair, columns=replace(pair.columns.as_arrays, id=None))  # arrays have no id
    names = replace(names, columns=nameless.columns)
    table = from_numpy(nameless.columns, scores, fitted=pair.frame_columns)
    table = _extended(nameless, table, names, how.skip)
    raw = [_to_numpy(table.column(name)) for name in names.raw]
    added = [table.column(name) for name in names.scores[len(raw) :]]
    new = (*raw, *(with_nan(column, pair.n_classes) for column in added))
    if not alone:
        return new
    return tuple(float(array[0]) if pair.binary else array[0] for array in new)


def _of_one_row(pair: Fitted, scores: Any) -> bool:
    """Whether a model's scores are those of one row: a number, or a number for every class."""
    if np.ndim(scores) != (0 if pair.binary else 1):
        return False
    # a column of pandas or polars may hold a vector a row; a row of a frame holds numbers
    return not hasattr(scores, "to_frame") or getattr(scores.dtype, "kind", "O") in "fiu"


def _to_numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """One number or one vector a row; rows that were passed through may be of any length."""
    array = pa.concat_arrays(column.chunks)
    if pa.types.is_floating(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    flat = np.array(array.flatten().to_numpy(zero_copy_only=False))
    if len(array) and len(flat) % len(array) == 0 and not array.null_count:
        return flat.reshape(len(array), -1)
    rows = np.empty(len(array), dtype=object)
    rows[:] = array.to_pylist()
    return rows


# --- tables ---------------------------------------------------------------------------------------


def _row(pair: Fitted, how: Applying, names: OutputNames, row: Any) -> Any:
    """One row with named values: a dict of all values, or the Series with more of them."""
    table, columns = one_row(pair.columns, row)
    pair = replace(pair, columns=columns)
    extended = _extended(pair, table, names, how.skip)
    new = extended.select(names.all(how.skip)).to_pylist()[0]
    if hasattr(row, "asDict"):
        row = row.asDict()
    if isinstance(row, Mapping):
        return {**row, **new}
    return type(row)({**row.to_dict(), **new}, name=row.name, dtype=object)


def _extended(pair: Fitted, table: pa.Table, names: OutputNames, skip: bool) -> pa.Table:
    layout = plan(table.schema, pair.columns, "the data", pair.n_classes, None, labels=False)
    pair.check_layout(layout)
    problems = BadRows()
    extended, start = [], 0
    for batch in batches(table):
        extended.append(pair.apply_batch(batch, layout, names, problems, start, skip))
        start += batch.num_rows
    if not skip:
        way_out = f"\n  ({setting('on_bad_rows', 'skip')} passes such rows through untouched)"
        problems.raise_if_any("the data", way_out)
    if not extended:
        extended = [pair.apply_batch(empty_batch(table.schema), layout, names, problems, 0, skip)]
    return pa.Table.from_batches(extended)

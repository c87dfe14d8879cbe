"""Which rows are held out, as Python says it: a column, a mask or a fraction."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.core.columns import Columns, is_text, listed
from redcal_spark.core.splits import ColumnSplit, HashSplit, Split, check_split
from redcal_spark.errors import InputError, UsageError

Holdout = Any  # a column's name, a mapping, a fraction, or a mask
ADDED = "__redcal_holdout"  # a column of the rows at hand, where they have none for it

_FORMS = (
    "holdout: must be the name of a column, a mask with one truth value a row, a fraction in "
    "(0, 1), or a mapping: column, fit and holdout, or holdout_fraction and salt"
)


def columns_of(holdout: Holdout) -> list[str]:
    """The columns that the choice needs beside those of the fit."""
    if isinstance(holdout, str):
        return [holdout]
    return [str(holdout["column"])] if _is_mapping(holdout) and "column" in holdout else []


def split_table(
    holdout: Holdout, columns: Columns, table: pa.Table
) -> tuple[pa.Table, Split | None]:
    """The rows at hand, and how they are split; without an id a fraction goes by their place."""
    if holdout is None:
        return table, None
    if _is_mask(holdout):
        mask = _mask(holdout, table.num_rows)
        return table.append_column(ADDED, pa.array(mask)), ColumnSplit(ADDED, False, True)
    if not columns_of(holdout) and (columns.id is None or columns.id not in table.column_names):
        places = pa.array(np.arange(table.num_rows))
        table = table.append_column(ADDED, places)
        return table, _by_hash(holdout, ADDED)
    return table, split_of(holdout, columns, table.schema)


def split_of(holdout: Holdout, columns: Columns, schema: pa.Schema) -> Split | None:
    """The same for rows that are elsewhere, as a DataFrame of Spark's are."""
    split: Split
    if holdout is None:
        return None
    if _is_mask(holdout):
        raise UsageError(
            "holdout: a mask needs rows at hand, and those of a Spark DataFrame have no order: "
            "give the name of a column, or a fraction with id"
        )
    if isinstance(holdout, str):
        split = _by_column(holdout, schema)
    elif columns_of(holdout):
        _check_keys(holdout, {"column", "fit", "holdout"})
        split = ColumnSplit(holdout["column"], holdout["fit"], holdout["holdout"])
    elif columns.id is None:
        raise UsageError(
            "holdout: a fraction is drawn by a hash of the id: name its column with id='...', or "
            "name a column that says which rows are held out"
        )
    else:
        split = _by_hash(holdout, columns.id)
    check_split(split, schema, "the data")
    return split


def _by_column(name: str, schema: pa.Schema) -> ColumnSplit:
    if name not in schema.names:
        raise InputError(
            f"holdout: column {name!r} not found in the data; it has: {listed(schema.names)}"
        )
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return ColumnSplit(name, False, True)
    if pa.types.is_integer(kind):
        return ColumnSplit(name, 0, 1)
    if is_text(kind):
        return ColumnSplit(name, "fit", "holdout")
    raise InputError(
        f"holdout: column {name!r} has type {kind}; it says true or 1 for holdout rows, or holds "
        "the texts fit and holdout. For other values give {'column': ..., 'fit': ..., 'holdout': "
        "...}"
    )


def _by_hash(holdout: Holdout, column: str) -> HashSplit:
    salt = ""
    if _is_mapping(holdout):
        _check_keys(holdout, {"holdout_fraction"}, {"salt"})
        holdout, salt = holdout["holdout_fraction"], str(holdout.get("salt", ""))
    if isinstance(holdout, bool) or not isinstance(holdout, int | float | np.number):
        raise UsageError(f"{_FORMS}; got {type(holdout).__name__}")
    if not 0 < holdout < 1:
        raise UsageError(f"holdout: a fraction must be in (0, 1), got {holdout!r}")
    return HashSplit(column, float(holdout), salt)


def _check_keys(given: Mapping[str, Any], needed: set[str], more: Set[str] = frozenset()) -> None:
    if not needed <= given.keys() <= needed | more:
        raise UsageError(f"{_FORMS}; got the keys {', '.join(map(str, given))}")


def _is_mapping(holdout: Holdout) -> bool:
    return isinstance(holdout, Mapping)


def _is_mask(holdout: Holdout) -> bool:
    return hasattr(holdout, "__len__") and not isinstance(holdout, str | Mapping)


def _mask(holdout: Holdout, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    mask = np.asarray(holdout)
    if mask.dtype == object and all(isinstance(x, bool) for x in mask.reshape(-1).tolist()):
        mask = mask.astype(np.bool_)  # polars and Arrow hand over objects
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise UsageError(
            f"holdout: a mask has one truth value a row; got an array of {mask.dtype} with "
            f"{mask.ndim} dimensions"
        )
    if len(mask) != rows:
        raise InputError(f"holdout: the mask has {len(mask):,} values, and there are {rows:,} rows")
    return mask

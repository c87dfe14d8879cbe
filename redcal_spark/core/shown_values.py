"""Values of a user's columns as messages show them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from redcal_spark.settings import setting

NO_VALUE = ("na", "n/a", "#n/a", "null", "none", "missing", "-", "--", ".", "?")  # as people write


def value_of(scalar: pa.Scalar) -> Any:
    """The value as Python has it; what Arrow shows of it where Python's calendar ends."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return " ".join(pa.array([scalar], scalar.type).to_string().split())


def such_as(name: str, first: pa.RecordBatch | None, numbers: bool = False) -> str:
    """The first value of a column, to be shown where its type is wrong.

    numbers: the first that is none, if there is one; what spreadsheets write has a way out.
    """
    values = (
        [] if first is None else [v for v in map(value_of, first.column(name)) if v is not None]
    )
    if not values:
        return ""
    odd = next((v for v in values if not _reads_as_number(v)), values[0]) if numbers else values[0]
    shown = f"; first: {str(odd)[:60]!r}"
    spreadsheet = numbers and re.fullmatch(r"\s*(\d*,\d+\s*%?|\d+([.,]\d+)?\s*%)\s*", str(odd))
    if spreadsheet:
        return f"{shown}; write 0.5 for '0,5' and for '50%'"
    if numbers and str(odd).strip().casefold() in NO_VALUE:
        return f"{shown}; leave such cells empty and set {setting('on_bad_rows', 'skip')}"
    return shown


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True

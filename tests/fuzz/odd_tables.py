"""Parquet files of every type that pyarrow writes, in columns that should be something else."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.fuzz import base


def _arrays() -> list[pa.Array]:
    """Arrays of `ROWS` values, one of each type."""
    n = base.ROWS
    rng = np.random.default_rng(3)
    vectors = rng.dirichlet([1, 1, 1], n)
    lists = [list(map(float, row)) for row in vectors]
    shares = pa.array(vectors[:, 0])
    some = [None if i % 5 == 0 else row for i, row in enumerate(lists)]
    holes = [[None, *row[1:]] if i % 7 == 0 else row for i, row in enumerate(lists)]
    numbers = list(range(n))
    found = [pa.array(numbers, kind) for kind in (pa.int8(), pa.uint8(), pa.int32(), pa.uint64())]
    found += [
        pa.array(lists),
        pa.array(some),
        pa.array(holes),
        pa.array([row[: i % 5] for i, row in enumerate(lists)]),
        pa.array([[] for _ in lists], pa.list_(pa.float64())),
        pa.array(lists, pa.large_list(pa.float64())),
        pa.array(lists, pa.list_(pa.float64(), 3)),
        pa.array(some, pa.list_(pa.float64(), 3)),
        pa.array(lists, pa.list_(pa.float32())),
        pa.array([np.array(row, np.float16) for row in lists], pa.list_(pa.float16())),
        pa.array([[Decimal("0.5")] * 3 for _ in lists], pa.list_(pa.decimal128(5, 3))),
        pa.array([[0, 1, 0]] * n, pa.list_(pa.uint8())),
        pa.array([[["0.5"]]] * n),
        pa.array([[row] for row in lists]),
        pa.array([[str(x) for x in row] for row in lists]),
        pa.array([{"a": 0.5, "b": [1.0]}] * n),
        pa.array([[("k", 0.5)]] * n, pa.map_(pa.string(), pa.float64())),
        pa.array([[0.5, float("nan"), 1e308]] * n),
        pa.array([[-0.0, 1.0, 5e-324]] * n),
        shares,
        shares.cast(pa.float32()),
        shares.cast(pa.float16()),
        shares.dictionary_encode(),
        pa.array([Decimal("0.123456789012345678")] * n, pa.decimal128(38, 18)),
        pa.array([Decimal("0.5")] * n, pa.decimal256(60, 5)),
        pa.nulls(n),
        pa.nulls(n, pa.float64()),
        pa.nulls(n, pa.list_(pa.float64())),
        pa.array(["healthy", "mild", None] * (n // 3)),
        pa.array(["healthy", "mild", None] * (n // 3)).dictionary_encode(),
        pa.array(["healthy"] * n, pa.large_string()),
        pa.array(["mild"] * n, pa.string_view()),
        pa.array(["a\0b", "é", "\u202e"] * (n // 3)),
        pa.array([b"\xff\xfe"] * n),
        pa.array([b"1234"] * n, pa.binary(4)),
        pa.array([True, False] * (n // 2)),
        pa.array([date(2026, 1, 31)] * n),
        pa.array([datetime(2026, 1, 31)] * n, pa.timestamp("ns", "Europe/Berlin")),
        pa.array([datetime(1, 1, 1)] * n, pa.timestamp("us")),
        pa.array([2**62] * n, pa.timestamp("ms")),
        pa.array([time(9, 30)] * n),
        pa.array([timedelta(days=1)] * n),
        pa.array(numbers[::-1]),
        pa.array([7] * n),
        pa.array([f"id{i}" for i in numbers]),
    ]
    return found


ARRAYS = _arrays()
NAMES = ["case_id", "outcome", "scores_a", "scores_b", "fold"]
MORE = [
    "extra",
    "CASE_ID",
    "scores_a_reconciled",
    "touched",
    'a"b`c;d',
    "a.b",
    "x\ny",
    "é",
    "",
    " ",
]


@st.composite
def odd_parquet(draw: DrawFn) -> bytes:
    """A table in which some columns have another type, are missing, or there are too many."""
    columns: dict[str, Any] = {
        name: pa.array([row[name] for row in base.reference_rows()]) for name in NAMES
    }
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*NAMES, *NAMES, *MORE]))
        columns[name] = draw(st.sampled_from(ARRAYS))
    if draw(st.integers(0, 5)) == 0:
        del columns[draw(st.sampled_from(list(columns)))]
    table = pa.table(list(columns.values()), names=list(columns))
    table = table.slice(0, draw(st.sampled_from([base.ROWS, base.ROWS, 0, 1])))
    options = {
        "compression": draw(st.sampled_from(["NONE", "SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4"])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "row_group_size": draw(st.sampled_from([1, 7, 1_000])),
        "version": draw(st.sampled_from(["1.0", "2.4", "2.6"])),
        "store_schema": draw(st.booleans()),
    }
    try:
        return base.parquet(table, **options)
    except (pa.ArrowException, ValueError):  # some types want another version of the format
        return base.parquet(table.select([n for n in NAMES if n in columns][:1]))

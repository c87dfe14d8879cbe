"""What tasks do that read files themselves, without Spark: which rows, of which types, whose."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redcal_spark.backends.spark.file_reader import FilePart, FileReader, groups_within, unreadable
from redcal_spark.core.parquet import BATCH_BYTES
from redcal_spark.core.parquet_columns import fits, known
from redcal_spark.errors import InputError

UTC = pa.timestamp("us", "UTC")


def part(path: Path, *values: Any) -> FilePart:
    size = path.stat().st_size
    return FilePart(str(path), size, 0, size, values)


def read(schema: pa.Schema, *parts: FilePart, partitions: tuple[str, ...] = ()) -> pa.Table:
    """Through a pickle, as Spark sends it."""
    reader = pickle.loads(pickle.dumps(FileReader(schema, partitions, ((), parts))))
    return pa.Table.from_batches(reader([pa.record_batch({"id": [1]})]), schema)


def written(path: Path, rows: pa.Table, **options: Any) -> Path:
    pq.write_table(rows, path, **options)
    return path


@settings(deadline=None)  # a machine may be busy
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 40))
def test_every_row_group_is_in_one_part(sizes: list[int], number: int) -> None:
    class Group:
        def __init__(self, rows: int):
            self.num_rows = rows

    class Footer:
        num_row_groups = len(sizes)
        num_rows = sum(sizes)

        def row_group(self, i: int) -> Group:
            return Group(sizes[i])

    size = 1_000
    ends = [size * i // number for i in range(number + 1)]
    parts = [FilePart("f", size, ends[i], ends[i + 1]) for i in range(number)]
    found = [group for each in parts for group in groups_within(Footer(), each)]
    assert found == list(range(len(sizes)))


def test_parts_of_a_file_have_its_rows_once(tmp_path: Path) -> None:
    rows = pa.table({"a": range(1_000), "b": [[float(i)] for i in range(1_000)]})
    file = written(tmp_path / "f", rows, row_group_size=70)
    size = file.stat().st_size
    cuts = [0, size // 5, size // 2, size - 3, size]
    parts = [FilePart(str(file), size, *ends) for ends in pairwise(cuts)]
    assert read(rows.schema, *parts)["a"].to_pylist() == list(range(1_000))


@pytest.mark.parametrize(
    ("stored", "wanted", "values"),
    [
        (pa.int8(), pa.int64(), [1, None]),
        (pa.int16(), pa.int32(), [-3]),
        (pa.int32(), pa.float64(), [2**31 - 1]),
        (pa.int32(), pa.decimal128(12, 2), [Decimal(-(2**31))]),
        (pa.float32(), pa.float64(), [0.5, float("inf")]),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), [Decimal("1.23"), None]),
        (pa.date32(), pa.timestamp("us"), [dt.date(2024, 2, 29)]),
        (pa.timestamp("ms"), pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23, 59, 59, 1_000)]),
        (pa.timestamp("us", "Europe/Berlin"), UTC, [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b", "a", None]),
        (pa.large_string(), pa.string(), ["é", None]),
        (pa.list_(pa.float64(), 2), pa.list_(pa.float64()), [[1.0, 2.0], None]),
        (pa.large_list(pa.float32()), pa.list_(pa.float64()), [[1.0], [], None, [None]]),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64())]), [{"x": 1}, None]),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), [[("k", 1)], None]),
        (pa.bool_(), pa.bool_(), [True, None]),
        (pa.binary(), pa.binary(), [b"\xff", None]),
    ],
    ids=str,
)
def test_types_become_those_of_the_table(
    tmp_path: Path, stored: pa.DataType, wanted: pa.DataType, values: list[Any]
) -> None:
    rows = pa.table({"a": pa.array(values, stored)})
    found = read(pa.schema([("a", wanted)]), part(written(tmp_path / "f", rows)))
    assert found.schema.types == [wanted]
    midnight = [
        dt.datetime(*v.timetuple()[:3]) if type(v) is dt.date else v  # a day begins at midnight
        for v in values
    ]
    got = found["a"].to_pylist()
    assert got == midnight


def test_timestamps_as_spark_writes_them(tmp_path: Path) -> None:
    """INT96 says nothing of a zone, and is of UTC."""
    moment = dt.datetime(2024, 3, 31, 1, 30, 0, 7, dt.UTC)
    rows = pa.table({"a": pa.array([moment, None], UTC)})
    file = written(tmp_path / "f", rows, use_deprecated_int96_timestamps=True, store_schema=False)
    assert read(rows.schema, part(file))["a"].to_pylist() == [moment, None]
    naive = pa.schema([("a", pa.timestamp("us"))])
    assert "'a' has type timestamp[us] there" in str(unreadable(part(file), naive))


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.decimal128(19, 0)),
        (pa.uint32(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.float16(), pa.float32()),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.decimal128(5, 2), pa.decimal128(9, 1)),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.binary(), pa.string()),
        (pa.timestamp("us"), UTC),
        (UTC, pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), UTC),
        (pa.date32(), UTC),
        (pa.time64("us"), pa.time64("us")),
        (pa.null(), pa.null()),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        (pa.struct([("x", pa.int32())]), pa.struct([("X", pa.int32())])),
        (pa.list_(pa.uint8()), pa.list_(pa.int16())),
    ],
    ids=str,
)
def test_other_types_are_left_to_spark(stored: pa.DataType, wanted: pa.DataType) -> None:
    assert not fits(stored, wanted)


def test_types_that_a_table_may_have() -> None:
    assert known(pa.list_(pa.struct([("a", pa.decimal128(38, 10)), ("b", UTC)])))
    for kind in (pa.null(), pa.duration("us"), pa.float16(), pa.list_(pa.null()), pa.uint8()):
        assert not known(kind)


def test_columns_by_name_missing_ones_null_and_told_ones(tmp_path: Path) -> None:
    old = written(tmp_path / "old", pa.table({"b": [1.5], "a": pa.array([7], pa.int32())}))
    new = written(tmp_path / "new", pa.table({"c": ["x"], "a": [8], "b": [2.5], "more": [0]}))
    schema = pa.schema(
        [("a", pa.int64()), ("day", pa.date32()), ("b", pa.float64()), ("c", pa.string())]
    )
    day = dt.date(2024, 1, 2)
    found = read(schema, part(old, day), part(new, None), partitions=("day",))
    assert found.to_pylist() == [
        {"a": 7, "day": day, "b": 1.5, "c": None},
        {"a": 8, "day": None, "b": 2.5, "c": "x"},
    ]


def test_columns_that_only_the_log_knows(tmp_path: Path) -> None:
    file = written(tmp_path / "f", pa.table({"a": [1, 2, 3]}))
    schema = pa.schema([("day", pa.string())])
    assert read(schema, part(file, "x"), partitions=("day",))["day"].to_pylist() == ["x"] * 3
    assert read(schema, part(file))["day"].to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (pa.table({"A": [1]}), "column 'a' is 'A' there"),
        (pa.table({"b": [1], "B": [1]}), "differ in upper and lower case alone"),
        (pa.table({"a": ["x"]}), "column 'a' has type string there, int64 in the table"),
    ],
)
def test_files_that_differ_from_their_table(tmp_path: Path, rows: pa.Table, why: str) -> None:
    file, schema = written(tmp_path / "f", rows), pa.schema([("a", pa.int64())])
    assert why in str(unreadable(part(file), schema))
    with pytest.raises(InputError, match=r"cannot be read by tasks themselves: .*f: "):
        read(schema, part(file))


@pytest.mark.parametrize(
    ("said", "old"),
    [
        ({"org.apache.spark.version": "2.4.8"}, True),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}, True),
        ({"org.apache.spark.version": "4.2.0"}, False),
        ({}, False),
    ],
)
def test_days_of_the_julian_calendar(tmp_path: Path, said: dict[str, str], old: bool) -> None:
    rows = pa.table({"a": [dt.date(1500, 1, 1)], "b": [1]}).replace_schema_metadata(said)
    file = written(tmp_path / "f", rows)
    assert (unreadable(part(file), pa.schema([("a", pa.date32())])) is not None) == old
    assert unreadable(part(file), pa.schema([("b", pa.int64())])) is None


def test_files_that_changed_are_gone_or_no_parquet(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    file = written(tmp_path / "f", pa.table({"a": [1]}))
    known_as = part(file)
    written(file, pa.table({"a": range(1_000)}))
    assert "bytes, not" in str(unreadable(known_as, schema))
    file.write_bytes(b"PAR1" + b"x" * (known_as.size - 4))
    assert "magic bytes" in str(unreadable(known_as, schema))
    file.unlink()
    assert str(unreadable(known_as, schema)).endswith("f: No such file or directory")


def test_batches_are_bounded_by_bytes(tmp_path: Path) -> None:
    """Rows of a thousand scores, of which a dictionary makes little."""
    wide = pa.array([[0.5] * 1_000] * 20_000, pa.list_(pa.float64()))
    file = written(tmp_path / "f", pa.table({"a": wide}))
    reader = FileReader(pa.schema([("a", wide.type)]), (), ((part(file),),))
    sizes = [batch.nbytes for batch in reader([pa.record_batch({"id": [0]})])]
    assert sum(sizes) > 4 * BATCH_BYTES
    assert max(sizes) < 1.1 * BATCH_BYTES

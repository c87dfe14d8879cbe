"""The files that a task writes itself: their rows, folders and statistics, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark.backends.spark import write_task
from redcal_spark.backends.spark.write_task import WriteTask, WrittenFile, parted
from redcal_spark.errors import InputError

ROWS = pa.record_batch(
    {
        "id": pa.array([3, 1, 2, 4]),
        "place": pa.array(["a/b", "", None, "a/b"]),
        "x": pa.array([1.5, float("nan"), 2.0, None]),
        "y": pa.array([1.0, -2.0, None, 7.0]),
        "z": pa.array([1.0, float("inf"), None, 7.0]),
        "long": pa.array(["b" * 40, "a" * 40, "a", None]),
        "day": pa.array([date(2020, 1, 3), date(1, 1, 1), None, date(9999, 12, 31)]),
        "at": pa.array([datetime(2020, 1, 1, 0, 0, 0, 7, UTC), None, None, None]),
        "list": pa.array([[1.0], [], None, [2.0]]),
        "ok": pa.array([True, False, None, True]),
    }
)


def whole(batches: Any) -> Iterator[pa.RecordBatch]:
    yield from batches


def told(task: WriteTask, batches: list[pa.RecordBatch]) -> tuple[int, list[WrittenFile]]:
    rows = pa.Table.from_batches(task(batches))
    files = [WrittenFile.from_json(text) for text in rows["file"].to_pylist() if text]
    return sum(rows["rows"].to_pylist()), files


def test_a_file_is_as_the_log_says(tmp_path: Path) -> None:
    task = WriteTask(whole, tmp_path.as_uri(), "redcal-r-", ROWS.schema)
    read, [file] = told(task, [ROWS.slice(0, 2), ROWS.slice(2)])
    assert (read, file.rows, file.partition) == (4, 4, {})
    assert (tmp_path / file.path).stat().st_size == file.size
    there = pq.read_table(tmp_path / file.path)
    assert repr(there.to_pylist()) == repr(pa.Table.from_batches([ROWS]).to_pylist())
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 4
    assert stats["minValues"] == {
        "id": 1,
        "place": "",
        "y": -2.0,
        "long": "a",
        "day": "0001-01-01",
        "at": "2020-01-01T00:00:00.000007Z",
    }
    assert stats["maxValues"] == {
        "id": 4,
        "place": "a/b",
        "y": 7.0,
        "day": "9999-12-31",
        "at": "2020-01-01T00:00:00.000007Z",
    }
    assert stats["nullCount"] == {
        "id": 0,
        "place": 1,
        "x": 1,
        "y": 1,
        "z": 1,
        "long": 1,
        "day": 1,
        "at": 3,
        "ok": 1,
    }


def test_partitions_are_folders_and_their_columns_are_not_in_the_files(tmp_path: Path) -> None:
    schema = ROWS.schema.append(pa.field("run_id", pa.string()))
    task = WriteTask(
        *(whole, tmp_path.as_uri(), "redcal-r-", schema),
        partitions=("run_id", "place", "ok"),
        constants=(("run_id", "r"),),
    )
    _, files = told(task, [ROWS])
    assert sorted(str(file.partition) for file in files) == sorted(
        str({"run_id": "r", "place": place, "ok": ok})
        for place, ok in (("a/b", "true"), (None, "false"), (None, None))
    )
    for file in files:
        assert (tmp_path / file.path).exists()
        there = pq.read_schema(tmp_path / file.path)
        assert not {"run_id", "place", "ok"} & set(there.names)
    [folder] = {Path(f.path).parent.as_posix() for f in files if f.partition["place"]}
    assert folder == "run_id=r/place=a%2Fb/ok=true"


def test_a_value_that_is_no_name_of_a_folder_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    rows = pa.record_batch({"id": [1, 2], "place": ["short", "x" * 300]})
    task = WriteTask(whole, tmp_path.as_uri(), "redcal-r-", rows.schema, partitions=("place",))
    with pytest.raises(InputError, match="column 'place' has a value of 300 signs, too long"):
        list(task([rows]))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(batches: Any) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("on purpose")

    task = WriteTask(fails, tmp_path.as_uri(), "redcal-r-", ROWS.schema)
    with pytest.raises(RuntimeError, match="on purpose"):
        list(task([ROWS]))
    assert list(tmp_path.iterdir()) == []


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    task = WriteTask(whole, tmp_path.as_uri(), "redcal-r-", ROWS.schema)
    assert told(task, []) == (0, [])
    assert list(tmp_path.iterdir()) == []


def test_large_files_and_many_partitions_are_closed_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_task, "GROUP_BYTES", 1)
    monkeypatch.setattr(write_task, "FILE_BYTES", 1)
    task = WriteTask(whole, tmp_path.as_uri(), "redcal-r-", ROWS.schema)
    _, files = told(task, [ROWS, ROWS])
    assert [file.rows for file in files] == [4, 4]
    monkeypatch.setattr(write_task, "OPEN_FILES", 1)
    rows = pa.record_batch({"id": list(range(9)), "key": [0, 1, 2] * 3})
    task = WriteTask(whole, tmp_path.as_uri(), "redcal-p-", rows.schema, partitions=("key",))
    _, files = told(task, [rows])
    assert sorted((file.partition["key"], file.rows) for file in files) == [
        ("0", 3),
        ("1", 3),
        ("2", 3),
    ]


def test_rows_are_told_apart_by_all_partition_columns() -> None:
    rows = pa.record_batch(
        {"a": [1, 1, 2, None], "b": [True, False, True, None], "c": [0, 1, 2, 3]}
    )
    found = [(values, part["c"].to_pylist()) for values, part in parted(rows, ("a", "b"))]
    assert sorted(found, key=lambda each: each[1]) == [
        ({"a": "1", "b": "true"}, [0]),
        ({"a": "1", "b": "false"}, [1]),
        ({"a": "2", "b": "true"}, [2]),
        ({"a": None, "b": None}, [3]),
    ]

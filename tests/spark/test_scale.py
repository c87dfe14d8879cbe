"""The scale bench on Spark: the same rows as one process writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.bench import scale_data
from tests.bench.scale_data import Rows, write, write_on_spark


def test_spark_writes_the_same_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_data, "CELLS", 1_024)  # blocks of 256 rows
    monkeypatch.setattr(scale_data, "FILE_CELLS", 3 * 256 * 3)
    rows = Rows(classes=3, actions=4, correlation=0.6, models=3, weights=5)
    count = 2_500
    write(rows, count, tmp_path / "here")
    write_on_spark(spark, rows, count, str(tmp_path / "there"))
    files = sorted((tmp_path / "there").glob("*.parquet"))
    assert len(files) == 3
    here = pq.read_table(tmp_path / "here").sort_by("id")
    there = pq.read_table(files).sort_by("id")
    assert here.num_rows == count
    for name in here.schema.names:
        one, other = (t.column(name).combine_chunks() for t in (here, there))
        if name.startswith("scores"):
            one, other = one.flatten(), other.flatten()
        assert one.to_numpy().tobytes() == other.to_numpy().tobytes(), name

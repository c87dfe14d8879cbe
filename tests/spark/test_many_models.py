"""Three models on Spark: tasks that write, rows that arrive, the view of touched rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.e2e.test_many_models import GIVEN, NAMES, third
from tests.e2e.work import scores
from tests.spark.test_rows_out import put_together, same_on_both
from tests.spark.test_runs import Lake, lake
from tests.spark.test_stream import ROWS, River

__all__ = ["lake"]


def with_vendor(table: pa.Table) -> pa.Table:
    for j, column in enumerate(third(table).T):
        table = table.append_column(f"v{j}", pa.array(column))
    return table


@pytest.fixture
def three(lake: Lake) -> Lake:
    table = with_vendor(scores())
    regions = pa.array(["north", "south", None])
    table = table.append_column(
        "region", regions.take(pa.array([i % 3 for i in range(len(table))]))
    )
    write_deltalake("scores", table, mode="overwrite", schema_mode="overwrite")
    del lake.tree["input"]["model_1"], lake.tree["input"]["model_2"]
    lake.tree["input"]["models"] = dict(GIVEN)
    lake.tree["reconcile"]["eta"] = 0.05
    return lake


def test_tasks_write_what_the_embedded_run_writes(three: Lake) -> None:
    """Segments besides: every table of the run is made again and compared."""
    three.tree["input"]["segments"] = ["region"]
    three.tree["output"]["writer"] = "direct"
    rows = same_on_both(three)
    assert {f"triage_{name}_after" for name in NAMES} <= set(rows.column_names)
    assert {f"v{j}_reconciled" for j in range(4)} <= set(rows.column_names)


def test_rows_as_they_arrive(three: Lake) -> None:
    river = River(three)
    parts = [with_vendor(part) for part in river.parts[:2]]
    for part in parts:
        river.arrive(part)
        river.streamed()
    found = river.found()
    assert len(found) == 2 * ROWS
    assert found == river.expected()
    assert any(row["touched"] for row in found)


def test_the_view_gives_all_rows(three: Lake, spark: Any) -> None:
    put_together(three, spark)

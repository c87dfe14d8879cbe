"""Hostile names and links on the Spark store: identifiers are quoted, values are values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.tables import frame_of
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target
from redcal_spark.errors import RedcalError, UsageError

COMMIT = Commit("run-1", "print-1")
# Spark's Delta takes no " ,;{}()\n\t=" in names of columns, and says so beforehand.
COLUMNS = ["a'b", 'a"b', "a`b", "--", "a.b", "../up", "é漢", "<script>", "$a", "%2e", "[0]"]
ROWS = pa.table({name: [1, 2, 3] for name in COLUMNS})


@pytest.fixture
def store(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStore:
    monkeypatch.chdir(tmp_path)
    return SparkStore(spark)


@pytest.fixture
def victim(spark: Any) -> Iterator[str]:
    """A table that must still be there in the end."""
    spark.sql("CREATE TABLE victim (a INT) USING delta")
    yield "victim"
    found = {row["tableName"] for row in spark.sql("SHOW TABLES").collect()}
    spark.sql("DROP TABLE IF EXISTS victim")
    assert "victim" in found


@pytest.mark.parametrize("name", ["out/it's `quoted`; --", "out/..b é/x y"])
def test_columns_and_paths_of_any_name(store: SparkStore, victim: str, name: str) -> None:
    """Written twice, and read back by the other store. Spark's MERGE takes no backticks."""
    merged = Target(table=name, mode="merge", id="a`b")
    with pytest.raises(UsageError, match="merges no columns with a backtick"):
        store.check_rows(merged, ROWS.schema)
    target = Target(table=name, mode="overwrite")
    store.put_frame(target, frame_of(store.spark, ROWS.schema, ROWS.to_batches()), COMMIT)
    changed = ROWS.set_column(0, "a'b", pa.array([1, 9, 3]))
    rows = frame_of(store.spark, ROWS.schema, changed.to_batches())
    store.put_frame(target, rows, Commit("run-2", "print-2"))
    found = DeltaTable(name).to_pyarrow_table()
    assert sorted(found["a'b"].to_pylist()) == [1, 3, 9]
    assert found.schema.names == COLUMNS
    opened = store.open(name)
    assert sorted(opened.frame.select("`a``b`").toArrow().column(0).to_pylist()) == [1, 2, 3]
    assert store.last_writer(name) == "run-2"
    made = {str(path) for path in Path().rglob("_delta_log")}
    assert made == {f"{name}/_delta_log"}


@pytest.mark.parametrize(
    "name",
    [
        "x; DROP TABLE victim",
        "`x`; DROP TABLE victim; --",
        "`x``; DROP TABLE victim; --`",
        "default.`x` VALUES (1); DROP TABLE victim",
        "victim` --",
    ],
)
def test_a_catalog_name_is_a_name_and_never_a_statement(
    store: SparkStore, victim: str, name: str
) -> None:
    for action in (
        lambda: store.open(name).batches(),
        lambda: store.exists(name),
        lambda: store.read(name),
    ):
        try:
            action()
        except RedcalError as err:
            assert name in str(err)  # noqa: PT017 - that nothing else is raised is the point


def test_values_are_never_conditions(store: SparkStore) -> None:
    rows = pa.table({"run_id": ["a' or '1'='1", "b"], "n": [1, 2]})
    store.write("t", rows.schema, rows.to_batches(), "overwrite", COMMIT)
    for value, expected in (("a' or '1'='1", [1]), ("' or 1=1 --", []), ("b", [2])):
        found = store.read("t", {"run_id": value})
        assert found is not None
        assert found["n"].to_pylist() == expected


def test_a_link_in_place_of_a_half_made_table_is_not_followed(store: SparkStore) -> None:
    os.makedirs("elsewhere")
    os.makedirs("out")
    Path("out/.rows.run-1.partial").symlink_to("../elsewhere")
    store.write("out/rows", ROWS.schema, ROWS.to_batches(), "overwrite", COMMIT)
    assert os.listdir("elsewhere") == []
    assert os.listdir("out") == ["rows"]
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 3


def test_partitioned_csv_has_the_columns_of_its_folders(store: SparkStore) -> None:
    # as Spark names folders: it escapes signs, but no letters, and reads escaped ones as Latin-1
    for day, city in ((1, "Rome%3A1"), (2, "São"), (2, "__HIVE_DEFAULT_PARTITION__")):
        folder = Path(f"visits/day={day}/city={city}")
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f'id,"p, q"\n{10 * day},0.5\n')

    def rows(opened: Any) -> list[Any]:
        found = pa.Table.from_batches(opened.batches()).to_pylist()
        return sorted(found, key=str)

    here = DeltaRsStore().open("visits")
    there = store.open("visits")
    assert rows(there) == rows(here)
    assert {row["city"] for row in rows(there)} == {"Rome:1", "São", None}
    assert there.schema.equals(here.schema)


def test_addresses_are_left_to_spark(store: SparkStore) -> None:
    """They were refused in the words of the local engine."""
    assert store.check_target("gs://bucket/rows", "output.table") is None
    told = store.check_target("out/a[b", "output.table")
    assert told is not None
    assert told.startswith(
        "output.table: out/a[b cannot be written: delta-rs cannot open tables with"
    )

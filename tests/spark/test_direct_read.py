"""Files that tasks read themselves: the same rows as Spark reads; or Spark does, and says why."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from redcal_spark.backends.spark import direct_read
from redcal_spark.backends.spark.direct_read import NotDirect, direct_source, divided
from redcal_spark.backends.spark.file_reader import FilePart
from redcal_spark.backends.spark.source import Source
from redcal_spark.backends.spark.store import SparkStore
from tests import backends
from tests.e2e.test_resume import outcome
from tests.e2e.work import scores
from tests.spark.test_runs import Lake, lake  # noqa: F401

MIB = 2**20
ROWS = """
    select id, cast(id % 7 as double) / 7 as p, array(id / 3D, null) as many, 'é' || id as text,
        cast(id as decimal(12, 3)) as money, date_add(date'1969-12-30', cast(id as int)) as day,
        timestamp'1960-03-31 01:30:00.000007Z' + make_dt_interval(id) as moment,
        timestamp_ntz'2024-03-31 02:30:00' as local, named_struct('a', id, 'b', '') as both,
        map('k', id) as pairs, cast(id as float) as half, id % 2 = 0 as even,
        if(id % 5 = 0, null, elt(cast(id % 3 + 1 as int), 'a b/c', 'é=%41', 'x:y')) as odd,
        cast(id % 4 as int) as four, date_add(date'2024-01-01', cast(id % 2 as int)) as split
    from range(40)
"""


def direct_rows(table: Any, columns: Sequence[str]) -> pa.Table:
    found = direct_source(table, columns)
    assert isinstance(found, Source), found
    assert found.reader is not None
    schema = table.frame.select(*columns).schema
    rows: pa.Table = found.frame.mapInArrow(found.reader, schema).toArrow()
    return rows.sort_by("id")


def same_as_spark(spark: Any, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    table = SparkStore(spark).open(name)
    names = columns or table.frame.columns
    expected = table.frame.select(*names).toArrow().sort_by("id")
    found = direct_rows(table, names)
    assert found.to_pylist() == expected.to_pylist()
    assert found.num_rows > 0
    return found


def why_not(spark: Any, name: str, columns: Sequence[str] = ("id",)) -> str:
    found = direct_source(SparkStore(spark).open(name), columns)
    assert isinstance(found, NotDirect)
    return found.why


# --- the same rows --------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_folders_of_partitions(spark: Any, tmp_path: Path, kind: str) -> None:
    """Typed, null, and with signs that folders cannot have."""
    name = str(tmp_path / "rows")
    writer = spark.sql(ROWS).repartition(2).write.format(kind)
    writer.partitionBy("odd", "four", "split").save(name)
    same_as_spark(spark, name)
    assert same_as_spark(spark, name, ["id", "odd"]).num_columns == 2


def test_columns_that_came_later_and_types_that_were_widened(spark: Any, tmp_path: Path) -> None:
    name = str(tmp_path / "rows")
    old = spark.sql(ROWS).selectExpr("cast(id as int) as id", "half as p", "day", "text")
    asked = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
    old.write.format("delta").options(**asked).save(name)
    for column, kind in (("id", "BIGINT"), ("p", "DOUBLE"), ("day", "TIMESTAMP_NTZ")):
        spark.sql(f"ALTER TABLE delta.`{name}` ALTER COLUMN {column} TYPE {kind}")
    new = spark.sql(ROWS).selectExpr(
        "id + 100 as id", "p", "cast(day as timestamp_ntz) as day", "text", "both", "many"
    )
    new.write.format("delta").option("mergeSchema", "true").mode("append").save(name)
    found = same_as_spark(spark, name)
    assert found["many"].null_count == 40


def test_a_table_of_the_catalog(spark: Any) -> None:
    spark.sql(f"CREATE TABLE read_directly USING delta AS {ROWS}")
    try:
        same_as_spark(spark, "`read_directly`")
    finally:
        spark.sql("DROP TABLE read_directly")


# --- not read so ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_tables_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    def saved(name: str, query: str, **options: str) -> str:
        path = str(tmp_path / name)
        spark.sql(query).write.format("delta").options(**options).save(path)
        return path

    few = "select id, id % 2 as two, id / 2D as half, null as nothing from range(9)"
    gone = saved("gone", few, **{"delta.enableDeletionVectors": "true"})
    assert isinstance(direct_source(SparkStore(spark).open(gone), ["id"]), Source)
    spark.sql(f"DELETE FROM delta.`{gone}` WHERE id = 3")
    assert "deletionVectors" in why_not(spark, gone)
    mapped = saved("mapped", few, **{"delta.columnMapping.mode": "name"})
    assert "columnMapping" in why_not(spark, mapped)
    assert "'nothing' has type null" in why_not(spark, mapped, ["nothing"])

    halves = str(tmp_path / "halves")
    spark.sql(few).write.partitionBy("half").format("delta").save(halves)
    assert "partitioned by 'half', of type double" in why_not(spark, halves, ["half"])
    assert isinstance(direct_source(SparkStore(spark).open(halves), ["id"]), Source)

    folder = tmp_path / "folder"
    spark.sql(few).select("id", "half").write.partitionBy("half").parquet(str(folder))
    assert "knows what the folder says of 'half'" in why_not(spark, str(folder), ["half"])
    Path(tmp_path, "rows.csv").write_text("id,p\n1,2\n", "utf-8")
    assert "CSV" in why_not(spark, str(tmp_path / "rows.csv"))

    cased = tmp_path / "cased"
    cased.mkdir()
    pq.write_table(pa.table({"id": [1], "x": [1]}), cased / "1.parquet")
    pq.write_table(pa.table({"ID": [2], "x": [2]}), cased / "2.parquet")
    assert "column 'id' is 'ID' there" in why_not(spark, str(cased))


def test_vectors_of_spark_ml(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import DenseVector

    frame = spark.createDataFrame([(1, DenseVector([0.5, 0.5]))], ["id", "v"])
    frame.write.parquet(str(tmp_path / "rows"))
    assert "'v' has type" in why_not(spark, str(tmp_path / "rows"), ["id", "v"])


# --- which tasks get which files ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([1_000], 2, 1),
        ([64 * MIB], 2, 8),  # a few for every core
        ([MIB] * 10_000, 2, 64),  # not one for every file
        ([2**30] * 100, 100, 800),  # of 128 MiB each
        ([2**40], 2, 64),  # each tells the driver its statistics
    ],
)
def test_a_few_tasks_for_every_core(sizes: list[int], cores: int, tasks: int) -> None:
    files = [FilePart(str(i), size, 0, size) for i, size in enumerate(sizes)]
    found = divided(files, cores)
    assert len(found) == tasks
    read = sorted((int(p.path), p.start, p.end) for task in found for p in task)
    assert sum(end - start for _, start, end in read) == sum(sizes)  # all of them, and once
    for one, two in pairwise(read):
        assert two[1] == (one[2] if one[0] == two[0] else 0)
    loads = [sum(p.end - p.start for p in task) for task in found]
    assert max(loads) <= 1.3 * min(loads)


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_says_who_reads(lake: Lake) -> None:  # noqa: F811
    found = {}
    for read, words in (
        ("direct", "scores: tasks read its files themselves"),
        ("spark", "scores: read by Spark: engine.read is spark"),
    ):
        lake.tree["engine"]["read"] = read
        lake.tree["output"]["table"] = f"{read}/out/rows"
        told = lake.redcal("run")
        assert told.code == 0, told.err
        assert words in told.err
        found[read] = outcome(read)
    assert found["direct"] == found["spark"]


def test_direct_is_refused_at_check(lake: Lake) -> None:  # noqa: F811
    lake.tree["engine"]["read"] = "direct"
    assert lake.redcal("check").code == 0
    write_deltalake("mapped", scores(), configuration={"delta.columnMapping.mode": "name"})
    lake.tree["input"]["table"] = "mapped"
    told = lake.redcal("check")
    assert told.code == 2
    assert "engine.read: direct, but" in told.err
    assert "columnMapping" in told.err
    assert "use engine.read: auto" in told.err


@pytest.mark.slow
def test_a_file_that_nobody_looked_at(
    lake: Lake,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task meets it, and Spark reads the table after all; or the run says what is wrong."""
    monkeypatch.setattr(direct_read, "LOOKED_AT", 1)
    monkeypatch.setattr(direct_read, "PROBED", 1)
    rows, folder = scores(), Path("files")
    folder.mkdir()
    pq.write_table(rows.slice(0, 100), folder / "1.parquet")
    place = rows.schema.get_field_index("case")
    other = rows.slice(100).set_column(place, "CASE", rows["case"].slice(100))
    pq.write_table(other, folder / "2.parquet")
    lake.tree["input"]["table"] = "files"
    told = lake.redcal("run")
    assert told.code == 0, told.err
    assert "files: read by Spark; its files cannot be read by tasks themselves: " in told.err
    assert "2.parquet: column 'case' is 'CASE' there" in told.err
    lake.tree["engine"]["read"] = "direct"
    lake.tree["output"]["table"] = "again/out/rows"
    told = lake.redcal("run")
    assert told.code == 2
    assert "2.parquet: column 'case' is 'CASE' there" in told.err


@contextmanager
def blind_workers(spark: Any, place: Path, folder: Path) -> Iterator[None]:
    """Workers have a file system in which something else lies over a folder."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    python = place / "python"
    hide = f'mount -t tmpfs none "{folder}" && exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\nexec {' '.join(alone)} sh -c '{hide}' sh \"$@\"\n", "utf-8")
    python.chmod(0o755)
    context = spark.sparkContext
    ours, context.pythonExec = context.pythonExec, str(python)
    try:
        yield
    finally:
        context.pythonExec = ours


@pytest.mark.skipif(backends.name() != "classic", reason="sets the Python of workers")
def test_workers_that_do_not_see_the_files(
    lake: Lake,  # noqa: F811
    spark: Any,
    tmp_path: Path,
) -> None:
    with blind_workers(spark, tmp_path, tmp_path / "scores"):
        ran = lake.redcal("run")
        lake.tree["engine"]["read"] = "direct"
        told = lake.redcal("check")
    assert ran.code == 0, ran.err
    why = "cannot be read by tasks themselves: a worker cannot read"
    assert f"scores: read by Spark; its files {why}" in ran.err
    assert os.strerror(errno.ENOENT) in ran.err
    assert told.code == 2
    assert f"engine.read: direct, but the files of scores {why}" in told.err

"""Tables of a catalog: what people have put on a target survives every night; new ones say what
they are; a metastore that sessions share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake
from pyspark.sql.functions import lit

from redcal_spark.backends.comments import Comments
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.targets import check_managed
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Existing, Target
from redcal_spark.errors import UsageError
from tests import backends
from tests.e2e.work import scores
from tests.spark.test_runs import Lake, lake  # noqa: F401

SCHEMA = "redcal_order_2026"
USUAL = ("delta.enableDeletionVectors", "delta.minReaderVersion", "delta.minWriterVersion")


@pytest.fixture
def schema(spark: Any) -> Iterator[str]:
    name = f"{SCHEMA}_{backends.name()}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


def kept(spark: Any, table: str) -> dict[str, Any]:
    """What an administrator sees of a table, but for its rows."""
    detail = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0].asDict()
    columns = {f.name: (f.dataType.simpleString(), f.metadata) for f in spark.table(table).schema}
    names = ("id", "location", "description", "properties", "clusteringColumns", "partitionColumns")
    return {name: detail[name] for name in names} | {"columns": columns}


def dressed(spark: Any, table: str, clusters: bool) -> None:
    """All that people put on a table."""
    spark.sql(f"COMMENT ON TABLE {table} IS 'of the ward'")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN note COMMENT 'as it was said'")
    said = "'delta.enableChangeDataFeed' = 'true', 'team' = 'risk'"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({said})")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT known CHECK (case > 0)")
    if clusters:
        spark.sql(f"ALTER TABLE {table} CLUSTER BY (case)")


def test_rows_are_overwritten_and_the_table_stays(spark: Any, schema: str) -> None:
    store, target = SparkStore(spark), Target(table=f"{schema}.rows", id="case")
    rows = spark.createDataFrame(scores(20)).drop("a", "b")
    said = Comments("rows of ours", {"outcome": "what became of it"})
    store.put_frame(target, rows, Commit("first", "x"), said)
    new = kept(spark, target.table)
    assert new["description"] == "rows of ours" and set(new["properties"]) <= set(USUAL)
    assert new["columns"]["outcome"][1] == {"comment": "what became of it"}
    dressed(spark, target.table, clusters=True)
    before = kept(spark, target.table)
    again = rows.select("note", "fold", "case", "outcome").where("case < 1010")
    version, rows_put = store.put_frame(target, again, Commit("second", "x"), said)
    assert rows_put == 10
    assert kept(spark, target.table) == before
    assert store.written(target.table, Commit("second", "x")) == (version, 10)
    found = spark.table(target.table).select("case", "note").orderBy("case").collect()
    assert [tuple(row) for row in found] == [(1_000 + i, f"n{i}") for i in range(10)]
    told = spark.sql(f"DESCRIBE HISTORY {target.table}").orderBy("version").collect()
    assert not [row for row in told[1:] if "REPLACE" in row["operation"]]
    wider = again.withColumn("weight", lit(1.5))
    evolving = replace(target, evolve=True)
    store.put_frame(evolving, wider, Commit("third", "x"), Comments("", {"weight": "how much"}))
    after = kept(spark, target.table)
    assert after["columns"].pop("weight") == ("double", {"comment": "how much"})
    assert after == before
    fewer = again.drop("fold")
    store.put_frame(evolving, fewer, Commit("fourth", "x"), said)  # only a new definition can do it
    last = kept(spark, target.table)
    assert "fold" not in last["columns"]
    assert last["columns"]["note"] == before["columns"]["note"]


def test_what_a_catalog_manages_is_not_replaced() -> None:
    schema = pa.schema([("case", pa.int64()), ("note", pa.string())])
    target = Target(table="c.s.t", evolve=True)
    check_managed(target, schema, Existing(schema, managed=True))
    check_managed(target, schema.append(pa.field("n", pa.int64())), Existing(schema, managed=True))
    fewer = schema.remove(0)
    check_managed(target, fewer, Existing(schema))
    with pytest.raises(UsageError, match=r"c\.s\.t is managed by its catalog"):
        check_managed(target, fewer, Existing(schema, managed=True))


@pytest.mark.slow  # every small table in a catalog is Spark's to write
@pytest.mark.parametrize("external", [False, True])
def test_a_nightly_run_leaves_the_table_as_it_is(
    spark: Any,
    lake: Lake,  # noqa: F811
    schema: str,
    external: bool,
) -> None:
    table = f"{schema}.rows"
    lake.tree["reconcile"]["eta"] = 0.05
    lake.tree["output"] |= {"table": table, "report": None}
    if external:
        lake.ran_on("spark")
        spark.sql(f"DROP TABLE {table}")
        lake.ran_on("spark", "--set", "output.table=out/rows", "--force")
        spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{Path('out/rows').absolute()}'")
    else:
        lake.ran_on("spark")
        comments_are_there(spark, schema)
    dressed(spark, table, clusters=not external)
    before = kept(spark, table)
    assert before["columns"]["note"][1]["comment"] == "as it was said"
    write_deltalake("scores", scores(650), mode="overwrite")
    lake.ran_on("spark")
    assert kept(spark, table) == before
    assert spark.table(table).count() == 650
    told = spark.sql(f"DESCRIBE HISTORY {table}").select("version", "operation").collect()
    operations = [row["operation"] for row in sorted(told)]
    assert not [name for name in operations[1:] if "REPLACE" in name or "CREATE" in name]
    written = max(row["version"] for row in told if row["operation"] == "WRITE")
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", written)
    assert feed.table(table).where("_change_type = 'insert'").count() == 650
    assert lake.ran_on("spark")["unchanged"]
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN note COMMENT 'nobody wrote rows'")
    assert lake.ran_on("spark")["unchanged"]


def comments_are_there(spark: Any, schema: str) -> None:
    """On all tables and on every column of ours."""
    for name in ("rows", "rows_patches", "rows_history", "rows_metrics", "rows_runs"):
        found = kept(spark, f"{schema}.{name}")
        assert found["description"], name
        ours = [c for c in found["columns"] if name != "rows" or c not in scores().column_names]
        assert not [c for c in ours if not found["columns"][c][1].get("comment")], name


@pytest.mark.slow
def test_new_columns_come_without_a_replace(
    spark: Any,
    lake: Lake,  # noqa: F811
    schema: str,
) -> None:
    table = f"{schema}.rows"
    lake.tree["output"] |= {"table": table, "report": None, "schema": "evolve"}
    lake.ran_on("spark")
    dressed(spark, table, clusters=False)
    before = kept(spark, table)
    lake.ran_on("spark", "--set", "output.normalise=true", "--force")
    after = kept(spark, table)
    new = after["columns"].keys() - before["columns"].keys()
    assert new == {"a_reconciled_normalised", "b_reconciled_normalised"}
    assert all("divided by their sum" in after["columns"][name][1]["comment"] for name in new)
    for name in new:
        del after["columns"][name]
    assert after == before
    # fewer columns: only a new table definition can do that, and it keeps the comments
    lake.ran_on("spark", "--set", "output.columns=[case, note]", "--force")
    last = kept(spark, table)["columns"]
    assert "outcome" not in last and last["note"][1]["comment"] == "as it was said"


@pytest.mark.slow
def test_a_table_that_is_dropped_and_made_anew(
    spark: Any,
    lake: Lake,  # noqa: F811
    schema: str,
) -> None:
    """Its version is that of the old one, and still it is another table."""
    rows = spark.createDataFrame(scores())
    rows.write.format("delta").saveAsTable(f"{schema}.scores")
    lake.tree["input"]["table"] = f"{schema}.scores"
    lake.tree["output"] |= {"table": f"{schema}.rows", "report": None}
    first = lake.ran_on("spark")
    assert lake.ran_on("spark")["unchanged"]
    spark.sql(f"DROP TABLE {schema}.scores")
    spark.createDataFrame(scores(seed=9)).write.format("delta").saveAsTable(f"{schema}.scores")
    second = lake.ran_on("spark")
    assert second["run_id"] != first["run_id"] and not second.get("unchanged")
    spark.sql(f"DROP TABLE {schema}.rows")
    third = lake.ran_on("spark")
    assert spark.table(f"{schema}.rows").count() == 600
    assert third["patches"] == second["patches"]


# --- a metastore that two sessions share ----------------------------------------------------------

IN_METASTORE = """
import json, sys
from redcal_spark.backends.spark.session import local_session
from redcal_spark.cli import main
folder, before, after, *command = sys.argv[1:]
spark = local_session(**{
    "master": "local[2]",
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": folder + "/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL":
        "jdbc:derby:;databaseName=" + folder + "/metastore;create=true",
})
assert spark.conf.get("spark.sql.catalogImplementation") == "hive"
for statement in json.loads(before):
    spark.sql(statement)
code = main(command)
told = [[list(map(str, row)) for row in spark.sql(text).collect()] for text in json.loads(after)]
print("TOLD", json.dumps(told))
spark.stop()
sys.exit(code)
"""


def in_metastore(
    folder: Path, before: list[str], after: list[str], *command: str
) -> list[list[list[str]]]:
    """A command in a session of its own, on the metastore in this folder."""
    given = [str(folder), json.dumps(before), json.dumps(after), *command]
    done = subprocess.run(
        [sys.executable, "-c", IN_METASTORE, *given],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=1_200,
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    found: list[list[list[str]]] = json.loads(line.removeprefix("TOLD "))
    return found


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # three sessions, each with Hive's own classes and a database
@pytest.mark.skipif(backends.name() != "classic", reason="has sessions of its own")
def test_a_hive_metastore_over_two_sessions(tmp_path: Path) -> None:
    """A schema whose name is a word of SQL, managed and external tables, names in backticks."""
    write_deltalake(str(tmp_path / "given"), scores())
    tree = yaml.safe_load(
        f"""
        input: {{table: "`order`.`2026_scores`", id: case, label: outcome, model_1: a, model_2: b,
                classes: [mild, grave, rare, none],
                split: {{column: fold, fit: train, holdout: test}}}}
        losses: {{beds: {{costs: [[0, 2, 1, 0], [1, 0, 0.5, 2]]}}}}
        reconcile: {{alpha: 0.01, eta: 0.05}}
        output: {{table: "`order`.`2026_rows`", report: null}}
        engine: {{name: spark, scratch: {tmp_path / "scratch"}}}
        """
    )
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    made = [
        "CREATE SCHEMA `order`",
        f"CREATE TABLE `order`.`2026_scores` USING delta LOCATION '{tmp_path / 'given'}'",
    ]
    target, ledger = "`order`.`2026_rows`", "`order`.`2026_rows_runs`"
    asked = [f"DESCRIBE DETAIL {target}", f"SELECT run_id FROM {ledger}"]
    run = ("run", "-c", "config.yaml")
    detail, [[first]] = in_metastore(tmp_path, made, asked, *run)
    dress = [
        f"COMMENT ON TABLE {target} IS 'of the ward'",
        f"ALTER TABLE {target} SET TBLPROPERTIES ('team' = 'risk')",
    ]
    # another session: the run of the first one is known, and is not made again
    assert in_metastore(tmp_path, dress, asked[1:], *run) == [[[first]]]
    write_deltalake(str(tmp_path / "given"), scores(650), mode="overwrite")
    after, runs, [[rows]] = in_metastore(
        tmp_path, [], [*asked, f"SELECT count(*) FROM {target}"], *run
    )
    assert (len(runs), rows) == (2, "650")
    assert after[0][1] == detail[0][1]  # the table's own id
    assert "of the ward" in after[0] and any("'team': 'risk'" in cell for cell in after[0])

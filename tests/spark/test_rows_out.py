"""Which rows and columns Spark writes, and tasks that write them themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.spark import direct_write
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import target_of
from redcal_spark.config.load import load_config
from tests.e2e.test_resume import killed
from tests.e2e.work import scores
from tests.spark.faulty import Fault, Faults, attempts
from tests.spark.test_runs import ONLY_CLASSIC, Lake, lake
from tests.spark.test_stream import River, river

__all__ = ["lake", "river"]


def same_on_both(lake: Lake) -> pa.Table:
    """The rows, equal to those of the embedded run; evaluated on Spark."""
    ran = lake.ran_on("spark")
    rows = lake.table()
    told = lake.redcal("evaluate", "--json")
    assert told.code == 0, told.out + told.err
    kept = dict(lake.tree["output"])
    lake.tree["output"] |= {"table": "local/rows", "runs": None}
    lake.ran_on("local")
    must = lake.table("local/rows")
    lake.tree["output"] = kept
    if "run_id" in rows.column_names:
        mine = rows.filter(pc.equal(rows["run_id"], ran["run_id"])).drop_columns(["run_id"])
        last = DeltaTable("local/rows").history(1)[0]["userMetadata"]
        ours = pc.equal(must["run_id"], json.loads(last)["redcal_run_id"])
        assert _told(mine) == _told(must.filter(ours).drop_columns(["run_id"]))
    else:
        assert rows.schema == must.schema
        assert _told(rows) == _told(must)
    return rows


def _told(table: pa.Table) -> list[Any]:
    """Rows that can be compared, NaN and all."""
    rows = table.sort_by("case").to_pylist()
    return [{name: repr(value) for name, value in row.items()} for row in rows]


@pytest.mark.slow
def test_touched_rows_and_some_columns_merged_twice(lake: Lake) -> None:
    lake.tree["output"] |= {"rows": "touched", "columns": ["case", "note"], "mode": "merge"}
    first = set(same_on_both(lake)["case"].to_pylist())
    table = scores()
    gone = sorted(first)[:5]
    agreed = [
        a if case in gone else b
        for case, a, b in zip(*(table[n].to_pylist() for n in ("case", "a", "b")), strict=True)
    ]
    changed = table.set_column(5, "b", pa.array(agreed, table["b"].type))
    write_deltalake("scores", changed, mode="overwrite")
    second = same_on_both(lake)
    assert not {*gone} & {*second["case"].to_pylist()}
    assert second["touched"].to_pylist() == [True] * second.num_rows


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", pytest.param("merge", marks=pytest.mark.slow)])
def test_touched_rows_as_they_arrive(river: River, mode: str) -> None:
    river.tree["output"] |= {"mode": mode, "rows": "touched", "columns": ["case", "a"]}
    river.arrive(river.parts[0])
    river.streamed()
    found = river.found()
    assert found == river.expected()
    assert 0 < len(found) < river.parts[0].num_rows
    if mode == "merge":  # what arrives again and is touched no more, goes
        again = river.parts[0].slice(0, 40)
        agreed = again.set_column(again.schema.get_field_index("b"), "b", again["a"])
        river.arrive(agreed)
        river.streamed()
        cases = set(agreed["case"].to_pylist())
        assert river.found() == [row for row in found if row["case"] not in cases]


# --- written by the tasks -------------------------------------------------------------------------


def with_types() -> pa.Table:
    """Scores beside columns of other types."""
    table = scores()
    n = table.num_rows
    days = pa.array(range(n), pa.int32()).cast(pa.date32())
    more = {
        "day": days,
        "at": pa.array(range(n), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array([str(i / 4) for i in range(n)]).cast(pa.decimal128(12, 2)),
        "odd": pa.array([float("nan") if i == 3 else i / 7 for i in range(n)]),
        "where": pa.array([None if i % 5 == 0 else f"ä/{i % 3}: b" for i in range(n)]),
        "inside": pa.array([{"x": i, "y": ["t"] * (i % 3)} for i in range(n)]),
        "whole": pa.array([i % 2 == 0 for i in range(n)]),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def files_of(name: str = "out/rows") -> set[str]:
    """The Parquet files in the folder of a table."""
    return {str(p.relative_to(name)) for p in Path(name).rglob("*.parquet")}


def referenced(name: str = "out/rows") -> set[str]:
    """The files of all versions."""
    found = set()
    for version in range(DeltaTable(name).version() + 1):
        table = pa.table(DeltaTable(name, version=version).get_add_actions())
        found |= {unquote(path) for path in table["path"].to_pylist()}
    return found


def test_tasks_write_what_spark_would_write(lake: Lake, spark: Any) -> None:
    write_deltalake("scores", with_types(), mode="overwrite", schema_mode="overwrite")
    lake.tree["output"] |= {"writer": "direct", "partition_by": ["where", "whole"]}
    rows = same_on_both(lake)
    assert rows.num_rows == 600
    assert files_of() == referenced()
    [entry] = DeltaTable("out/rows").history(1)
    assert entry["operationMetrics"]["numOutputRows"] == "600"
    by_spark = spark.read.format("delta").load(str(Path("out/rows").absolute()))
    assert by_spark.count() == 600
    assert by_spark.where("odd > 80 and where = 'ä/1: b'").count() == sum(
        1 for r in rows.to_pylist() if r["where"] == "ä/1: b" and not r["odd"] <= 80
    )
    # the next version: other rows, the same place
    write_deltalake("scores", with_types().slice(0, 500), mode="overwrite")
    assert same_on_both(lake).num_rows == 500
    assert files_of() == referenced()
    assert DeltaTable("out/rows").version() == 1


def test_statistics_hold_for_every_file(lake: Lake) -> None:
    write_deltalake("scores", with_types(), mode="overwrite", schema_mode="overwrite")
    lake.tree["output"] |= {"writer": "direct", "rows": "touched"}
    rows = same_on_both(lake)
    told = pa.table(DeltaTable("out/rows").get_add_actions(flatten=True))
    assert sum(told["num_records"].to_pylist()) == rows.num_rows
    for name in ("case", "note", "day"):
        ends = pc.min_max(rows[name])
        assert min(told[f"min.{name}"].to_pylist()) == ends["min"].as_py()
        assert max(told[f"max.{name}"].to_pylist()) == ends["max"].as_py()
    assert sum(told["null_count.where"].to_pylist()) == rows["where"].null_count
    if 1_003 in rows["case"].to_pylist():
        assert "max.odd" not in told.column_names


@pytest.mark.slow
def test_runs_are_appended_and_columns_come(lake: Lake) -> None:
    lake.tree["output"] |= {"writer": "direct", "mode": "append", "schema": "evolve"}
    assert same_on_both(lake).num_rows == 600
    table = scores(300, seed=9).append_column("more", pa.array(range(300)))
    write_deltalake("scores", table, mode="overwrite", schema_mode="overwrite")
    assert same_on_both(lake).num_rows == 900
    assert files_of() == referenced()
    again = lake.redcal("run", "--json")
    assert (again.code, again.json["unchanged"]) == (0, True)


@pytest.mark.slow
def test_files_without_a_commit_go_and_the_next_run_has_them_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.tree["output"]["writer"] = "direct"
    lake.ran_on("spark")
    before = lake.table().sort_by("case")
    write_deltalake("scores", scores(500), mode="overwrite")
    with monkeypatch.context() as patch:  # as if killed when all files are there
        patch.setattr(direct_write._Job, "_add", _dies)
        patch.setattr(direct_write, "remove_others", lambda *_: None)
        assert lake.redcal("run").code == 1
    assert files_of() > referenced()
    assert lake.table().sort_by("case") == before
    resumed = lake.redcal("resume", "--json")
    assert resumed.code == 0, resumed.err
    assert lake.table().num_rows == 500
    assert files_of() == referenced()
    assert lake.redcal("evaluate").code == 0


@ONLY_CLASSIC
@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["files of a new table", "files before their commit", "files after their commit"]
)
def test_a_driver_that_is_killed(lake: Lake, moment: str) -> None:
    lake.tree["output"] |= {"writer": "direct", "partition_by": ["fold"]}
    if moment != "files of a new table":
        lake.tree["output"]["table"] = "out/rows"
        lake.ran_on("spark")
        write_deltalake("scores", scores(500), mode="overwrite")
    Path("config.yaml").write_text(yaml.safe_dump(lake.tree, sort_keys=False), "utf-8")
    killed(moment, "run", "-c", "config.yaml", "--engine", "spark")
    again = lake.redcal("run", "--json")
    assert again.code == 0, again.err
    assert lake.table().num_rows == (600 if moment == "files of a new table" else 500)
    assert files_of() == referenced()
    assert [p for p in Path("out").iterdir() if p.name.startswith(".")] == []
    assert lake.redcal("evaluate").code == 0


@pytest.mark.parametrize("fault", ["kill worker", pytest.param("raise", marks=pytest.mark.slow)])
def test_a_task_that_dies_after_it_wrote_its_file_counts_once(
    lake: Lake, faults: Faults, fault: Fault
) -> None:
    lake.tree["output"]["writer"] = "direct"
    marker = faults("WriteTask", fault)
    assert lake.ran_on("spark")["outputs"]
    assert marker.exists()
    assert attempts(marker) >= 2
    rows = lake.table()
    assert (rows.num_rows, len(set(rows["case"].to_pylist()))) == (600, 600)
    assert files_of() == referenced()


@pytest.mark.slow
def test_files_that_the_log_names_are_never_removed(lake: Lake) -> None:
    lake.tree["output"] |= {"writer": "direct", "partition_by": ["note"]}
    odd = pa.array([f"ä/{i % 2}: %b" for i in range(600)])
    write_deltalake("scores", scores().set_column(3, "note", odd), mode="overwrite")
    ran = lake.ran_on("spark")
    there = files_of()
    orphan = Path("out/rows", f"redcal-{ran['run_id']}-0.snappy.parquet")
    orphan.write_bytes(b"of a task that died")
    config = load_config("config.yaml")
    commit = Commit(ran["run_id"], "")
    direct_write.remove_uncommitted(target_of(config), commit, 0)
    assert files_of() == there == referenced()


def _dies(*_: Any) -> None:
    raise RuntimeError("on purpose")


def test_a_failure_leaves_no_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.tree["output"]["writer"] = "direct"
    lake.ran_on("spark")
    write_deltalake("scores", scores(500), mode="overwrite")
    monkeypatch.setattr(direct_write._Job, "_add", _dies)
    assert lake.redcal("run").code == 1
    assert files_of() == referenced()


def test_what_only_spark_can_write_is_refused(lake: Lake, spark: Any) -> None:
    lake.tree["output"]["writer"] = "direct"
    lake.tree["output"]["mode"] = "merge"
    told = lake.redcal("check")
    assert told.code == 2
    assert "output.writer: direct writes in mode overwrite or append" in told.err
    lake.tree["output"] |= {"mode": "overwrite", "cluster_by": ["case"]}
    assert "output.writer: direct writes no clustered tables" in lake.redcal("check").err
    del lake.tree["output"]["cluster_by"]
    lake.tree["output"]["partition_by"] = ["at"]
    write_deltalake("scores", with_types(), mode="overwrite", schema_mode="overwrite")
    assert "partition column 'at' has type timestamp" in lake.redcal("check").err
    del lake.tree["output"]["partition_by"]
    path = Path("out/rows").absolute()
    lake.tree["output"]["writer"] = "spark"
    lake.ran_on("spark")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT sane CHECK (case > 0)")
    lake.tree["output"]["writer"] = "direct"
    told = lake.redcal("check")
    assert told.code == 2
    assert "direct cannot write out/rows; use output.writer: spark:" in told.err
    assert "checkConstraints" in told.err
    lake.tree["output"]["table"] = "default.rows"
    for side in ("patches", "history", "metrics", "runs"):
        lake.tree["output"][side] = f"out/{side}"
    told = lake.redcal("check")
    assert told.code == 2
    assert "default.rows is a catalog name: use output.writer: spark" in told.err


# --- the view -------------------------------------------------------------------------------------


def with_bad_rows() -> pa.Table:
    """Rows that cannot be used, scores of all sizes, ties, and ids as text."""
    rows = scores().to_pylist()
    rows[0]["a"] = None
    rows[1] |= {"a": [0.0] * 4, "b": [0.0] * 4}
    rows[2]["outcome"] = "no such class"
    rows[3]["a"] = [0.5, None, 0.25, 0.25]
    rows[4]["b"] = [0.5, 0.5]
    rows[5]["a"] = [float("nan"), 0.1, 0.1, 0.8]
    rows[6]["b"] = [1e300, 0.1, 0.1, 0.8]
    rows[7] |= {"a": [0.25] * 4, "b": [0.25] * 4}
    for row in rows:
        row["case"] = "ü" * (row["case"] % 3) + str(row["case"])
    schema = scores().schema
    return pa.Table.from_pylist(rows, schema.set(0, pa.field("case", pa.string())))


def put_together(lake: Lake, spark: Any, mode: str = "overwrite") -> None:
    """The view of touched rows is the table of all rows, column for column."""
    lake.tree["output"] |= {"table": "whole/rows", "rows": "all", "mode": mode}
    lake.ran_on("local")
    lake.tree["output"] |= {"table": "out/rows", "rows": "touched"}
    lake.ran_on("local")
    told = lake.redcal("view", "--engine", "local", "--json")
    assert told.code == 0, told.err
    found = spark.sql(told.json["sql"]).toArrow()
    must = lake.table("whole/rows")
    assert found.column_names == must.column_names
    if mode == "append":
        found, must = found.drop_columns(["run_id"]), must.drop_columns(["run_id"])
    assert found.num_rows == must.num_rows > lake.table().num_rows > 0
    ours, theirs = (_told(t) for t in (found, must))
    for name in must.column_names:
        assert [row[name] for row in ours] == [row[name] for row in theirs], name
    kinds = {name: found.schema.field(name).type for name in found.column_names}
    for name, kind in kinds.items():
        assert kind == must.schema.field(name).type, name


def test_the_view_gives_all_rows(lake: Lake, spark: Any) -> None:
    lake.tree["output"]["tie"] = "cheaper"
    put_together(lake, spark)
    apart = [row for row in lake.table("whole/rows").to_pylist() if not row["triage_agree"]]
    taken = {row["triage_decision"] == row["triage_1_after"] for row in apart if not row["touched"]}
    assert taken == {True, False}, "both models' actions, where SQL decides"
    sql = lake.redcal("view", "--engine", "local").out
    assert sql.startswith("-- run ")
    write_deltalake("scores", scores(50), mode="overwrite")  # it shows what the run read
    assert spark.sql(sql.rstrip().rstrip(";")).count() == 600


@pytest.mark.slow
def test_the_view_of_rows_that_were_split_by_a_hash_and_could_not_all_be_used(
    lake: Lake, spark: Any
) -> None:
    write_deltalake("scores", with_bad_rows(), mode="overwrite", schema_mode="overwrite")
    lake.tree["input"] |= {
        "split": {"holdout_fraction": 0.4, "salt": "s"},
        "on_bad_rows": "skip",
    }
    lake.tree["output"] |= {
        "normalise": True,
        "columns": ["case", "a"],
        "suffix": "_v2",
        "tie": None,
    }
    put_together(lake, spark, "append")


@pytest.mark.slow
def test_the_view_of_one_column_a_model(lake: Lake, spark: Any) -> None:
    table = scores()
    for place, name in ((4, "a"), (5, "b")):
        first = [row[0] for row in table[name].to_pylist()]
        table = table.set_column(place, name, pa.array(first, pa.float32()))
    labels = [None if x is None else x == "mild" for x in table["outcome"].to_pylist()]
    write_deltalake(
        "scores",
        table.set_column(1, "outcome", pa.array(labels)),
        mode="overwrite",
        schema_mode="overwrite",
    )
    del lake.tree["input"]["classes"]
    lake.tree["losses"] = {"it's": {"actions": ["n\\o", "y'es"], "costs": [[0, 3], [1, 0]]}}
    lake.tree["input"]["split"] = {"holdout_fraction": 0.3}
    lake.tree["reconcile"]["eta"] = 0.002
    put_together(lake, spark)


def test_views_that_cannot_be_are_refused(lake: Lake) -> None:
    lake.ran_on("local")
    told = lake.redcal("view", "--engine", "local")
    assert (told.code, told.out) == (2, "")
    assert "view: output.rows: all: out/rows has all rows already" in told.err
    lake.tree["output"] |= {"rows": "touched", "columns": ["note"], "schema": "evolve"}
    lake.ran_on("local")
    told = lake.redcal("view", "--engine", "local")
    assert "view: output.columns: must have 'case' (input.id)" in told.err
    del lake.tree["input"]["id"]
    lake.ran_on("local")
    told = lake.redcal("view", "--engine", "local")
    assert "view: input.id: is not set; rows are put together by it" in told.err

"""The Spark store: what one store writes the other reads, and how rows get into their table."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import redcal_spark
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.names import Place
from redcal_spark.backends.spark.merge import USER_METADATA
from redcal_spark.backends.spark.store import SparkStore
from redcal_spark.backends.spark.tables import frame_of
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target
from redcal_spark.errors import InputError, RunError, UsageError
from tests.helpers import refused
from tests.spark.test_plans import forbidden

COMMIT = Commit("run-1", "print-1")
NOW = datetime(2026, 1, 31, 12, 30, 15, 123_456)

# As people have them: scores in arrays and in columns, labels that are late, and all the rest.
ROWS = pa.table(
    {
        "id": pa.array([3, 1, 2, 4], pa.int64()),
        "label": pa.array([0, None, 2, 1], pa.int32()),
        "name": pa.array(["mild", None, "grave ✓", ""]),
        "a": pa.array([[0.1, 0.9], None, [1.0, 0.0], []], pa.list_(pa.float64())),
        "b": pa.array([[0.1, 0.9], [0.5, None], None, [0.0]], pa.list_(pa.float32())),
        "p0": pa.array([0.1, 0.2, 1e-300, None], pa.float64()),
        "p1": pa.array([0.5, 0.25, float("nan"), float("inf")], pa.float32()),
        "cost": pa.array(
            [Decimal("1.2345"), None, Decimal("-9.0000"), Decimal(0)], pa.decimal128(38, 4)
        ),
        "seen": pa.array([NOW.replace(tzinfo=UTC)] * 3 + [None], pa.timestamp("us", "UTC")),
        "local": pa.array([NOW, None, NOW, NOW], pa.timestamp("us")),
        "day": pa.array([date(2026, 1, 31), None, date(1969, 1, 1), date(2026, 1, 31)]),
        "part": pa.array(["x", None, "a/b c", "ä=b"]),
        "raw": pa.array([b"a\0", None, b"", b"z"]),
        "flag": pa.array([True, False, None, True]),
        "deep": pa.array([{"x": 1, "y": ["q"]}, None, {"x": None, "y": None}, {"x": 2, "y": []}]),
        "more": pa.array([[("k", 1)], None, [], [("l", None)]], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture
def store(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStore:
    monkeypatch.chdir(tmp_path)
    return SparkStore(spark)


LOCAL = DeltaRsStore()


def put(
    store: SparkStore | DeltaRsStore,
    target: Target,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    commit: Commit,
) -> int:
    """Put rows that are here into their table, through either store."""
    if isinstance(store, SparkStore):
        return store.put_frame(target, frame_of(store.spark, schema, batches), commit)[0]
    return store.put(target, schema, batches, commit)


def once(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=2)


def whole(store: Any, name: str, version: int | str | None = None) -> list[dict[str, Any]]:
    """The rows by their ids, as plain values that can be compared."""
    opened = store.open(name, version)
    found = pa.Table.from_batches(list(opened.batches()))
    return plain(found)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{name: row[name] for name in sorted(row)} for row in table.to_pylist()]
    return [{k: repr(v) for k, v in row.items()} for row in sorted(rows, key=lambda r: r["id"])]


# --- what one writes the other reads --------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [(), pytest.param(("part",), marks=pytest.mark.slow), ("flag", "part")], ids=str
)
@pytest.mark.parametrize("direction", ["to Spark", "from Spark"])
def test_what_one_store_writes_the_other_reads(
    store: SparkStore, direction: str, parts: tuple[str, ...]
) -> None:
    target = Target(table="t", partition_by=parts)
    here, there = (LOCAL, store) if direction == "to Spark" else (store, LOCAL)
    writer: Any = here
    assert (
        put(writer, Target(table="./t", partition_by=parts), ROWS.schema, once(ROWS), COMMIT) == 0
    )
    assert whole(there, "./t") == whole(here, "./t") == plain(ROWS)
    reader: Any = there
    assert reader.last_writer("./t") == "run-1"
    assert reader.written("./t", COMMIT) == (0, 4)
    assert reader.existing("./t").partitions == target.partitions
    if direction == "from Spark" and parts:
        told = refused(UsageError, lambda: LOCAL.check_rows(Target(table="./t"), ROWS.schema))
        assert "has partitions that Spark wrote and the local engine cannot replace" in told
        return
    reader.check_rows(Target(table="./t"), ROWS.schema)  # no drift in the other's eyes
    # and the other one's next version
    assert put(reader, Target(table="./t"), ROWS.schema, once(ROWS), Commit("run-2", "")) == 1
    assert whole(here, "./t") == plain(ROWS)
    assert whole(here, "./t", 0) == whole(there, "./t", 0) == plain(ROWS)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("t_two", "default.t_two")),
        "spark_catalog.default.t_two",
    ],
)
def test_tables_by_name(store: SparkStore, name: str) -> None:
    store.spark.sql("DROP TABLE IF EXISTS spark_catalog.default.t_two")
    assert store.existing(name) is None
    refusal = refused(InputError, lambda: store.open(name))
    assert refusal == f"{name}: no such table in the catalog"
    target = Target(table=name, partition_by=("part",))
    assert put(store, target, ROWS.schema, once(ROWS), COMMIT) == 0
    assert put(store, target, ROWS.schema, once(ROWS.slice(0, 2)), Commit("run-2", "")) == 1
    assert whole(store, name) == plain(ROWS.slice(0, 2))
    assert whole(store, name, 0) == plain(ROWS)
    location = store.spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
    path = location.removeprefix("file:")
    assert whole(LOCAL, path) == plain(ROWS.slice(0, 2))
    assert whole(LOCAL, path, 0) == plain(ROWS)
    changed = ROWS.set_column(2, "name", pa.array(["new"] * 4))
    merging = Target(table=name, mode="merge", id="id")
    assert put(store, merging, changed.schema, once(changed), Commit("run-3", "")) == 2
    assert whole(store, name) == plain(changed)
    told = refused(InputError, lambda: store.open(name, 7))
    assert told == f"{name}: has no version 7; the newest is 2"
    store.spark.sql("DROP TABLE spark_catalog.default.t_two")


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("a.b", "`a`.`b`"),
        ("main.gold.t", "`main`.`gold`.`t`"),
        ("`my cat`.gold.t", "`my cat`.`gold`.`t`"),
        ("`a.b`.`c``d`", "`a.b`.`c``d`"),
        ("x; DROP TABLE y", "`x; DROP TABLE y`"),
        ("./a`b", "delta.`./a``b`"),
        ("s3://bucket/t", "delta.`s3://bucket/t`"),
        ("rows.csv", "delta.`rows.csv`"),
    ],
)
def test_names_are_quoted(name: str, sql: str) -> None:
    assert Place(name).sql == sql


ODD = ['say"it"', "back`tick", "d.o.t", "it's", "Ünïcode✓", "--x", "/*x*/", "'or'1'<'2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [*(pytest.param(m, marks=pytest.mark.slow) for m in ("overwrite", "append")), "merge"]
)
def test_columns_and_paths_by_any_name(store: SparkStore, mode: Any) -> None:
    # Spark's MERGE knows no columns with backticks
    odd = [name for name in ODD if mode != "merge" or "`" not in name]
    id = "the'id'\"of\"it"
    rows = pa.table({id: [1, 2, 3]} | {name: [f"{name} {i}" for i in range(3)] for name in odd})
    rows = rows.append_column("p'art", pa.array(["x", "x", "y"]))
    changed = rows.set_column(1, ODD[0], pa.array(["new", *rows[ODD[0]].to_pylist()[1:]]))
    one: Any
    other: Any
    for one, other in ((store, LOCAL), (LOCAL, store)):
        name = f"./ö d'd/t `{type(one).__name__}`; x"
        target = Target(table=name, mode=mode, id=id, partition_by=("p'art",))
        one.check_rows(target, rows.schema)
        put(one, target, rows.schema, once(rows), COMMIT)
        other.check_rows(target, rows.schema)
        put(other, target, changed.schema, once(changed), Commit("run-2", ""))
        table = pa.Table.from_batches(list(one.open(name).batches()))
        assert table.num_rows == (6 if mode == "append" else 3)
        if mode == "append":
            table = pa.Table.from_batches(list(other.of_run(other.open(name), "run-2").batches()))
        by_id = {row[id]: row for row in table.select(rows.column_names).to_pylist()}
        assert by_id == {row[id]: row for row in changed.to_pylist()}


def test_signs_that_spark_does_not_write(store: SparkStore) -> None:
    rows = pa.table({"id": [1, 2], "a b": ["x", "y"], "c;d": [1, 2], "fine": [1, 2]})
    told = refused(UsageError, lambda: store.check_rows(Target(table="./t"), rows.schema))
    assert told.startswith("output.table: Spark writes no columns with any of ' ,;{}()")
    assert "in their names: 'a b', 'c;d'; rename them, or" in told
    put(LOCAL, Target(table="./t"), rows.schema, once(rows), COMMIT)
    assert whole(store, "./t") == whole(LOCAL, "./t") == plain(rows)


# --- time travel ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "day"),
    [
        (None, 3),
        (0, 1),
        ("2026-01-02", 2),
        ("2026-01-02T00:30:00+01:00", 1),
        pytest.param(2, 3, marks=pytest.mark.slow),
        pytest.param("2026-01-01T23:59:59", 1, marks=pytest.mark.slow),
        pytest.param("2030-01-01", 3, marks=pytest.mark.slow),
    ],
)
def test_a_version_or_the_one_of_a_time(
    store: SparkStore, version: int | str | None, day: int
) -> None:
    for at in (1, 2, 3):
        write_deltalake("v", pa.table({"id": [at]}), mode="overwrite")
        log = Path("v", "_delta_log", f"{at - 1:020}.json")
        stamp = int(datetime(2026, 1, at, tzinfo=UTC).timestamp() * 1_000)
        log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{stamp}', log.read_text()))
    opened = store.open("v", version)
    assert whole(store, "v", version) == whole(LOCAL, "v", version) == [{"id": str(day)}]
    assert opened.identity() == LOCAL.open("v", version).identity()


@pytest.mark.slow
def test_a_time_by_name(store: SparkStore) -> None:
    store.spark.sql("DROP TABLE IF EXISTS default.timed")
    for version in (0, 1):
        put(
            store,
            Target(table="default.timed"),
            ROWS.schema,
            once(ROWS.slice(version, 1)),
            Commit(f"r{version}", ""),
        )
    times = store.spark.sql("DESCRIBE HISTORY default.timed").collect()
    first = min(row["timestamp"] for row in times).astimezone(UTC)
    assert store.open("default.timed", first.isoformat()).identity()["version"] == 0
    assert store.open("default.timed", "2100-01-01").identity()["version"] == 1
    told = refused(InputError, lambda: store.open("default.timed", "2001-01-01"))
    assert told.startswith("default.timed: has no version as old as 2001-01-01; its first version")
    store.spark.sql("DROP TABLE default.timed")


def test_an_opened_table_does_not_change(store: SparkStore) -> None:
    put(store, Target(table="./t"), ROWS.schema, once(ROWS), COMMIT)
    opened = store.open("./t")
    put(LOCAL, Target(table="./t"), ROWS.schema, once(ROWS.slice(0, 1)), Commit("run-2", ""))
    assert opened.frame.count() == 4
    assert store.open("./t").frame.count() == 1


# --- modes ----------------------------------------------------------------------------------------


def operation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = DeltaTable(name).history(1)[0]
    return found


def test_merging_rewrites_what_changed_and_leaves_the_rest(store: SparkStore) -> None:
    target = Target(table="./t", mode="merge", id="id")
    assert put(store, target, ROWS.schema, once(ROWS), COMMIT) == 0
    names = ["mild", "new", "grave ✓", ""]
    more = pa.Table.from_pylist([{"id": 9, "name": "fresh"}], ROWS.schema)
    source = pa.concat_tables([ROWS.set_column(2, "name", pa.array(names)).slice(1), more])
    assert put(store, target, source.schema, once(source), Commit("run-2", "")) == 1
    assert whole(LOCAL, "./t") == plain(
        pa.concat_tables([ROWS.set_column(2, "name", pa.array(names)), more])
    )
    metrics = operation("./t")["operationMetrics"]
    assert operation("./t")["operation"] == "MERGE"
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == ("1", "1")
    assert store.written("./t", Commit("run-2", "")) == (1, 2)
    assert json.loads(operation("./t")["userMetadata"])["redcal_run_id"] == "run-2"
    assert store.spark.conf.get(USER_METADATA, None) is None


@pytest.mark.slow
def test_any_change_is_seen_on_merge(store: SparkStore) -> None:
    """In any one column, from a value to null and back."""
    columns = [name for name in ROWS.column_names if name != "id"]
    row = ROWS.to_pylist()[0]
    full = pa.Table.from_pylist([row | {"id": i} for i in range(len(columns) + 1)], ROWS.schema)
    empty = pa.Table.from_pylist(
        [row | {"id": i} | ({columns[i]: None} if i < len(columns) else {}) for i in range(16)],
        ROWS.schema,
    )
    for name, one in (("local", LOCAL), ("spark", store)):
        writer: Any = one
        target = Target(table=f"./{name}", mode="merge", id="id")
        for phase, rows in enumerate((full, empty, full)):
            put(writer, target, rows.schema, once(rows), Commit(f"run-{phase}", ""))
            assert whole(LOCAL, target.table) == plain(rows)
        metrics = operation(target.table)["operationMetrics"]
        updated = metrics.get("numTargetRowsUpdated", metrics.get("num_target_rows_updated"))
        assert int(updated) == len(columns) == 15


def test_a_setting_of_the_session_is_given_back(store: SparkStore) -> None:
    target = Target(table="./t", mode="merge", id="id")
    put(store, target, ROWS.schema, once(ROWS), COMMIT)
    store.spark.conf.set(USER_METADATA, "theirs")
    try:
        put(store, target, ROWS.schema, once(ROWS.slice(0, 0)), Commit("run-2", ""))
        with pytest.raises(RunError):
            put(
                store,
                Target(table="./t", mode="merge", id="nothing"),
                ROWS.schema,
                once(ROWS),
                COMMIT,
            )
        assert store.spark.conf.get(USER_METADATA) == "theirs"
    finally:
        store.spark.conf.unset(USER_METADATA)


def test_merging_the_same_rows_again_rewrites_nothing(store: SparkStore) -> None:
    target = Target(table="./t", mode="merge", id="id")
    put(store, target, ROWS.schema, once(ROWS), COMMIT)
    files = set(DeltaTable("./t").file_uris())
    assert put(store, target, ROWS.schema, once(ROWS), Commit("run-2", "")) == 1
    assert set(DeltaTable("./t").file_uris()) == files
    assert store.last_writer("./t") == LOCAL.last_writer("./t") == "run-2"


def test_appended_rows_name_their_run(store: SparkStore) -> None:
    target = Target(table="./t", mode="append")
    for run in ("run-1", "run-2"):
        put(store, target, ROWS.schema, once(ROWS), Commit(run, ""))
    assert DeltaTable("./t").metadata().partition_columns == ["run_id"]
    for one in (store, LOCAL):
        reader: Any = one
        opened = reader.open("./t")
        assert sum(batch.num_rows for batch in opened.batches()) == 8
        found = pa.Table.from_batches(list(reader.of_run(opened, "run-2").batches()))
        assert set(found["run_id"].to_pylist()) == {"run-2"}
        assert plain(found.select(ROWS.column_names)) == plain(ROWS)


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_repeat_of_a_run_is_skipped_by_delta(store: SparkStore, mode: Any) -> None:
    target = Target(table="./t", mode=mode)
    put(store, target, ROWS.schema, once(ROWS), COMMIT)
    assert put(store, target, ROWS.schema, once(ROWS), COMMIT) == 0
    assert DeltaTable("./t").version() == 0
    assert store.open("./t").frame.count() == 4


@pytest.mark.slow
def test_clusters(store: SparkStore) -> None:
    target = Target(table="./t", cluster_by=("part", "day"))
    store.check_rows(target, ROWS.schema)
    put(store, target, ROWS.schema, once(ROWS), COMMIT)
    found = store.existing("./t")
    assert found is not None and (found.partitions, found.clusters) == ((), ("part", "day"))
    put(store, Target(table="./t"), ROWS.schema, once(ROWS), Commit("run-2", ""))  # keeps its own
    found = store.existing("./t")
    assert found is not None and found.clusters == ("part", "day")
    assert whole(LOCAL, "./t") == plain(ROWS)
    other = Target(table="./t", cluster_by=("name",))
    assert "  clustered by: 'part', 'day', would be 'name'\n" in refused(
        UsageError, lambda: store.check_rows(other, ROWS.schema)
    )
    told = refused(UsageError, lambda: LOCAL.check_rows(other, ROWS.schema))
    assert told.startswith("output.cluster_by: only Spark clusters tables")


def test_drift_is_told_in_the_same_words(store: SparkStore) -> None:
    put(LOCAL, Target(table="./t"), ROWS.schema, once(ROWS), COMMIT)
    new = ROWS.drop_columns("name").append_column("extra", ROWS["a"])
    new = new.set_column(0, "id", ROWS["id"].cast(pa.int32()))
    for mode in ("overwrite", "merge", "append"):
        target = Target(table="./t", mode=mode, id="id", partition_by=("day",))
        told = refused(UsageError, lambda: LOCAL.check_rows(target, new.schema))  # noqa: B023
        assert told == refused(UsageError, lambda: store.check_rows(target, new.schema))  # noqa: B023
        for line in (
            "  new: 'extra', array<double>\n",
            "  missing: 'name', string\n",
            "  of another type: 'id' is long, would be integer\n",
            "  partitioned by: nothing, would be ",
        ):
            assert line in told


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("one", [pytest.param("local", marks=pytest.mark.slow), "spark"])
def test_evolving(store: SparkStore, one: str) -> None:
    writer: Any = store if one == "spark" else LOCAL
    new = ROWS.drop_columns(["name", "more"]).append_column("extra", ROWS["a"])
    retyped = new.set_column(0, "id", ROWS["id"].cast(pa.int32()))
    put(writer, Target(table="./o"), ROWS.schema, once(ROWS), COMMIT)
    evolving = Target(table="./o", evolve=True, partition_by=("day",))
    writer.check_rows(evolving, retyped.schema)
    put(writer, evolving, retyped.schema, once(retyped), Commit("run-2", ""))
    assert whole(store, "./o") == whole(LOCAL, "./o") == plain(retyped)
    assert DeltaTable("./o").metadata().partition_columns == ["day"]
    for mode in ("merge", "append"):
        target = Target(table=f"./{mode}", mode=mode, id="id", evolve=True)
        put(writer, target, ROWS.schema, once(ROWS), COMMIT)
        writer.check_rows(target, new.schema)
        put(writer, target, new.schema, once(new), Commit("run-2", ""))
        opened = store.open(f"./{mode}")
        if mode == "append":
            opened = store.of_run(opened, "run-2")
        found = pa.Table.from_batches(list(opened.batches()))
        assert plain(found.select(new.column_names)) == plain(new)
        kept = {None} if mode == "append" else set(ROWS["name"].to_pylist())
        assert set(found["name"].to_pylist()) == kept


# --- files ----------------------------------------------------------------------------------------


def test_files_are_read_alike(store: SparkStore) -> None:
    rows = ROWS.drop_columns(["more"])
    pq.write_table(rows, "t.parquet")
    assert whole(store, "t.parquet") == whole(LOCAL, "t.parquet") == plain(rows)
    odd = "".join(f"{i},x,{p}\n" for i, p in enumerate(("nan", "inf", "-inf", "")))
    Path("t.csv").write_text('id,note,p\n11,"two\nlines, ""more""",0\n12,,0.5\n' + odd)
    opened = [one.open("t.csv", None, ",", ["p"]) for one in (store, LOCAL)]
    found = [plain(pa.Table.from_batches(list(table.batches()))) for table in opened]
    assert found[0] == found[1]
    assert opened[0].identity() == opened[1].identity()


# --- what the store does without ------------------------------------------------------------------


def test_no_delta_table_class_and_nothing_that_connect_has_not() -> None:
    """Delta's own Python classes need a JVM of this process."""
    folder = Path(redcal_spark.__file__).parent / "backends" / "spark"
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "session.py"]
    assert len(files) >= 15
    for file in files:
        tree = ast.parse(file.read_text())
        imported = [
            node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        ]
        imported += [
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        ]
        assert not [name for name in imported if name.split(".")[0] == "delta"], file.name
        assert forbidden(file.read_text()) == [], file.name


# --- small tables ---------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shared", [True, False])
def test_a_small_table_whoever_changes_it(
    store: SparkStore, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By delta-rs; by Spark, where that may see other files than this process: all the same."""
    if not shared:
        monkeypatch.setattr(SparkStore, "_probed", lambda *_: False)
    name, same = "out/small", {"run": "run"}
    assert (store.quick(name) is not None) is shared
    assert store.read(name) is None and store.last_writer(name) is None
    first = pa.table({"run": ["a"], "n": [1]})
    store.merge(name, first, same, COMMIT)
    changed = [
        store.merge(name, pa.table({"run": ["a"], "n": [2]}), same, COMMIT),
        store.merge(name, pa.table({"run": ["b"], "n": [3]}), same, COMMIT),
        store.merge(name, pa.table({"run": ["b"], "n": [4]}), same, COMMIT, update=False),
        store.merge(name, pa.table({"run": ["c"], "n": [5]}), same, COMMIT, insert=False),
    ]
    assert changed == ([0] * 4 if shared else [1, 1, 0, 0])  # delta-rs is not asked
    table = store.read(name)
    assert table is not None and table.sort_by("run").to_pylist() == [
        {"run": "a", "n": 2},
        {"run": "b", "n": 3},
    ]
    more, later = pa.table({"run": ["d"], "n": [6]}), Commit("run-2", "print-2", phase=3)
    version = store.write(name, more.schema, more.to_batches(), "append", later)
    assert store.written(name, later) == (version, 1)
    assert store.last_writer(name) == "run-2"
    assert store.delete(name, "run", ["a", "z"], later) == 1
    found = store.read(name, {"run": "d"})
    assert found is not None and found.to_pylist() == [{"run": "d", "n": 6}]
    before, after = store.compact(name, later)
    assert before > after == 1
    store.drop(name)
    assert not store.exists(name)
    assert not list(Path().rglob(".redcal_probe_*"))


def test_a_small_table_at_a_path_needs_no_job(
    store: SparkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out").mkdir()
    assert store.quick("out/small") is not None  # tried once, before Spark is out of reach
    monkeypatch.setattr(store, "spark", None)
    store.merge("out/small", pa.table({"run": ["a"]}), {"run": "run"}, COMMIT)
    assert store.read("out/small", {"run": "a"}) is not None


def test_what_delta_rs_cannot_change_is_left_to_spark(store: SparkStore, spark: Any) -> None:
    """And what Spark does not see under the same name: to it, brackets are a pattern."""
    assert store.quick("default.small") is None
    assert store.quick("gs://bucket/small") is None
    Path("a[b]").mkdir()
    assert store.quick("a[b]/small") is None
    spark.sql(
        f"CREATE TABLE delta.`{Path('small').absolute()}` (run string, n bigint) USING delta"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    assert store.quick("small") is None
    store.merge("small", pa.table({"run": ["a"], "n": [1]}), {"run": "run"}, COMMIT)
    table = store.read("small")
    assert table is not None and table.to_pylist() == [{"run": "a", "n": 1}]

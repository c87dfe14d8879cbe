"""Rows as they arrive: what a stream writes is what one apply of the whole table writes, once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.backends.spark.backend import SparkBackend
from redcal_spark.config.load import load_config
from redcal_spark.errors import InputError
from redcal_spark.runs.job import Job
from redcal_spark.runs.stream import stream
from tests import backends
from tests.e2e.test_resume import killed
from tests.e2e.work import Told, scores
from tests.helpers import until
from tests.spark.test_runs import Lake, lake  # noqa: F401

ONLY_CLASSIC = pytest.mark.skipif(
    backends.name() != "classic", reason="the processes start sessions of their own"
)
PARTS = 3
ROWS = 240


class River(Lake):
    """A table that rows arrive in, without their labels, and a model fitted before."""

    def __init__(self, lake: Lake):  # noqa: F811
        super().__init__(lake.folder, lake._capsys)
        self.tree = lake.tree
        self.tree["reconcile"]["eta"] = 0.05
        fitted = self.redcal("fit", "--engine", "local", "--set", "output.table=fitted/rows")
        assert fitted.code == 0, fitted.err
        place = ("--set", "output.table=fitted/rows", "--engine", "local")
        assert self.redcal("export", "-o", "model.json", *place).code == 0
        self.tree["input"]["table"] = "arriving"
        self.tree["output"]["mode"] = "append"
        rows = scores(ROWS * PARTS, seed=8).drop_columns(["outcome", "fold"])
        self.parts = [rows.slice(ROWS * i, ROWS) for i in range(PARTS)]

    def arrive(self, *parts: pa.Table) -> None:
        for part in parts:
            write_deltalake("arriving", part, mode="append", schema_mode="merge")

    def stream(self, *arguments: str) -> Told:
        return self.redcal("apply", "--incremental", "--model", "model.json", "--json", *arguments)

    def streamed(self, *arguments: str) -> Any:
        told = self.stream(*arguments)
        assert told.code == 0, told.err
        return told.json

    def expected(self) -> list[Any]:
        """What one apply of the table as it is now writes, by the embedded engine."""
        place = ("--set", "output.table=whole/rows", "--set", "output.mode=overwrite")
        told = self.redcal("apply", "--model", "model.json", "--engine", "local", *place)
        assert told.code == 0, told.err
        return _sorted(self.table("whole/rows"))

    def found(self, name: str = "out/rows") -> list[Any]:
        table = self.table(name)
        if "run_id" in table.column_names:
            assert table["run_id"].null_count == 0
            table = table.drop_columns(["run_id"])
        return _sorted(table)


def _sorted(table: pa.Table) -> list[Any]:
    rows: list[Any] = table.sort_by("case").to_pylist()
    return rows


@pytest.fixture
def river(lake: Lake) -> River:  # noqa: F811
    return River(lake)


@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.slow), "merge"])
def test_twice_is_as_good_as_the_whole(river: River, mode: str) -> None:
    river.tree["output"]["mode"] = mode
    river.arrive(*river.parts[:2])
    first = river.streamed()
    assert (first["rows"], first["source_version"]) == (2 * ROWS, 1)
    assert river.found() == river.expected()

    DeltaTable("arriving").optimize.compact()  # no new rows, no changed ones
    river.arrive(river.parts[2])
    second = river.streamed()
    assert (second["rows"], second["source_version"]) == (ROWS, 3)
    assert river.found() == river.expected()

    third = river.streamed()
    assert (third["rows"], third["outputs"]) == (0, {})
    told = [(row["command"], row["status"], row["rows"]) for row in river.runs()]
    assert told == [("stream", "converged", n) for n in (2 * ROWS, ROWS, 0)]
    assert [json.loads(row["inputs"])["version"] for row in river.runs()] == [1, 3, 3]
    if mode == "append":
        by_run = pc.value_counts(river.table()["run_id"]).to_pylist()
        counts = {entry["values"]: entry["counts"] for entry in by_run}
        assert counts == {first["run_id"]: 2 * ROWS, second["run_id"]: ROWS}


# --- killed -------------------------------------------------------------------------------------

MOMENTS = [
    ("append", "before the first batch"),
    ("append", "in a batch"),
    ("append", "after a write"),
    ("append", "between batches"),
    ("merge", "before the first batch"),
    ("merge", "before a merge"),
    ("merge", "in a merge"),
    ("merge", "after a merge"),
    ("merge", "between batches"),
]


@ONLY_CLASSIC
@pytest.mark.parametrize(
    ("mode", "moment"),
    MOMENTS,
)
@pytest.mark.slow
def test_killed_and_started_again(river: River, mode: str, moment: str) -> None:
    river.tree["output"]["mode"] = mode
    river.arrive(*river.parts)
    Path("config.yaml").write_text(yaml.safe_dump(river.tree, sort_keys=False), "utf-8")
    command = ("apply", "-c", "config.yaml", "--engine", "spark", "--model", "model.json")
    killed(moment, *command, "--incremental")
    [dead] = river.runs()
    assert (dead["status"], dead["outputs"]) == ("running", None)
    state = Path("out/rows_checkpoint/state")
    if moment == "after a write":  # the moment is short: make sure that it is this one
        (state / "commits/0").unlink(missing_ok=True)
        (state / "commits/.0.crc").unlink(missing_ok=True)
        assert DeltaTable("out/rows").to_pyarrow_table().num_rows == ROWS
    batches = {
        "before the first batch": 0,
        "in a batch": 0,
        "after a write": 0,
        "before a merge": 1,
        "in a merge": 1,
        "after a merge": 1,
    }
    if moment in batches:
        done = len(list(state.glob("commits/[0-9]*")))
        assert done == batches[moment]
    if moment == "after a merge":
        assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 2 * ROWS
    again = river.streamed()
    assert river.found() == river.expected()
    old, new = river.runs()
    assert (old["run_id"], old["status"], old["error"]) == (dead["run_id"], "failed", "abandoned")
    assert new["run_id"] == again["run_id"]
    # what the dead one wrote is known, and counted once
    assert old["rows"] + new["rows"] == PARTS * ROWS
    assert (old["outputs"] is None) == (old["rows"] == 0)
    assert river.streamed()["rows"] == 0


@ONLY_CLASSIC
@pytest.mark.slow
def test_killed_and_then_the_checkpoint_or_the_target_is_lost(river: River) -> None:
    river.arrive(*river.parts)
    Path("config.yaml").write_text(yaml.safe_dump(river.tree, sort_keys=False), "utf-8")
    command = ("apply", "-c", "config.yaml", "--engine", "spark", "--model", "model.json")
    killed("between batches", *command, "--incremental")
    [dead] = river.runs()
    assert dead["rows"] is None and river.table().num_rows > 0
    for name, told in (
        ("out/rows_checkpoint", f"is missing, and run {dead['run_id']} wrote rows with it"),
        ("out/rows", f"is missing, and run {dead['run_id']} may have written rows to it"),
    ):
        Path(name).rename("elsewhere")
        found = river.stream()
        assert (found.code, told in found.err) == (2, True), found.err
        Path("elsewhere").rename(name)
    river.streamed()
    assert river.found() == river.expected()


@pytest.mark.slow
def test_what_a_stream_leaves_in_ledger_metrics_and_checkpoint(
    river: River, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters and metrics as of any run; of `${NAME}`, nothing."""
    monkeypatch.setenv("PLACE", "sesame-4711")
    river.tree["output"]["table"] = "${PLACE}/rows"
    river.arrive(river.parts[0])
    river.streamed()
    [row] = DeltaTable("sesame-4711/rows_runs").to_pyarrow_table().to_pylist()
    counters = json.loads(row["counters"])
    assert (counters["jobs"], counters["rows_scanned"], counters["passes"]) == (1, ROWS, 1)
    table = DeltaTable("sesame-4711/rows_metrics").to_pyarrow_table().to_pylist()
    [written] = [x for x in table if (x["kind"], x["name"]) == ("pass", "apply")]
    assert (written["command"], written["counted"]) == ("stream", ROWS)
    kept = list(Path("sesame-4711/rows_checkpoint/stream").glob("*.json"))
    text = "".join(path.read_text() for path in kept)
    assert "${PLACE}/rows" in text and "sesame" not in text
    assert "sesame" not in json.dumps(row, default=str)
    river.arrive(river.parts[1])
    assert river.streamed()["rows"] == ROWS  # the checkpoint knows its target again


# --- following ----------------------------------------------------------------------------------


def meanwhile(do: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Do something while the main thread is busy; what goes wrong is kept."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as err:
            failed.append(err)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


@pytest.mark.slow
def test_following_until_told_to_stop(spark: Any, river: River) -> None:
    river.arrive(river.parts[0])
    held: list[str | None] = []

    def rows() -> int:
        there = DeltaTable.is_deltatable("out/rows")
        return DeltaTable("out/rows").to_pyarrow_table().num_rows if there else 0

    def act() -> None:
        until(lambda: rows() == ROWS)
        pair = ReconciledPair.load("model.json")
        second = Job(load_config("config.yaml"), SparkBackend(spark))
        held.append(stream(second, pair, "model.json", threading.Event()).held)
        river.arrive(river.parts[1])
        until(lambda: rows() == 2 * ROWS)
        more = river.parts[2].append_column("ward", pa.array(["w"] * ROWS))
        river.arrive(more)  # columns of its own: the stream goes on with them
        until(lambda: rows() == 3 * ROWS)

    thread, failed = meanwhile(act)
    told = river.stream("--follow", "0.5", "--set", "output.schema=evolve")
    thread.join()
    assert failed == []
    assert told.code == 0, told.err
    assert (told.json["rows"], told.json["source_version"]) == (3 * ROWS, 2)
    assert river.found() == river.expected()
    [row] = river.runs()
    assert (row["status"], row["rows"]) == ("converged", 3 * ROWS)
    [text] = held
    assert text is not None and f"run {row['run_id']} is already in progress: held by" in text


# --- rows that change ---------------------------------------------------------------------------


def feed(on: bool = True) -> None:
    DeltaTable("arriving").alter.set_table_properties(
        {"delta.enableChangeDataFeed": str(on).lower()}
    )


@pytest.mark.slow
def test_changes_through_the_change_data_feed(spark: Any, river: River) -> None:
    river.tree["output"]["mode"] = "merge"
    river.arrive(river.parts[0])
    feed()
    assert river.streamed()["rows"] == ROWS

    table = f"delta.`{Path('arriving').absolute()}`"
    spark.sql(f"UPDATE {table} SET a = b, note = 'once' WHERE `case` < 1040")
    spark.sql(f"UPDATE {table} SET note = 'twice' WHERE `case` < 1020")
    spark.sql(f"DELETE FROM {table} WHERE `case` BETWEEN 1010 AND 1029")
    spark.sql(f"UPDATE {table} SET `case` = `case` + 90000 WHERE `case` IN (1036, 1037)")
    again = river.parts[0].slice(12, 2)  # gone, and back as they were
    river.arrive(again, river.parts[1])
    assert river.streamed()["source_version"] == DeltaTable("arriving").version()
    found = river.found()
    assert found == river.expected()
    notes = {row["case"]: row["note"] for row in found}
    assert (notes[1009], notes[1012], notes[1035]) == ("twice", "n12", "once")
    assert 1010 not in notes and len(notes) == 2 * ROWS - 18
    assert 1036 not in notes and notes[91036] == "once"  # an id that changed

    write_deltalake("arriving", river.parts[2], mode="overwrite")  # all go, others come
    river.streamed()
    assert river.found() == river.expected()
    assert len(river.found()) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", pytest.param("merge", marks=pytest.mark.slow)])
def test_changes_without_the_feed_are_a_plain_error(spark: Any, river: River, mode: str) -> None:
    river.tree["output"]["mode"] = mode
    river.arrive(river.parts[0])
    river.streamed()
    before = river.found()
    if mode == "append":
        DeltaTable("arriving").update(updates={"note": "'other'"}, predicate='"case" = 1003')
    else:
        DeltaTable("arriving").delete('"case" = 1003')
    told = river.stream()
    assert told.code == 2
    what = "UPDATE" if mode == "append" else "DELETE"
    assert f"arriving: version 1 ({what}) changed or removed rows" in told.err
    assert "with another output.table and checkpoint" in told.err
    assert "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in told.err
    assert "a plain: redcal apply" in told.err
    assert "Traceback" not in told.err
    assert river.found() == before
    assert [row["status"] for row in river.runs()] == ["converged", "failed"]
    if mode == "merge":  # what the error advises
        feed()
        river.tree["output"]["table"] = "out/second"
        river.streamed()
        assert river.found("out/second") == river.expected()
        DeltaTable("arriving").delete('"case" = 1004')
        river.streamed()
        assert river.found("out/second") == river.expected()


# --- what a stream refuses ----------------------------------------------------------------------


def test_what_is_refused_before_anything_runs(river: River) -> None:
    river.arrive(river.parts[0])
    write_deltalake("other", river.parts[0])
    pa.parquet.write_table(river.parts[0], "rows.parquet")
    for options, text in (
        (("--engine", "local"), "--incremental and --follow need engine.name: spark"),
        (("--set", "output.mode=overwrite"), "output.mode: overwrite replaces the whole table"),
        (("--set", "input.version=0"), "input.version: a fixed version gets no new rows"),
        (("--set", "input.table=rows.parquet"), "rows.parquet is not a Delta table"),
        (("--set", "output.table=spark_catalog.default.x"), "output.checkpoint: is required"),
        (("--set", "output.checkpoint=x"), "got 'x' (a folder of that name is ./x)"),
        (("--set", "output.suffix=_x", "--follow", "0"), "must be a number of seconds above 0"),
    ):
        if "--follow" in options:
            with pytest.raises(SystemExit) as left:
                river.stream(*options)
            assert left.value.code == 2
            assert text in river._capsys.readouterr().err
            continue
        told = river.stream(*options)
        assert told.code == 2, told.err
        assert text in told.err
    assert not Path("out").exists()


@pytest.mark.slow
def test_one_checkpoint_one_owner(river: River) -> None:
    river.arrive(river.parts[0])
    write_deltalake("other", river.parts[0])
    river.streamed()
    place = ("--set", "output.checkpoint=out/rows_checkpoint")
    for options, text in (
        (("--set", "input.table=other"), "belongs to another source: arriving, not other"),
        ((*place, "--set", "output.table=out/third"), "belongs to another target"),
        (
            ("--set", "output.mode=merge", "--set", "output.schema=evolve"),
            "belongs to another output.mode: append, not merge",
        ),
    ):
        told = river.stream(*options)
        assert (told.code, told.out) == (2, "")
        assert text in told.err

    refit = ("--set", "output.table=fitted/rows", "--set", "reconcile.eta=0.2")
    source = ("--set", "input.table=scores", "--engine", "local")
    assert river.redcal("fit", *refit, *source).code == 0
    assert river.redcal("export", "-o", "second.json", *refit, *source).code == 0
    river.arrive(river.parts[1])
    changed = ("apply", "--incremental", "--json", "--model", "second.json")
    told = river.redcal(*changed)
    assert told.code == 2
    assert "belongs to another model: model.json, not second.json" in told.err
    assert "--switch-model" in told.err
    told = river.redcal(*changed, "--switch-model")
    assert (told.code, told.json["rows"]) == (0, ROWS)
    found = {row["case"]: row for row in river.found()}
    for name, part in (("model.json", river.parts[0]), ("second.json", river.parts[1])):
        for row in ReconciledPair.load(name).apply(part).to_pylist():
            assert found[row["case"]] == row | {"split": None}  # as all rows of jobs

    Path("out/rows").rename("out/elsewhere")
    told = river.redcal(*changed)
    assert told.code == 2 and "out/rows is missing" in told.err
    Path("out/elsewhere").rename("out/rows")
    Path("out/rows_checkpoint").rename("out/elsewhere")
    told = river.redcal(*changed)
    assert told.code == 2 and "out/rows_checkpoint is missing" in told.err


# --- rows of all kinds --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_bad_rows(river: River, mode: str) -> None:
    river.tree["output"]["mode"] = mode
    bad = river.parts[0].to_pylist()
    bad[7]["a"] = [0.5, 2.0, 0.1, 0.1]
    river.arrive(pa.Table.from_pylist(bad, river.parts[0].schema))
    told = river.stream()
    assert told.code == 2
    assert "redcal apply: arriving has rows that cannot be used:\n  column 'a'" in told.err
    assert "Traceback" not in told.err
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 0
    skip = ("--set", "input.on_bad_rows=skip", "--set", "output.schema=evolve")
    assert river.streamed(*skip)["rows"] == ROWS
    river.tree["input"]["on_bad_rows"] = "skip"
    found = river.found()
    assert found == river.expected()
    assert [row["case"] for row in found if not row["valid"]] == [1007]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "with_feed"), [("append", False), ("merge", True)])
def test_a_source_without_rows_yet_and_new_columns(
    river: River, mode: str, with_feed: bool
) -> None:
    river.tree["output"]["mode"] = mode
    river.arrive(river.parts[0].slice(0, 0))
    if with_feed:
        feed()
    assert river.streamed()["rows"] == 0
    river.arrive(river.parts[0])
    assert river.streamed()["rows"] == ROWS
    river.arrive(river.parts[1].append_column("ward", pa.array(["w"] * ROWS)))
    told = river.stream()
    assert told.code == 2
    assert "new: 'ward', string" in told.err and "output.schema: evolve" in told.err
    river.streamed("--set", "output.schema=evolve")
    assert river.found() == river.expected()


@pytest.mark.slow
@pytest.mark.parametrize("with_feed", [False, True])
def test_ids_that_do_not_tell_rows_apart(river: River, with_feed: bool) -> None:
    river.tree["output"]["mode"] = "merge"
    river.arrive(river.parts[1])
    if with_feed:
        feed()
    river.streamed()
    twice = pa.concat_tables([river.parts[0], river.parts[0].slice(3, 1)]).to_pylist()
    twice[5]["case"] = None
    river.arrive(pa.Table.from_pylist(twice, river.parts[0].schema))
    told = river.stream()
    assert told.code == 2
    assert "needs an id on every row, and no id twice in a batch:" in told.err
    assert "\n  1 rows without an id" in told.err
    assert "\n  1 ids more than once, such as 1003\n  fix them, or " in told.err
    assert len(river.found()) == ROWS


@pytest.mark.slow
def test_an_id_again_is_the_newer_row(river: River) -> None:
    river.tree["output"]["mode"] = "merge"
    river.arrive(river.parts[0])
    river.streamed()
    newer = river.parts[1].set_column(0, "case", river.parts[0]["case"])
    river.arrive(newer)
    river.streamed()
    wanted = ReconciledPair.load("model.json").apply(newer).sort_by("case").to_pylist()
    # jobs write what the rows were to the fit, too: of a stream nobody knows
    assert river.found() == [row | {"split": None} for row in wanted]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_catalog_names(spark: Any, river: River, mode: str) -> None:
    river.tree["output"]["mode"] = mode
    river.arrive(*river.parts)
    wanted = river.expected()
    schema = f"redcal_stream_{mode}"
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    try:
        rows = spark.read.format("delta").load(str(Path("arriving").absolute()))
        rows.write.format("delta").saveAsTable(f"{schema}.arriving")
        river.tree["input"]["table"] = f"spark_catalog.{schema}.arriving"
        river.tree["output"] |= {
            "table": f"spark_catalog.{schema}.rows",
            "checkpoint": str(river.folder / "checkpoint"),
        }
        assert river.streamed()["rows"] == ROWS * PARTS
        assert river.streamed()["rows"] == 0
        found = spark.read.table(f"{schema}.rows").drop("run_id").toArrow()
        assert found.sort_by("case").to_pylist() == wanted
    finally:
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


# --- in Python ----------------------------------------------------------------------------------


def test_a_streaming_frame_of_unusable_columns(spark: Any, river: River) -> None:
    """A stream cannot be looked into beforehand; its types say enough to refuse it in words."""
    river.arrive(river.parts[0].drop_columns(["a"]).append_column("a", river.parts[0]["note"]))
    stream = spark.readStream.format("delta").load(str(Path("arriving").absolute()))
    assert stream.isStreaming
    with pytest.raises(InputError, match="column 'a'"):
        ReconciledPair.load("model.json").apply(stream)

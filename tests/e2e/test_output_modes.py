"""How reconciled rows get into their table: overwritten, merged on the id, or appended by run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.target import target_of
from redcal_spark.config.load import load_config
from redcal_spark.core.roles import UNKNOWN
from redcal_spark.runs.job import Job
from tests.e2e.test_claims import start
from tests.e2e.work import Work, scores, write


def rows(work: Work, name: str = "out/rows") -> dict[int, dict[str, Any]]:
    """The rows by id."""
    found = work.table(name).to_pylist()
    assert len({row["case"] for row in found}) == len(found)
    return {row["case"]: row for row in found}


def operation(work: Work) -> dict[str, Any]:
    """The newest entry of the history of the rows."""
    found: dict[str, Any] = work.delta().history(1)[0]
    return found


def with_notes(table: pa.Table, notes: dict[int, str]) -> pa.Table:
    """The table with the notes of some rows, by place, replaced."""
    new = [notes.get(i, note) for i, note in enumerate(table["note"].to_pylist())]
    return table.set_column(table.schema.get_field_index("note"), "note", pa.array(new))


def problem(work: Work, *arguments: str) -> str:
    """What a run says that is refused before it starts: nothing is written, not even a ledger."""
    before = work.files()
    told = work.redcal("run", *arguments)
    assert (told.code, told.out) == (2, "")
    assert work.files() - {"config.yaml"} == before - {"config.yaml"}
    return told.err.split("redcal run: ", 1)[1]


# --- overwrite ------------------------------------------------------------------------------------


def test_overwriting_makes_a_new_version(work: Work) -> None:
    work.ran()
    first = rows(work)
    write(scores(500))
    assert work.ran()["outputs"]["out/rows"] == 1
    assert len(rows(work)) == 500
    old = DeltaTable("out/rows", version=0).to_pyarrow_table().to_pylist()
    assert {row["case"]: row for row in old} == first


def test_drift_is_told_before_anything_is_computed(work: Work) -> None:
    work.ran()
    table = scores()
    write(
        table.rename_columns(["case", "outcome", "fold", "remark", "a", "b"]).set_column(
            0, "case", table["case"].cast(pa.int32())
        )
    )
    told = problem(work)
    assert told == (
        "output.table: out/rows is there with other columns than would be written:\n"
        "  new: 'remark', string\n"
        "  missing: 'note', string\n"
        "  of another type: 'case' is long, would be integer\n"
        "  (name another output.table, or output.schema: evolve overwrites them too)\n"
    )
    assert work.delta().version() == 0
    assert work.redcal("check").code == 2
    assert work.redcal("fit").code == 0  # writes no rows
    work.tree["output"]["schema"] = "evolve"
    assert work.ran()["outputs"]["out/rows"] == 1
    found = work.table().schema
    assert ("remark" in found.names, "note" in found.names) == (True, False)
    assert found.field("case").type == pa.int32()


@pytest.mark.slow
def test_another_order_of_columns_is_no_drift(work: Work) -> None:
    work.ran()
    table = scores()
    write(table.select(["b", "note", "a", "case", "fold", "outcome"]))
    before = rows(work)
    assert work.ran()["outputs"]["out/rows"] == 1
    assert rows(work) == before


def test_partitions(work: Work) -> None:
    work.tree["output"]["partition_by"] = ["fold", "triage_agree"]
    work.ran()
    assert work.delta().metadata().partition_columns == ["fold", "triage_agree"]
    before = rows(work)
    assert Path("out/rows/fold=train").is_dir()
    work.tree["output"]["partition_by"] = None  # an old table keeps its own
    assert work.ran("run", "--force")["outputs"]["out/rows"] == 1
    assert work.delta().metadata().partition_columns == ["fold", "triage_agree"]
    assert rows(work) == before


def test_other_partitions_are_drift(work: Work) -> None:
    work.ran()
    before = rows(work)
    work.tree["output"]["partition_by"] = ["fold"]
    assert problem(work) == (
        "output.table: out/rows is there with other columns than would be written:\n"
        "  partitioned by: nothing, would be 'fold'\n"
        "  (name another output.table, or output.schema: evolve overwrites them too)\n"
    )
    work.tree["output"]["schema"] = "evolve"
    work.ran()
    assert work.delta().metadata().partition_columns == ["fold"]
    assert rows(work) == before


def test_columns_to_partition_by_must_be_there(work: Work) -> None:
    work.tree["output"]["partition_by"] = ["folds", "a"]
    told = problem(work).splitlines()
    assert told[0].startswith("output.partition_by: no column 'folds'; there are: case, outcome, ")
    assert told[1] == (
        "output.partition_by: column 'a' has type array<double>, which cannot be used"
    )


def test_the_local_engine_cannot_cluster(work: Work) -> None:
    work.tree["output"]["cluster_by"] = ["fold"]
    assert problem(work) == (
        "output.cluster_by: only Spark clusters tables; the local engine can partition them "
        "(output.partition_by), or choose engine.name: spark\n"
    )


# --- merge ----------------------------------------------------------------------------------------


@pytest.fixture
def merging(work: Work) -> Work:
    work.tree["output"]["mode"] = "merge"
    return work


def test_merging_rewrites_what_changed_and_leaves_the_rest(merging: Work) -> None:
    work = merging
    assert work.ran()["outputs"]["out/rows"] == 0
    before = rows(work)
    table = scores()
    write(with_notes(table, {3: "changed", 7: "changed, too"}).slice(0, 590))
    work.ran()
    after = rows(work)
    assert after.keys() == before.keys()  # also those that are no longer in the input
    assert after[1_003]["note"] == "changed" and after[1_007]["note"] == "changed, too"
    same = [name for name in table.column_names if name != "note"]
    for case in before:
        assert {n: after[case][n] for n in same} == {n: before[case][n] for n in same}
    assert all(after[case] == before[case] for case in range(1_590, 1_600))


def test_only_changed_rows_are_rewritten(merging: Work) -> None:
    """The log is the same since the fit does not look at notes."""
    work = merging
    work.ran()
    before = rows(work)
    more = scores(600, seed=6).slice(0, 1).set_column(0, "case", pa.array([9_999]))
    more = more.set_column(1, "outcome", pa.nulls(1, pa.string()))  # not fitted
    write(pa.concat_tables([with_notes(scores(), {3: "changed"}), more]))
    work.ran()
    metrics = operation(work)["operationMetrics"]
    assert operation(work)["operation"] == "MERGE"
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (1, 1)
    assert metrics["num_source_rows"] == 601
    after = rows(work)
    assert after.pop(9_999)["touched"] in (True, False)
    assert after.pop(1_003) == before.pop(1_003) | {"note": "changed"}
    assert after == before


def test_merging_the_same_rows_again_rewrites_nothing(merging: Work) -> None:
    work = merging
    first = work.ran()
    files = set(work.delta().file_uris())
    again = work.ran("run", "--force")
    assert again["run_id"] != first["run_id"]
    assert set(work.delta().file_uris()) == files
    assert again["outputs"]["out/rows"] == 1  # which says who was here
    assert again["run_id"] in operation(work)["userMetadata"]
    assert work.redcal("run").out.startswith("nothing to do")


def test_ids_to_merge_on_are_looked_at_first(merging: Work) -> None:
    work = merging
    table = scores()
    ids = [
        None if i == 4 else 1_001 if i == 3 else case for i, case in enumerate(range(1_000, 1_600))
    ]
    write(table.set_column(0, "case", pa.array(ids)))
    assert problem(work) == (
        "output.mode: merge needs an id on every row, and no id twice:\n"
        "  null in scores.parquet: 1 id\n"
        "  more than once in scores.parquet: 1 id, first 1001\n"
    )
    work.tree["input"]["id"] = None
    told = work.redcal("run")
    assert (told.code, told.err) == (
        2,
        "redcal run: config.yaml: 1 problem\n  input.id: is required for output.mode: merge\n",
    )


def test_drift_on_merge(merging: Work) -> None:
    work = merging
    work.ran()
    before = rows(work)
    table = scores()
    write(table.drop_columns("note").append_column("ward", pa.array(["w"] * 600)))
    assert problem(work) == (
        "output.table: out/rows is there with other columns than would be written:\n"
        "  new: 'ward', string\n"
        "  missing: 'note', string\n"
        "  (output.schema: evolve adds new columns and leaves missing ones empty)\n"
    )
    work.tree["output"]["schema"] = "evolve"
    work.ran()
    assert rows(work) == {case: row | {"ward": "w"} for case, row in before.items()}
    write(table.set_column(0, "case", table["case"].cast(pa.string())))
    assert problem(work).endswith(
        "  of another type: 'case' is long, would be string\n"
        "  (mode: merge cannot change this; name another output.table)\n"
    )


NAMES = ['say "it"', "back`tick", "a b", "d.o.t", "Ünïcode ✓", "semi;colon", "UPPER"]


@pytest.mark.slow
def test_columns_by_any_name_are_merged(merging: Work) -> None:
    work = merging
    table = scores()
    for name in NAMES:
        table = table.append_column(name, table["note"])
    table = table.rename_columns(
        ['the `id` "of" a.case' if n == "case" else n for n in table.column_names]
    )
    work.tree["input"]["id"] = id = 'the `id` "of" a.case'
    write(table)
    work.ran()
    before = {row[id]: row for row in work.table().to_pylist()}
    place = table.schema.get_field_index(NAMES[1])
    new = ["new", *table[NAMES[1]].to_pylist()[1:]]
    write(table.set_column(place, NAMES[1], pa.array(new)))
    work.ran()
    assert operation(work)["operationMetrics"]["num_target_rows_updated"] == 1
    after = {row[id]: row for row in work.table().to_pylist()}
    before[1_000][NAMES[1]] = "new"
    assert after == before


# --- append ---------------------------------------------------------------------------------------


@pytest.fixture
def appending(work: Work) -> Work:
    work.tree["output"]["mode"] = "append"
    return work


def test_appended_rows_name_their_run(appending: Work) -> None:
    work = appending
    one = work.ran()
    first = work.table()
    assert first.column_names[:6] == scores().column_names
    assert set(first["run_id"].to_pylist()) == {one["run_id"]}
    write(scores(100))
    two = work.ran()
    assert two["outputs"]["out/rows"] == 1
    assert work.delta().metadata().partition_columns == ["run_id"]
    both = work.table()
    parts = [r["run_id"] for r in both.to_pylist()]
    assert (parts.count(one["run_id"]), parts.count(two["run_id"])) == (600, 100)
    kept = [row for row in both.to_pylist() if row["run_id"] == one["run_id"]]
    assert sorted(kept, key=lambda r: r["case"]) == sorted(
        first.to_pylist(), key=lambda r: r["case"]
    )


@pytest.mark.slow
def test_evaluating_after_a_fit_takes_the_rows_of_the_last_run_that_wrote_some(
    appending: Work,
) -> None:
    appending.ran()
    appending.ran("fit", "--set", "reconcile.eta=0.02")
    told = appending.redcal("evaluate", "--json")
    assert told.code == 0, told.err
    assert told.json["splits"]["fit"]["before"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overwrite", "merge"])
def test_a_run_that_another_one_overtakes_writes_its_rows_after_it(
    work: Work, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    work.tree["output"]["mode"] = mode
    work.ran()
    Path("other.yaml").write_text(Path("config.yaml").read_text("utf-8"), "utf-8")
    extended = LocalBackend._extended
    meanwhile: list[Any] = []

    def overtaken(self: LocalBackend, *given: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        yield from extended(self, *given, **how)
        if not meanwhile:
            other = start("run", "--json", "--set", "reconcile.eta=0.2", config="other.yaml")
            meanwhile.append(other.ended())

    monkeypatch.setattr(LocalBackend, "_extended", overtaken)
    mine = work.ran("run", "--set", "reconcile.eta=0.02")
    [(code, out, err)] = meanwhile
    assert code == 0, err
    assert mine["outputs"]["out/rows"] == json.loads(out)["outputs"]["out/rows"] + 1
    monkeypatch.undo()
    monkeypatch.chdir(work.folder)
    found = work.table().sort_by("case").to_pylist()
    work.tree["output"] = {"table": "fresh/rows"}
    work.ran("run", "--set", "reconcile.eta=0.02")
    assert found == work.table("fresh/rows").sort_by("case").to_pylist()


def test_appending_with_partitions_of_ones_own(appending: Work) -> None:
    work = appending
    work.tree["output"]["partition_by"] = ["fold"]
    work.ran()
    assert work.delta().metadata().partition_columns == ["run_id", "fold"]
    assert len(rows(work)) == 600


def test_a_table_that_was_not_made_for_appending(appending: Work) -> None:
    work = appending
    work.tree["output"]["mode"] = "overwrite"
    work.ran()
    work.tree["output"] |= {"mode": "append", "schema": "evolve"}
    assert problem(work) == (
        "output.table: out/rows is there with other columns than would be written:\n"
        "  new: 'run_id', string\n"
        "  partitioned by: nothing, would be 'run_id'\n"
        "  (mode: append cannot change this; name another output.table)\n"
    )


def test_an_input_that_has_a_run_id_already(appending: Work) -> None:
    work = appending
    write(scores().append_column("Run_Id", pa.array(["x"] * 600)))
    assert problem(work) == (
        "output.mode: append adds a column 'run_id', and the rows have one already: rename it in "
        "the input\n"
    )


@pytest.mark.slow
def test_drift_on_append(appending: Work) -> None:
    work = appending
    one = work.ran()
    write(scores(100).append_column("ward", pa.array(["w"] * 100)))
    assert problem(work) == (
        "output.table: out/rows is there with other columns than would be written:\n"
        "  new: 'ward', string\n"
        "  (output.schema: evolve adds new columns and leaves missing ones empty)\n"
    )
    work.tree["output"]["schema"] = "evolve"
    work.ran()
    wards = [(row["run_id"] == one["run_id"], row["ward"]) for row in work.table().to_pylist()]
    assert sorted(set(wards), key=str) == [(False, "w"), (True, None)]


# --- for all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_a_table_of_another_kind_is_not_touched(work: Work, mode: str) -> None:
    write_deltalake("out/rows", pa.table({"case": [1, 2], "x": ["a", "b"]}))
    work.tree["output"]["mode"] = mode
    told = problem(work)
    assert "  new: 'outcome', string\n" in told
    assert "  missing: 'x', string\n" in told
    assert work.delta().version() == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_the_mode_is_recorded(work: Work, mode: str) -> None:
    work.tree["output"] |= {"mode": mode, "schema": "evolve", "partition_by": ["fold"]}
    work.ran()
    recorded = json.loads(work.runs()[0]["config"])["output"]
    assert (recorded["mode"], recorded["schema"], recorded["partition_by"]) == (
        mode,
        "evolve",
        ["fold"],
    )


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_what_a_run_has_written_is_not_written_again(work: Work, mode: str) -> None:
    work.tree["output"]["mode"] = mode
    work.ran()
    config = load_config("config.yaml")
    store = DeltaRsStore()
    job = Job(config, LocalBackend(store))
    pair = job.pair_of(job.find())
    row = job.find()
    before = work.table().sort_by("case")
    rows = before.num_rows
    again = replace(row.commit, again=True)  # as a resumed run says it
    read: list[int] = []
    made = pair, target_of(config), UNKNOWN
    found = job.work.write_rows(job.input, made, again, read.append, lambda: read.append(0))
    assert (found, read) == ((0, rows), [])
    assert work.table().sort_by("case") == before
    assert work.delta().version() == 0
    if mode == "append":  # looks even if nobody says so
        job.work.write_rows(job.input, made, row.commit, read.append, lambda: None)
        assert work.delta().version() == 0

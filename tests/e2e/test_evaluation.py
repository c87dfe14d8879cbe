"""`redcal evaluate` notices any change to anything that a run wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv

from redcal_spark import __version__
from redcal_spark.cli import main
from redcal_spark.runs.evaluation import side_checks
from redcal_spark.runs.ledger import SCHEMA, cell_digests
from tests.e2e.work import CLASSES, Work, configuration, scores, write
from tests.tampering import KEYS, change, every_change, every_column, other, read, remove, tamper
from tests.tampering import write as put

PLACE = 7  # of the row that is changed


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(autouse=True)
def no_report(work: Work) -> None:
    """Nobody reads it here."""
    work.tree["output"]["report"] = None


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, whose tables every test copies."""
    folder = tmp_path_factory.mktemp("ran")
    with inside(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
        write(scores(200))
        tree = configuration()
        tree["output"]["report"] = None
        Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        assert main(["run", "-c", "config.yaml", "--quiet"]) == 0
    return folder


def told_of(work: Work, *more: str) -> Any:
    told = work.redcal("evaluate", "--json", *more)
    assert told.err == ""
    return told.code, told.json


def test_every_column_and_rows_that_come_and_go(ran: Path, work: Work) -> None:
    """One evaluation of many changes, each in a row of its own, of all tables but the ledger."""
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    done = [one for name in KEYS if name != "rows_runs" for one in every_column("out", name)]
    code, told = told_of(work)
    assert code == 1
    assert [one for one in done if not one.named_in(told)] == []


@pytest.mark.parametrize("how", ["remove", "double", "run_id", "fit_rows", "holder", "certificate"])
def test_the_ledger_counts(ran: Path, work: Work, how: str) -> None:
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    column = None if how in ("remove", "double") else how
    done = tamper("out/rows_runs", "rows_runs", how if column is None else "change", column, 0)
    code, told = told_of(work)
    assert code == 1
    assert done.named_in(told)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_every_cell_and_every_row_counts(ran: Path, work: Work, name: str) -> None:
    path, missed = f"out/{name}", []
    place = 0 if name == "rows_runs" else PLACE
    for how, column in every_change(str(ran / path), name):
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree(ran, ".", dirs_exist_ok=True)
        done = tamper(path, name, how, column, place)
        code, told = told_of(work)
        if code != 1 or not done.named_in(told):
            missed.append((how, column, code))
    assert missed == []


def test_an_untouched_run_is_as_it_must_be(ran: Path, work: Work) -> None:
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    code, told = told_of(work)
    assert (code, told["result"]) == (0, "ok")
    assert {one["what"]: one["result"] for one in told["checked"]} == dict.fromkeys(
        ("rows", "patches", "history", "metrics", "ledger", "certificate"), "ok"
    )


@pytest.mark.slow
def test_who_rewrites_the_digests_too_is_noticed_but_where_the_page_says(
    ran: Path, work: Work
) -> None:
    unnoticed = []
    for column in SCHEMA.names:
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree(ran, ".", dirs_exist_ok=True)
        change("out/rows_runs", "rows_runs", column, 0)
        table = read("out/rows_runs")
        [row] = table.to_pylist()
        row["digests"] = json.dumps(cell_digests(row))
        put("out/rows_runs", pa.Table.from_pylist([row], table.schema))
        if work.redcal("evaluate").code == 0:
            unnoticed.append(column)
    page = Path(__file__).parents[2] / "docs/reference/evaluate.md"
    part = page.read_text("utf-8").split("to who changes the digest, too")[1].split("##")[0]
    assert unnoticed == re.findall(r"`(\w+)`", part)


# --- other ways to write, and to lose -------------------------------------------------------------


def found(told: Any, what: str = "rows") -> list[Any]:
    [one] = [checked for checked in told["checked"] if checked["what"] == what]
    return list(one["findings"])


def change_row(column: str, place: int = PLACE, path: str = "out/rows") -> Any:
    """Changes a cell of a row of the newest version; returns the row's id."""
    return change(path, "rows", column, place).row["case"]


def as_delta(table: pa.Table, name: str = "scores") -> None:
    write_deltalake(name, table, mode="overwrite")


def test_a_run_of_an_input_that_moved_on_is_checked_against_what_it_read(work: Work) -> None:
    as_delta(scores(200))
    work.tree["input"]["table"] = "scores"
    work.ran()
    as_delta(scores(150, seed=9))
    assert told_of(work)[0] == 0
    case = change_row("note")
    code, told = told_of(work)
    assert code == 1
    [one] = found(told)
    assert (one["column"], one["row"]) == ("note", {"case": case})


def test_an_input_that_is_gone_leaves_something_unchecked(work: Work) -> None:
    as_delta(scores(200))
    work.tree["input"]["table"] = "scores"
    work.ran()
    as_delta(scores(150, seed=9))
    DeltaTable("scores").vacuum(0, dry_run=False, enforce_retention_duration=False)
    code, told = told_of(work)
    assert (code, told["result"]) == (3, "not checkable")
    results = {one["what"]: one["result"] for one in told["checked"]}
    assert results == {
        "rows": "not checkable", "patches": "ok", "history": "ok", "metrics": "ok",
        "ledger": "not checkable", "certificate": "ok",
    }  # fmt: skip
    [rows] = [one for one in told["checked"] if one["what"] == "rows"]
    assert "that all rows of the input are there and no others" in rows["not_checked"][0]
    assert "VACUUM" in rows["not_checked"][0]
    case = change_row("triage_2_after")
    code, told = told_of(work)
    assert code == 1
    assert [(one["column"], one["row"]) for one in found(told)] == [
        ("triage_2_after", {"case": case})
    ]


def test_a_row_that_went_with_the_input_is_missed_in_the_counts(work: Work) -> None:
    as_delta(scores(200))
    work.tree["input"]["table"] = "scores"
    work.ran()
    shutil.rmtree("scores")
    assert told_of(work)[0] == 3
    remove("out/rows", "rows", PLACE)
    code, told = told_of(work)
    assert code == 1
    assert "rows" in {one["column"] for one in found(told, "ledger")}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_rows_that_others_wrote_are_not_of_the_run(work: Work, mode: str) -> None:
    work.tree["output"]["mode"] = mode
    write(scores(200))
    first = work.ran()["run_id"]
    write(scores(260, seed=9).slice(50))
    work.ran()
    assert told_of(work)[0] == 0
    code, told = told_of(work, "--run", first)
    if mode == "merge":  # its input, a file, is another one by now
        assert code == 3
        assert "other runs have written out/rows since" in told["notes"][0]
    cases = read("out/rows")["case"].to_pylist()
    case = change_row("a_reconciled", cases.index(1255))
    assert case == 1255
    code, told = told_of(work)
    assert code == 1
    assert [(one["column"], one["row"]) for one in found(told)] == [
        ("a_reconciled", {"case": 1255})
    ]


@pytest.mark.slow
def test_rows_that_a_merge_left_alone_are_as_they_were(work: Work) -> None:
    work.tree["output"]["mode"] = "merge"
    write(scores(200))
    work.ran()
    write(scores(260, seed=9).slice(50))
    work.ran()
    cases = read("out/rows")["case"].to_pylist()
    change_row("b_reconciled", cases.index(1007))  # not in the second run's input
    code, told = told_of(work)
    assert code == 1
    assert [(one["column"], one["row"]) for one in found(told)] == [
        ("b_reconciled", {"case": 1007})
    ]
    DeltaTable("out/rows").restore(1)
    assert told_of(work)[0] == 0
    remove("out/rows", "rows", cases.index(1007))
    code, told = told_of(work)
    assert (code, found(told)[0]["problem"]) == (1, "missing")


def test_the_run_of_an_appended_row_counts(work: Work) -> None:
    work.tree["output"]["mode"] = "append"
    write(scores(200))
    work.ran()
    case = change_row("run_id")
    code, told = told_of(work)
    assert code == 1
    assert [(one["column"], one["row"]) for one in found(told)] == [("run_id", {"case": case})]


@pytest.mark.slow
def test_without_an_id_whole_rows_are_compared(work: Work) -> None:
    del work.tree["input"]["id"]
    table = scores(200).drop_columns(["case"])
    write(pa.concat_tables([table, table.slice(3, 1)]))  # one of them twice
    work.ran()
    assert told_of(work)[0] == 0
    for column in ("a", "b_reconciled", "beds_agree", "outcome"):
        before = read("out/rows")
        rows = before.to_pylist()
        kind = before.schema.field(column).type
        note = rows[PLACE]["note"]
        rows[PLACE][column] = other(rows[PLACE][column], kind)
        put("out/rows", pa.Table.from_pylist(rows, before.schema))
        code, told = told_of(work)
        assert code == 1
        [one] = found(told)
        assert (one["problem"], one["column"]) == ("changed", column)
        assert one["row"]["note"] == note
        put("out/rows", before)
    assert told_of(work)[0] == 0
    rows = read("out/rows").to_pylist()
    gone = next(i for i, row in enumerate(rows) if row["note"] == "n3")
    put("out/rows", pa.Table.from_pylist(rows[:gone] + rows[gone + 1 :], before.schema))
    code, told = told_of(work)
    assert (code, [one["problem"] for one in found(told)]) == (1, ["missing"])


def test_ids_that_are_there_twice(work: Work) -> None:
    table = scores(200)
    same = table.set_column(0, "case", pa.array([1_000 + i // 2 for i in range(200)]))
    write(same)
    work.ran()
    assert told_of(work)[0] == 0
    case = change_row("touched")
    code, told = told_of(work)
    assert (code, [(one["column"], one["row"]) for one in found(told)]) == (
        1,
        [("touched", {"case": case})],
    )


def test_rows_of_one_id_that_exchange_a_cell(work: Work) -> None:
    """No column has other values under that id, and no label is touched: only whole rows tell."""
    table = scores(200)
    write(table.set_column(0, "case", pa.array([1_000 + i // 2 for i in range(200)])))
    work.ran()
    rows = read("out/rows")
    plain = rows.to_pylist()
    one, two = (i for i, row in enumerate(plain) if row["case"] == 1_003)
    plain[one]["note"], plain[two]["note"] = plain[two]["note"], plain[one]["note"]
    put("out/rows", pa.Table.from_pylist(plain, rows.schema))
    code, told = told_of(work)
    assert code == 1
    assert [(one["column"], one["row"]) for one in found(told)] == [("note", {"case": 1_003})] * 2


@pytest.mark.slow
def test_a_variable_that_has_another_value_by_now(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger keeps names, not values: what the run read and split cannot be made again."""
    monkeypatch.setenv("DRAW", "first")
    work.tree["input"]["split"] = {"holdout_fraction": 0.5, "salt": "${DRAW}"}
    work.ran()
    assert told_of(work)[0] == 0
    monkeypatch.setenv("DRAW", "second")
    code, told = told_of(work)
    assert code == 3
    assert [one["findings"] for one in told["checked"]] == [[]]
    assert "set DRAW as it was then" in json.dumps(told["checked"])
    monkeypatch.setenv("DRAW", "first")
    change("out/rows_runs", "rows_runs", "config_digest", 0)
    assert told_of(work)[0] == 1


@pytest.mark.slow
def test_times_in_nanoseconds(work: Work) -> None:
    """Delta tables hold microseconds: whole ones are kept, others are refused, none is cut off."""

    def with_moments(step: int) -> pa.Table:
        moments = pa.array([-1_234_567_000 + step * i for i in range(200)], pa.timestamp("ns"))
        return scores(200).append_column("moment", moments)

    write(with_moments(1_000))
    work.ran()
    rows = DeltaTable("out/rows").to_pyarrow_table().sort_by("case")
    assert rows["moment"].cast(pa.int64()).to_pylist()[:2] == [-1_234_567, -1_234_566]
    assert told_of(work)[0] == 0
    change("out/rows", "rows", "moment", PLACE)
    assert told_of(work)[0] == 1
    write(with_moments(500))
    told = work.redcal("run")
    assert told.code == 2
    assert "column 'moment' has type timestamp[ns], with values that timestamp[us]" in told.err


def test_a_fit_without_rows(work: Work) -> None:
    work.ran("fit")
    code, told = told_of(work)
    assert code == 0
    assert [one["what"] for one in told["checked"]] == [
        "patches", "history", "metrics", "ledger", "certificate",
    ]  # fmt: skip
    change("out/rows_history", "rows_history", "brier", PLACE)
    assert told_of(work)[0] == 1


@pytest.mark.slow
def test_what_was_applied_is_found_by_its_fingerprint(work: Work) -> None:
    work.ran("fit")
    work.ran("fit", "--set", "reconcile.eta=0.05")
    first = work.runs()[0]["run_id"]
    work.ran("apply", "--run", first)
    code, told = told_of(work)
    assert code == 0, told
    assert f"the model is of run {first}" in told["notes"][0]
    assert [one["what"] for one in told["checked"]] == [
        "rows", "metrics", "ledger", "patches", "history", "metrics", "ledger", "certificate",
    ]  # fmt: skip
    case = change_row("beds_1_after")
    code, told = told_of(work)
    assert (code, found(told)[0]["row"]) == (1, {"case": case})


@pytest.mark.slow
def test_a_model_from_a_file_must_be_shown(work: Work) -> None:
    work.tree["output"]["table"] = "elsewhere/rows"
    work.ran("fit")
    assert work.redcal("export", "-o", "model.json").code == 0
    work.tree["output"]["table"] = "out/rows"
    work.ran("apply", "--model", "model.json")
    code, told = told_of(work)
    assert code == 3
    assert "redcal evaluate --model FILE" in told["checked"][0]["not_checked"][0]
    code, told = told_of(work, "--model", "model.json")
    assert code == 0, told
    case = change_row("a_reconciled")
    code, told = told_of(work, "--model", "model.json")
    assert (code, found(told)[0]["row"]) == (1, {"case": case})


@pytest.mark.slow
def test_bad_rows_that_were_skipped_and_names_of_ones_own(work: Work) -> None:
    table = scores(200)
    bad = [None if i in (3, 50) else row for i, row in enumerate(table["a"].to_pylist())]
    bad[8] = [0.5, 0.5]
    write(table.set_column(4, "a", pa.array(bad, pa.list_(pa.float64()))))
    work.tree["input"]["on_bad_rows"] = "skip"
    work.tree["output"]["suffix"] = "_new"
    work.ran()
    assert told_of(work)[0] == 0
    for column in ("valid_new", "touched_new", "a_new", "triage_1_before_new"):
        before = read("out/rows")
        case = change_row(column, 3)
        code, told = told_of(work)
        assert code == 1
        assert (column, {"case": case}) in [(one["column"], one["row"]) for one in found(told)]
        put("out/rows", before)


def test_joined_tables(work: Work) -> None:
    table = scores(200)
    as_delta(table.select(["case", "outcome", "fold", "note", "a"]), "main")
    as_delta(table.select(["case", "b"]), "other")
    work.tree["input"] |= {"table": "main", "model_2": {"table": "other", "columns": "b"}}
    work.ran()
    as_delta(table.select(["case", "b"]).slice(0, 20), "other")
    assert told_of(work)[0] == 0
    case = change_row("b")
    code, told = told_of(work)
    assert (code, [(one["column"], one["row"]) for one in found(told)]) == (
        1,
        [("b", {"case": case})],
    )


def test_a_release_that_never_wrote_the_run(work: Work) -> None:
    """The cell alone is named, not what a run of that release would have in other cells."""
    work.ran()
    ledger = read("out/rows_runs")
    place = ledger.schema.get_field_index("package_version")
    put("out/rows_runs", ledger.set_column(place, "package_version", pa.array(["0.1.9"])))
    code, told = told_of(work)
    assert code == 1
    assert [one["column"] for one in found(told, "ledger")] == ["package_version"]


def test_what_the_run_has_warned_of_is_not_told_again(work: Work) -> None:
    table = scores(200)
    as_delta(table.select(["case", "outcome", "fold", "note", "a"]), "main")
    as_delta(table.select(["case", "b"]).slice(0, 190), "other")
    work.tree["input"] |= {"table": "main", "model_2": {"table": "other", "columns": "b"}}
    work.tree["input"]["join"] = "inner"
    for command in ("audit", "run"):
        told = work.redcal(command)
        assert told.code == 0 and "the join leaves out 10 of 200 rows" in told.err
        assert "JoinWarning" not in told.err  # a sentence, not a place in the code
    told = work.redcal("evaluate")
    assert told.code == 0 and "everything matches" in told.out
    assert "join" not in told.err and "Warning" not in told.err


@pytest.mark.slow
def test_patches_that_the_guard_left_out_count_too(work: Work) -> None:
    write(scores(300, seed=7))
    work.tree["reconcile"] |= {"algorithm": "dc_then_redcal", "beta": 1e-5, "max_steps": 60}
    work.tree["reconcile"]["guard"] = "best_prefix"
    told = work.redcal("run", "--json")
    assert told.json["status"] == "cut"
    assert told_of(work)[0] == 0
    steps = read("out/rows_patches")["step"].to_pylist()
    assert max(steps) >= told.json["patches"]
    done = change("out/rows_patches", "rows_patches", "rows", steps.index(max(steps)))
    code, told = told_of(work)
    assert code == 1
    assert done.named_in(told)


@pytest.mark.slow
def test_a_later_run_is_no_tampering_and_an_earlier_one_has_its_own_version(work: Work) -> None:
    first = work.ran()["run_id"]
    work.ran("run", "--set", "reconcile.eta=0.05")
    code, told = told_of(work, "--set", "reconcile.eta=0.05")
    assert code == 0
    code, told = told_of(work)  # by the configuration of the run that wrote the rows
    assert code == 0
    code, told = told_of(work, "--run", first)
    assert code == 0
    assert "other runs have written out/rows since" in told["notes"][0]
    change_row("note")
    code, told = told_of(work, "--set", "reconcile.eta=0.05")
    assert code == 1
    assert "was not written by a run of ours" in told["notes"][0]
    told = work.redcal("evaluate", "--run", "nope")
    assert (told.code, told.out) == (2, "")
    assert "no run 'nope' in out/rows_runs" in told.err


def test_a_configuration_that_is_not_the_runs_own_is_named(ran: Path, work: Work) -> None:
    """The run is right by its own; who edits the file would think that of the file."""
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    assert told_of(work)[1]["notes"] == []
    run = work.runs()[0]["run_id"]
    work.tree["losses"]["triage"]["costs"][0][2] = 7.0
    code, told = told_of(work, "--set", "reconcile.eta=0.05")
    assert code == 0
    assert told["notes"] == [
        f"this configuration is not what run {run} was made with: losses.triage.costs[0][2] is "
        "7.0, was 9.0; reconcile.eta is 0.05, was 0.01. Checked with the run's own, from the ledger"
    ]


def test_rows_of_a_run_that_never_was_are_named(ran: Path, work: Work) -> None:
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    never = "20200101T000000-aaaaaa"
    for name in ("rows_patches", "rows_history", "rows_metrics", "rows_runs"):
        table = read(f"out/{name}")
        put(f"out/{name}", pa.concat_tables([table, _of_run(table.slice(0, 1), never)]))
    code, told = told_of(work)
    assert code == 0
    assert told["notes"] == [
        f"out/rows_runs: the row of run {never}, which was not checked, is not as it was written: "
        "'run_id'"
    ]
    table = read("out/rows_patches")
    put("out/rows_patches", pa.concat_tables([table, _of_run(table.slice(0, 1), "gone")]))
    code, told = told_of(work)
    assert (code, told["notes"][1:]) == (
        0,
        ["out/rows_patches has 1 row of run gone, which is not in the ledger"],
    )


def _of_run(table: pa.Table, run_id: str) -> pa.Table:
    place = table.column_names.index("run_id")
    return table.set_column(place, table.field(place), pa.array([run_id]))


def test_a_file_that_changed_at_its_begin_is_suspected_too(work: Work) -> None:
    """Its size, time and end are what they were: nobody can tell that it is another file."""
    table = scores(1_200)
    flat = {f"{m}{k}": [x[k] for x in table[m].to_pylist()] for m in "ab" for k in range(4)}
    columns = pa.table({**{n: table[n] for n in ("case", "outcome", "fold", "note")}, **flat})
    csv.write_csv(columns, "in.csv")
    given = work.tree["input"]
    given |= {"table": "in.csv"} | {
        f"model_{i}": [f"{m}{k}" for k in range(4)] for i, m in ((1, "a"), (2, "b"))
    }
    work.ran()
    before, text = os.stat("in.csv"), Path("in.csv").read_text("utf-8")
    Path("in.csv").write_text(text.replace(',"n5",', ',"m5",', 1), "utf-8")
    os.utime("in.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
    code, told = told_of(work)
    assert code == 1
    assert told["notes"] == [
        "either out/rows or in.csv was changed: 'note' is carried from there, and of a file only "
        "size, time of change and a digest of its last 64 KiB are known"
    ]


def test_scores_that_cannot_be_measured_leave_the_certificate_open(ran: Path, work: Work) -> None:
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    table = read("out/rows")
    column = table["a_reconciled"].to_pylist()
    column[PLACE] = None
    place = table.column_names.index("a_reconciled")
    put("out/rows", table.set_column(place, table.field(place), pa.array(column)))
    code, told = told_of(work)
    [one] = [checked for checked in told["checked"] if checked["what"] == "certificate"]
    assert (code, one["result"]) == (1, "not checkable")
    assert one["not_checked"][0].startswith("sums of the written rows: ")


def test_people_are_told_what_was_checked(ran: Path, work: Work) -> None:
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    lines = work.redcal("evaluate").out.splitlines()
    assert "  ok            history     out/rows_history" in lines
    case = change_row("beds_agree")
    told = work.redcal("evaluate")
    assert told.code == 1
    assert "  differs       rows        out/rows" in told.out.splitlines()
    assert f"out/rows: column 'beds_agree', row case = {case}: is " in told.out
    told = work.redcal("evaluate", "--quiet")
    assert (told.code, told.out) == (1, "")
    assert told.err.splitlines()[0].endswith(": something differs from a repeat of the run")
    assert f"out/rows: column 'beds_agree', row case = {case}: is " in told.err
    assert "ok " not in told.err


def test_what_an_earlier_release_did_not_write_is_not_checked(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column and a measure of later, in the tables of a run that had neither."""
    work.ran()
    history, metrics = (read(f"out/rows_{name}") for name in ("history", "metrics"))
    without = history.drop(["calibration_gap"])
    write_deltalake("out/rows_history", without, mode="overwrite", schema_mode="overwrite")
    put("out/rows_metrics", metrics.filter(pc.not_equal(metrics["name"], "calibration_gap")))
    assert work.redcal("evaluate").code == 1
    monkeypatch.setattr(side_checks, "__version__", "9.9")
    told = work.redcal("evaluate")
    assert told.code == 3, told.out
    release = f"release {__version__} wrote none"
    assert f"not checked: out/rows_history, column 'calibration_gap': {release}" in told.out
    assert f"not checked: out/rows_metrics, measure 'calibration_gap': {release}" in told.out
    strange = without.append_column("strange", pa.nulls(len(without), pa.int64()))
    write_deltalake("out/rows_history", strange, mode="overwrite", schema_mode="overwrite")
    told = work.redcal("evaluate")
    assert told.code == 3 and "unexpected" not in told.err  # an empty column says nothing


def test_a_statement_that_is_violated_is_no_difference(work: Work) -> None:
    """Of a loss that cannot change it is violated that it fell; all was written so."""
    flat = {"actions": ["stay", "go"], "costs": [[2.0] * len(CLASSES)] * 2}
    work.tree["losses"]["flat"] = flat
    work.ran()
    told = work.redcal("evaluate")
    assert told.code == 1
    words = "everything matches a repeat of the run, and its certificate has violated statements"
    assert words in told.out and "something differs" not in told.out
    change_row("beds_agree")
    assert "something differs" in work.redcal("evaluate").out

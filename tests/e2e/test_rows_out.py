"""Which columns and which rows are written: `output.columns` and `output.rows`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.e2e.test_output_modes import problem
from tests.e2e.work import Work, scores, write

NEW = [
    *("a_reconciled", "b_reconciled"),
    *("triage_1_before", "triage_2_before", "triage_1_after", "triage_2_after", "triage_agree"),
    *("beds_1_before", "beds_2_before", "beds_1_after", "beds_2_after", "beds_agree"),
    *("touched", "split"),
]


def whole(work: Work) -> pa.Table:
    """The table as it is without any choice, made in a place of its own."""
    kept = dict(work.tree["output"])
    work.tree["output"] = {"table": "whole/rows"}
    work.ran()
    work.tree["output"] = kept
    return work.table("whole/rows").sort_by("case")


def evaluated(work: Work, *arguments: str) -> Any:
    told = work.redcal("evaluate", "--json", *arguments)
    assert told.code == 0, told.out + told.err
    return told.json


def tampered(work: Work) -> None:
    """Rows with one cell changed are noticed."""
    rows = work.table()
    place = rows.schema.get_field_index("touched")
    flags = rows["touched"].to_pylist()
    changed = pa.array([not flags[0], *flags[1:]])
    write_deltalake("out/rows", rows.set_column(place, "touched", changed), mode="overwrite")
    assert work.redcal("evaluate").code == 1


# --- columns --------------------------------------------------------------------------------------


def test_only_the_columns_that_are_named_are_carried_in_the_order_of_the_input(work: Work) -> None:
    must = whole(work)
    work.tree["output"]["columns"] = ["note", "case"]
    work.ran()
    rows = work.table().sort_by("case")
    assert rows.column_names == ["case", "note", *NEW]
    assert rows == must.select(rows.column_names)
    evaluated(work)
    assert work.redcal("explain", "--id", "1003").code == 0
    assert work.redcal("report").code == 0
    tampered(work)


@pytest.mark.slow
def test_rows_without_their_id_are_compared_as_a_whole(work: Work) -> None:
    must = whole(work)
    work.tree["output"]["columns"] = ["note"]
    work.ran()
    assert work.table().sort_by("note") == must.sort_by("note").select(["note", *NEW])
    evaluated(work)
    tampered(work)


def test_columns_that_are_not_carried_neither_clash_nor_need_a_place(work: Work) -> None:
    write(scores().append_column("touched", pa.array(range(600), pa.duration("s"))))
    assert "duration" in problem(work)
    work.tree["output"]["columns"] = ["case"]
    work.ran()
    assert work.table().column_names == ["case", *NEW]
    evaluated(work)


def test_columns_that_cannot_be_carried_are_refused(work: Work) -> None:
    work.tree["output"]["columns"] = ["case", "nota", "zz"]
    assert problem(work) == (
        "output.columns: no column 'nota', 'zz' in scores.parquet; it has: case, outcome, fold, "
        "note, a, b\n"
    )
    work.tree["output"] |= {"columns": ["note"], "mode": "merge"}
    assert "output.columns: must have 'case' (input.id): output.mode: merge" in problem(work)
    work.tree["output"] |= {"columns": ["note"], "mode": "overwrite", "partition_by": ["fold"]}
    told = problem(work)
    assert told.startswith("output.partition_by: no column 'fold'; there are: note, a_reconciled")
    assert told.endswith("(output.columns leaves out others)\n")
    del work.tree["output"]["partition_by"]
    work.tree["output"]["columns"] = ["note", "note"]
    assert "output.columns[1]: is the same as columns[0]" in problem(work)


def test_an_input_that_is_gone_and_was_not_carried_cannot_be_checked(work: Work) -> None:
    work.tree["output"]["columns"] = ["case"]
    work.ran()
    Path("scores.parquet").unlink()
    told = work.redcal("evaluate")
    assert told.code == 3
    assert "the written rows cannot replace it" in told.out


# --- touched rows ---------------------------------------------------------------------------------


def touched(rows: pa.Table) -> pa.Table:
    return rows.filter(rows["touched"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_only_rows_whose_scores_changed_are_written(work: Work, mode: str) -> None:
    must = whole(work)
    kept = touched(must)
    assert 0 < kept.num_rows < must.num_rows
    work.tree["output"] |= {"rows": "touched", "mode": mode}
    ran = work.ran()
    rows = work.table().sort_by("case")
    assert rows.select(must.column_names) == kept
    row = next(row for row in work.runs() if row["run_id"] == ran["run_id"])
    assert row["rows"] == must.num_rows
    assert json.loads(row["counters"])["rows_written"] == kept.num_rows
    evaluated(work)
    if mode == "overwrite":
        tampered(work)


def test_a_row_that_is_missing_or_not_touched_is_noticed(work: Work) -> None:
    must = whole(work)
    work.tree["output"]["rows"] = "touched"
    work.ran()
    rows = work.table()
    write_deltalake("out/rows", rows.slice(1), mode="overwrite")
    assert "is missing" in work.redcal("evaluate").out
    other = must.filter(pc.invert(must["touched"])).slice(0, 1)
    write_deltalake("out/rows", pa.concat_tables([rows, other]), mode="overwrite")
    assert "must not be there" in work.redcal("evaluate").out


@pytest.mark.slow
def test_apply_counts_what_it_wrote(work: Work) -> None:
    kept = touched(whole(work))
    work.tree["output"]["rows"] = "touched"
    work.ran("fit")
    run = work.ran("apply")["run_id"]
    row = next(row for row in work.runs() if row["run_id"] == run)
    assert (row["rows"], work.table().num_rows) == (600, kept.num_rows)
    counters = json.loads(row["counters"])
    assert (counters["rows_scanned"], counters["rows_written"]) == (600, kept.num_rows)
    evaluated(work)


@pytest.mark.slow
def test_a_merge_removes_rows_that_are_touched_no_more(work: Work) -> None:
    work.tree["output"] |= {"rows": "touched", "mode": "merge"}
    table = scores()
    work.ran()
    first = set(work.table()["case"].to_pylist())
    # rows of others stay; those of the input that are touched no more go
    gone = sorted(first)[:5]
    agreed = [
        a if case in gone else b
        for case, a, b in zip(*(table[n].to_pylist() for n in ("case", "a", "b")), strict=True)
    ]
    write(
        table.set_column(5, "b", pa.array(agreed, table["b"].type)).filter(
            pc.not_equal(table["case"], sorted(first)[5])
        )
    )
    work.ran()
    rows = work.table()
    must = touched(whole(work))
    left = sorted(first)[5]  # the input has it no more: a merge has no business with it
    assert set(rows["case"].to_pylist()) == {*must["case"].to_pylist(), left}
    assert not {*gone} & {*rows["case"].to_pylist()}
    evaluated(work)


@pytest.mark.slow
def test_bad_rows_are_not_touched(work: Work) -> None:
    table = scores()
    bad = [None if i == 3 else row for i, row in enumerate(table["a"].to_pylist())]
    write(table.set_column(4, "a", pa.array(bad, table["a"].type)))
    work.tree["input"]["on_bad_rows"] = "skip"
    kept = touched(whole(work))
    work.tree["output"]["rows"] = "touched"
    work.ran()
    assert work.table().sort_by("case") == kept
    evaluated(work)


def test_touched_rows_cannot_replace_an_input_that_is_gone(work: Work) -> None:
    work.tree["output"]["rows"] = "touched"
    work.ran()
    Path("scores.parquet").unlink()
    told = work.redcal("evaluate")
    assert told.code == 3
    assert "out/rows has only the rows that were touched" in told.out


def test_both_together_and_nothing_to_touch(work: Work) -> None:
    work.tree["output"] |= {"rows": "touched", "columns": ["case"]}
    work.tree["reconcile"]["eta"] = 1.0
    work.ran()
    assert work.table().num_rows == 0
    assert work.table().column_names == ["case", *NEW]
    assert DeltaTable("out/rows").version() == 0
    evaluated(work)

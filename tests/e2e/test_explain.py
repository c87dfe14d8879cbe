"""`redcal explain`: the row of a run by its id, in the version that the run read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.core.scan import BatchGroup, each_alone
from tests.e2e.work import CLASSES, LOSSES, Work, scores, write

STEP = 23  # every so many rows are looked at


def told(work: Work, id: Any, *arguments: str) -> Any:
    found = work.redcal("explain", "--json", "--id", str(id), *arguments)
    assert found.code == 0, found.err
    return found.json


def check_row(found: Any, out: dict[str, Any]) -> None:
    """The journey ends where the written row is, and begins where it began."""
    (row,) = found["rows"]
    assert (row["id"], row["touched"]) == (out["case"], out["touched"])
    assert row["start"]["scores"] == [out["a"], out["b"]]
    assert row["end"]["scores"] == [out["a_reconciled"], out["b_reconciled"]]
    for when, state in (("before", row["start"]), ("after", row["end"])):
        for loss in state["losses"]:
            assert loss["actions"] == [out[f"{loss['loss']}_{m}_{when}"] for m in (1, 2)]
    for loss in row["end"]["losses"]:
        assert loss["agree"] == out[f"{loss['loss']}_agree"]
    assert [loss["loss"] for loss in row["end"]["losses"]] == list(LOSSES)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["redcal", "dc_then_redcal", "reconcile"])
def test_the_journey_ends_at_the_written_row(work: Work, algorithm: str) -> None:
    work.tree["reconcile"] |= {"algorithm": algorithm, "max_steps": 60}
    if algorithm == "reconcile":
        work.tree["reconcile"]["alpha"] = 0.1
    run = json.loads(work.redcal("run", "--json").out)
    rows = work.table().to_pylist()
    log = work.redcal("log", "--json").lines
    touched = [out for out in rows if out["touched"]]
    untouched = [out for out in rows if not out["touched"]]
    assert touched
    for out in [*touched[::STEP], *untouched[::STEP]]:
        found = told(work, out["case"])
        assert (found["run_id"], found["count"], found["notes"]) == (run["run_id"], 1, [])
        check_row(found, out)
        steps = found["rows"][0]["steps"]
        assert all(log[step["step"]].items() <= step.items() for step in steps)


def test_it_is_told_in_words(work: Work) -> None:
    run = work.ran()
    out = next(row for row in work.table().to_pylist() if row["touched"])
    shown = work.redcal("explain", "--id", str(out["case"]))
    assert shown.code == 0, shown.err
    assert "Before: under " in shown.out
    assert "a would choose " in shown.out
    assert "fitting rows like this" in shown.out
    assert f"of {run['patches']:,} patches touched this row" in shown.out
    spared = next(row for row in work.table().to_pylist() if not row["touched"])
    shown = work.redcal("explain", "--id", str(spared["case"]))
    assert "patches touched this row: " in shown.out
    pair = ReconciledPair.from_json(work.redcal("export", "--json").json)
    row = next(r for r in scores().to_pylist() if r["case"] == out["case"])
    assert pair.explain(row).to_json() == told(work, out["case"])["rows"][0]


def test_ids_that_are_not_there(work: Work) -> None:
    work.ran("fit")
    for id, text in (
        ("77", "explain: scores.parquet has no row with case = '77'"),
        ("x7", "explain: column 'case' holds int64, and 'x7' is none"),
        ("99999999999999999999", "column 'case' holds int64"),
        ("", "column 'case' holds int64"),
    ):
        found = work.redcal("explain", "--id", id)
        assert (found.code, found.out) == (2, "")
        assert text in found.err
    assert work.redcal("explain", "--id", "1000", "--run", "nobody").code == 2
    work.tree["input"]["id"] = None
    found = work.redcal("explain", "--id", "1000", "--run", "latest")
    assert found.code == 2
    assert "input.id is not set" in found.err


def test_before_any_run(work: Work) -> None:
    found = work.redcal("explain", "--id", "1000")
    assert found.code == 2
    assert "no finished run of this configuration" in found.err


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_ids_of_other_types(work: Work, kind: pa.DataType) -> None:
    table = scores()
    ids = table["case"].cast(kind.value_type if pa.types.is_dictionary(kind) else kind)
    if pa.types.is_dictionary(kind):
        ids = ids.dictionary_encode()
    write(table.set_column(0, "case", ids))
    work.ran()
    out = next(row for row in work.table().to_pylist() if row["touched"])
    check_row(told(work, out["case"]), out)


def test_an_id_that_several_rows_have(work: Work) -> None:
    table = scores()
    work.tree["input"] |= {"split": None}
    write(pa.concat_tables([table, table.slice(3, 1), table.slice(3, 1)]))
    work.ran("fit")
    found = told(work, 1003)
    assert (found["count"], len(found["rows"])) == (3, 3)
    assert found["notes"] == ["3 rows have case = 1003: each of them is explained"]
    assert found["rows"][0] == found["rows"][1]
    write(pa.concat_tables([table, *[table.slice(3, 1)] * 9]))
    found = told(work, 1003)
    assert (found["count"], len(found["rows"])) == (10, 5)
    assert "10 rows have case = 1003: the first 5 of them" in found["notes"][-1]
    assert "note: " in work.redcal("explain", "--id", "1003").out


@dataclass
class Pieces:
    """A table that comes in batches of two rows."""

    rows: pa.Table
    name: str = "pieces"

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.rows.select(list(columns or self.schema.names)).to_batches(2)

    def pieces(self, columns: Sequence[str], repeated: Sequence[str] = ()) -> Iterator[BatchGroup]:
        return each_alone(self.batches(columns))

    def count(self) -> int | None:
        return None

    def identity(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
def test_rows_of_one_id_in_several_batches(kind: pa.DataType) -> None:
    ids = pa.array(["a", "b", "b", "a", "c", "b", "b", "b", "b"])
    place = pa.array(range(9))
    here = LocalBackend(DeltaRsStore())
    table = Pieces(pa.table({"id": ids.cast(kind), "other": place, "place": place}))
    found, count = here.rows_with(table, "id", pa.scalar("b"), ["place", "id"], 5)
    assert (found["place"].to_pylist(), count) == ([1, 2, 5, 6, 7], 6)
    found, count = here.rows_with(table, "id", pa.scalar("x"), ["place", "id"], 5)
    assert (found.num_rows, found.column_names, count) == (0, ["place", "id"], 0)


@pytest.mark.slow
def test_the_row_is_the_one_that_the_run_read(work: Work) -> None:
    work.tree["input"]["table"] = "scores"
    write_deltalake("scores", scores())
    run = work.ran()
    outs = work.table().to_pylist()
    write_deltalake("scores", scores(seed=6), mode="overwrite")
    for out in outs[::97]:
        found = told(work, out["case"])
        assert (found["version"], found["notes"]) == (0, [])
        check_row(found, out)
    again = work.ran()
    assert again["run_id"] != run["run_id"]
    out = work.table().to_pylist()[0]
    check_row(told(work, out["case"]), out)
    assert told(work, out["case"])["version"] == 1
    check_row(told(work, outs[0]["case"], "--run", run["run_id"]), outs[0])


def test_a_file_that_changed_since_is_told(work: Work) -> None:
    run = work.ran()
    out = work.table().to_pylist()[0]
    other = scores(seed=6)
    write(other)
    found = told(work, out["case"])
    assert found["notes"] == [
        f"scores.parquet changed since run {run['run_id']}; this is the row as it is now"
    ]
    assert found["rows"][0]["start"]["scores"][0] != out["a"]
    assert found["rows"][0]["start"]["scores"][0] == other["a"].to_pylist()[0]
    write(other, "elsewhere.parquet")
    work.tree["input"]["table"] = "elsewhere.parquet"
    (note,) = told(work, out["case"], "--run", run["run_id"])["notes"]
    assert "elsewhere.parquet is not the input of run" in note


def test_a_table_made_anew_is_told(work: Work) -> None:
    work.tree["input"]["table"] = "scores"
    write_deltalake("scores", scores())
    work.ran("fit")
    shutil.rmtree("scores")
    write_deltalake("scores", scores(seed=6))
    (note,) = told(work, 1000)["notes"]
    assert "scores changed since run" in note  # version 0, but of another table


def test_a_version_that_is_gone_is_told(work: Work) -> None:
    work.tree["input"]["table"] = "scores"
    for seed in (5, 6):
        write_deltalake("scores", scores(seed=seed), mode="overwrite")
    run = work.ran("fit")
    shutil.rmtree("scores")
    write_deltalake("scores", scores(seed=7))
    found = told(work, 1000)
    assert found["rows"][0]["start"]["scores"][0] == scores(seed=7)["a"].to_pylist()[0]
    (note,) = found["notes"]
    assert note.startswith(f"run {run['run_id']} read other rows (scores: has no version 1")


def test_models_in_tables_of_their_own(work: Work) -> None:
    table = scores()
    write_deltalake("rows", table.drop_columns(["a", "b"]))
    write_deltalake("one", table.select(["case", "a"]))
    write(table.select(["case", "b"]), "two.parquet")
    work.tree["input"] |= {
        "table": "rows",
        "model_1": {"table": "one", "columns": "a"},
        "model_2": {"table": "two.parquet", "columns": "b"},
    }
    work.ran()
    outs = [row for row in work.table().to_pylist() if row["touched"]]
    write_deltalake("one", scores(seed=6).select(["case", "a"]), mode="overwrite")
    found = told(work, outs[0]["case"])
    assert found["notes"] == []
    check_row(found, outs[0])


def test_a_row_that_cannot_be_used(work: Work) -> None:
    table = scores()
    bad = [[0.5, 0.5, 0.0, float("nan")], *table["a"].to_pylist()[1:]]
    write(table.set_column(4, "a", pa.array(bad)))
    work.tree["input"]["on_bad_rows"] = "skip"
    work.ran()
    (row,) = told(work, 1000)["rows"]
    assert "NaN or infinity" in row["problem"]
    assert "passed it through untouched" in work.redcal("explain", "--id", "1000").out
    assert told(work, 1001)["rows"][0]["id"] == 1001


def test_an_audit_before_agrees_with_the_run(work: Work) -> None:
    found = work.redcal("audit", "--json").json
    todo = found["to_fix"]
    run = work.ran()
    (row,) = work.runs()
    log = work.redcal("log", "--json").lines
    first = todo["events"][0]
    assert {k: log[0][k] for k in ("loss", "a1", "a2", "rows")} == {
        k: first[k] for k in ("loss", "a1", "a2", "rows")
    }
    assert (todo["rows"], todo["beta"]) == (row["fit_rows"], row["beta"])
    assert found["rows"] == row["fit_rows"] + row["holdout_rows"]
    assert run["patches"] == len(log)
    # a cell by hand, from the file: what each choice costs by the outcomes
    outs = [o for o in work.table().to_pylist() if o["fold"] != "later" and o["outcome"]]
    loss = found["losses"][0]
    costs, names = LOSSES["triage"]["costs"], LOSSES["triage"]["actions"]
    for pair in loss["pairs"]:
        chosen = names[pair["a1"]], names[pair["a2"]]
        inside = [o for o in outs if (o["triage_1_before"], o["triage_2_before"]) == chosen]
        classes = [CLASSES.index(o["outcome"]) for o in inside]
        assert pair["rows"] == len(inside)
        sums = [sum(costs[a][k] for k in classes) for a in (pair["a1"], pair["a2"])]
        assert pair["cost"] == [total / len(inside) for total in sums]
        assert pair["right"] == (None if sums[0] == sums[1] else 1 if sums[0] < sums[1] else 2)
    shown = work.redcal("audit").out
    assert "right" in shown
    assert f"to reconcile on the {row['fit_rows']} fitting rows: {len(todo['events'])} " in shown


def test_on_spark_as_here(work: Work, spark: Any) -> None:
    """Both commands through Spark: the same document."""
    work.tree["input"]["table"] = str(Path("scores").absolute())
    work.tree["output"]["table"] = str(Path("out/rows").absolute())
    write_deltalake("scores", scores())
    work.ran()
    outs = work.table().to_pylist()
    write_deltalake("scores", scores(seed=6), mode="overwrite")
    for out in (next(o for o in outs if o["touched"]), next(o for o in outs if not o["touched"])):
        here, there = told(work, out["case"]), told(work, out["case"], "--engine", "spark")
        assert here == there
        check_row(there, out)
    missing = work.redcal("explain", "--id", "7", "--engine", "spark")
    assert missing.code == 2
    assert "has no row with case = '7'" in missing.err
    audits = [work.redcal("audit", "--json", "--engine", e) for e in ("local", "spark")]
    assert audits[0].json == audits[1].json

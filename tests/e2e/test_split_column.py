"""The column `split`: what each written row was to the fit, where that is known for certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark.core.splits import HashSplit
from tests.e2e.work import Work, scores, write

ROLE = {"train": "fit", "test": "holdout", "later": "none"}


def roles(work: Work, name: str = "out/rows") -> dict[Any, Any]:
    rows = work.table(name)
    return dict(zip(rows["case"].to_pylist(), rows["split"].to_pylist(), strict=True))


def by_fold(table: pa.Table) -> dict[Any, Any]:
    """Written down from what the columns mean: the fold, and none without a label."""
    return {
        row["case"]: "none" if row["outcome"] is None else ROLE[row["fold"]]
        for row in table.to_pylist()
    }


def test_by_a_column(work: Work) -> None:
    work.ran()
    found = roles(work)
    assert found == by_fold(scores())
    assert set(found.values()) == {"fit", "holdout", "none"}
    [run] = work.runs()
    words = list(found.values())
    assert (words.count("fit"), words.count("holdout")) == (run["fit_rows"], run["holdout_rows"])


def test_without_a_split_every_row_with_a_label_is_fitted(work: Work) -> None:
    del work.tree["input"]["split"]
    work.ran()
    labels = scores()["outcome"].to_pylist()
    assert list(dict(sorted(roles(work).items())).values()) == [
        "none" if label is None else "fit" for label in labels
    ]


def test_by_a_hash_of_the_id(work: Work) -> None:
    work.tree["input"]["split"] = {"holdout_fraction": 0.3, "salt": "x"}
    work.ran()
    table = scores()
    [batch] = table.to_batches()
    _, holdout = HashSplit("case", 0.3, "x").masks(batch)
    assert roles(work) == {
        row["case"]: "none" if row["outcome"] is None else "holdout" if own else "fit"
        for row, own in zip(table.to_pylist(), holdout, strict=True)
    }


def test_bad_rows_have_no_part_in_it(work: Work) -> None:
    """A score that cannot be used, and a label that cannot, though its scores are patched."""
    table = scores()
    bad = [None, *table["a"].to_pylist()[1:]]
    labels = table["outcome"].to_pylist()
    at = next(i for i in range(1, 600) if labels[i] and table["fold"][i].as_py() == "train")
    labels[at] = "no such class"
    table = table.set_column(4, "a", pa.array(bad, pa.list_(pa.float64())))
    table = table.set_column(1, "outcome", pa.array(labels))
    write(table)
    work.tree["input"]["on_bad_rows"] = "skip"
    work.ran()
    expected = by_fold(table) | {1_000: "none", 1_000 + at: "none"}
    assert roles(work) == expected
    [run] = work.runs()
    assert run["bad_rows"] == 2
    assert list(expected.values()).count("fit") == run["fit_rows"]


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_in_every_mode(work: Work, mode: str) -> None:
    work.tree["output"]["mode"] = mode
    work.ran()
    assert roles(work) == by_fold(scores())


# --- a model that is applied ----------------------------------------------------------------------


def delta(table: pa.Table) -> None:
    write_deltalake("scores", table, mode="overwrite")


def test_applied_to_the_rows_it_was_fitted_on(work: Work) -> None:
    delta(scores())
    work.tree["input"]["table"] = "scores"
    fitted = work.ran("fit")
    work.ran("apply", "--run", fitted["run_id"])
    assert roles(work) == by_fold(scores())
    [row] = [row for row in work.runs() if row["command"] == "apply"]
    assert row["progress"] == f'{{"model_of": "{fitted["run_id"]}"}}'
    # written elsewhere, and with another way of naming the version: still the same rows
    work.tree["output"] |= {"runs": "out/rows_runs", "patches": "out/rows_patches"}
    changed = ("output.table=again", "input.version=0")
    work.ran("apply", "--run", "latest", *(word for key in changed for word in ("--set", key)))
    assert roles(work, "again") == by_fold(scores())


def test_what_cannot_be_known_is_null(work: Work) -> None:
    """Rows of another version, another split, a model from a file."""
    delta(scores())
    work.tree["input"]["table"] = "scores"
    work.ran("fit")
    work.redcal("export", "-o", "model.json")
    nobody = dict.fromkeys(by_fold(scores()))

    work.ran("apply", "--model", "model.json")
    assert roles(work) == nobody
    work.ran("apply", "--set", "input.split.holdout=later", "--run", "latest")
    assert roles(work) == nobody
    delta(scores())  # the same rows as a new version: nobody looks whether they are the same
    work.ran("apply", "--run", "latest")
    assert roles(work) == nobody
    work.ran("apply", "--run", "latest", "--set", "input.version=0")
    assert roles(work) == by_fold(scores())


@pytest.mark.slow
def test_a_variable_may_stand_for_something_else_by_now(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELD_OUT", "test")
    work.tree["input"]["split"]["holdout"] = "${HELD_OUT}"
    work.ran("fit")
    work.ran("apply")
    assert roles(work) == by_fold(scores())
    monkeypatch.setenv("HELD_OUT", "later")
    work.ran("apply", "--run", "latest")
    assert set(roles(work).values()) == {None}


# --- names and tables of earlier releases ---------------------------------------------------------


def test_an_input_that_has_such_a_column(work: Work) -> None:
    write(scores().append_column("Split", pa.array(["x"] * 600)))
    told = work.redcal("check")
    assert (told.code, told.err) == (
        2,
        "redcal check: scores.parquet has already the column 'Split'; name the new ones otherwise, "
        "for instance with output.suffix: _v2\n",
    )
    work.tree["output"]["suffix"] = "_v2"
    work.ran()
    assert set(work.table()["split_v2"].to_pylist()) == {"fit", "holdout", "none"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_a_table_of_an_earlier_release(work: Work, mode: str) -> None:
    """It is refused with the words of a way out, which works once and for good."""
    work.tree["output"]["mode"] = mode
    work.ran()
    old = work.table().drop_columns(["split"])
    how: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"}
    write_deltalake("out/rows", old, partition_by=["run_id"] if mode == "append" else None, **how)
    write(scores(seed=6))
    for command in ("check", "run"):
        told = work.redcal(command)
        assert told.code == 2
        assert "  new: 'split', string\n" in told.err
        assert (
            "(an earlier release wrote the table, without 'split'; once with "
            "--set output.schema=evolve, and later runs need nothing)"
        ) in told.err
    work.ran("run", "--set", "output.schema=evolve")
    expected = by_fold(scores(seed=6))
    rows = work.table().to_pylist()
    assert {row["case"]: row["split"] for row in rows if row["split"]} == expected
    assert len(rows) == (1_200 if mode == "append" else 600)
    write(scores(seed=7))
    work.ran()
    assert Path("out/rows").exists()

"""Columns `split`, normalised scores and decisions on Spark: as the embedded engine has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.runs.ledger import digest
from tests.e2e.test_split_column import by_fold, roles
from tests.e2e.work import scores
from tests.spark.test_runs import Lake, lake
from tests.spark.test_stream import River, river

__all__ = ["lake", "river"]

ADDED = ["a_reconciled_normalised", "b_reconciled_normalised"]


def with_bad_rows() -> pa.Table:
    """A row without scores, one of zeros, one with a label that is no class."""
    rows = scores().to_pylist()
    rows[0]["a"] = None
    rows[1] |= {"a": [0.0] * 4, "b": [0.0] * 4}
    rows[2]["outcome"] = "no such class"
    return pa.Table.from_pylist(rows, scores().schema)


@pytest.mark.slow
def test_the_same_columns_as_the_embedded_run(lake: Lake) -> None:
    write_deltalake("scores", with_bad_rows(), mode="overwrite")
    lake.tree["input"]["on_bad_rows"] = "skip"
    lake.tree["output"] |= {"normalise": True, "tie": "cheaper"}
    lake.ran_on("spark")
    found = lake.table().sort_by("case")
    lake.tree["output"]["table"] = "local/rows"
    lake.ran_on("local")
    assert found.equals(lake.table("local/rows").sort_by("case"))
    assert {*ADDED, "triage_decision", "beds_decision"} < set(found.column_names)
    decided = zip(*(found[f"triage_{x}"].to_pylist() for x in ("agree", "decision")), strict=True)
    assert {(agree, action is None) for agree, action in decided} == {
        *((True, False), (False, False), (None, True))
    }
    assert [row is None for row in found[ADDED[0]].to_pylist()[:3]] == [True, True, False]
    expected = by_fold(with_bad_rows()) | {1_000: "none", 1_002: "none"}
    assert roles(lake) == expected
    assert set(expected.values()) == {"fit", "holdout", "none"}


def test_a_model_that_is_applied(lake: Lake) -> None:
    lake.tree["input"]["split"] = {"holdout_fraction": 0.4}
    fitted = lake.redcal("fit", "--json", "--engine", "local").json
    told = lake.redcal("apply", "--run", fitted["run_id"])
    assert told.code == 0, told.err
    on_spark = roles(lake)
    assert set(on_spark.values()) == {"fit", "holdout", "none"}
    assert lake.redcal("apply", "--run", fitted["run_id"], "--engine", "local").code == 0
    assert roles(lake) == on_spark
    write_deltalake("scores", scores(), mode="overwrite")  # a new version: nobody can tell
    assert lake.redcal("apply", "--run", fitted["run_id"]).code == 0
    assert set(roles(lake).values()) == {None}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", pytest.param("merge", marks=pytest.mark.slow)])
def test_rows_as_they_arrive(spark: Any, river: River, mode: str) -> None:
    river.tree["output"] |= {"mode": mode, "normalise": True, "tie": None}
    river.arrive(river.parts[0])
    river.streamed()
    found = river.found()
    assert found == river.expected()
    assert {row["split"] for row in found} == {None}
    # the checkpoint knows the model by its oldest form: one of an earlier release is not refused
    [owner] = spark.read.json(str(Path("out/rows_checkpoint/stream").absolute())).collect()
    first = ReconciledPair.load("model.json").to_json(1)
    assert owner["model"] == digest(first)
    for row in found:
        agreed = row["triage_1_after"] if row["triage_agree"] else None
        assert row["triage_decision"] == agreed
        for model in "ab":
            raw = [round(p * 2**26) for p in row[f"{model}_reconciled"]]
            assert row[f"{model}_reconciled_normalised"] == [q / sum(raw) for q in raw]


def test_a_frame_in_python(spark: Any, river: River) -> None:
    pair = ReconciledPair.load("model.json")
    frame = spark.createDataFrame(river.parts[0].to_pandas())
    wanted = pair.apply(river.parts[0], normalise=True).sort_by("case")
    found = pair.apply(frame, normalise=True).toArrow().sort_by("case")
    assert found.column_names == wanted.column_names
    assert found.to_pylist() == wanted.to_pylist()
    assert "split" not in found.column_names

"""`input.segments` through whole jobs, against a plain computation from the written rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark.core.chosen_segments import Segment, chosen
from redcal_spark.core.segments import coded, table
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, scores, split_rows, write

ROWS = 600


def segmented(weights: bool) -> pa.Table:
    """Regions with a null and with the text "null", a flag, and weights that are halves."""
    rng = np.random.default_rng(3)
    rows = scores(ROWS)
    regions = [None, "null", "north", "south", "(other)"]
    rows = rows.append_column("region", pa.array([regions[k] for k in rng.integers(0, 5, ROWS)]))
    rows = rows.append_column("late", pa.array(rng.random(ROWS) < 0.3))
    w = rng.integers(0, 6, ROWS) / 2 if weights else np.ones(ROWS)
    return rows.append_column("w", pa.array(w))


def configured(work: Work, weights: bool) -> pa.Table:
    rows = segmented(weights)
    write(rows)
    work.tree["input"]["segments"] = ["region", "late"]
    if weights:
        work.tree["input"] |= {"weight": "w", "weight_unit": 0.5}
    return rows


def plainly(rows: list[dict[str, Any]], suffix: str) -> Iterator[tuple[str, int, Any]]:
    """Per loss and model the mean cost; per model the Brier score: row by row, with fractions."""
    w = [Fraction(row["w"]) for row in rows]
    for number, model in enumerate("ab", 1):
        grid = oracle.grid_scores([row[model + suffix] for row in rows])
        labels = [CLASSES.index(row["outcome"]) for row in rows]
        errors = [
            sum((q - oracle.ONE * (k == y)) ** 2 for k, q in enumerate(f))
            for f, y in zip(grid, labels, strict=True)
        ]
        total = sum(a * b for a, b in zip(w, errors, strict=True))
        yield "brier", number, total / sum(w) / oracle.ONE**2
        for name, loss in LOSSES.items():
            quantised = oracle.quantise_loss(loss["costs"])
            costs = [
                oracle.exact(loss["costs"][oracle.argmin(oracle.action_scores(quantised, f))][y])
                for f, y in zip(grid, labels, strict=True)
            ]
            yield name, number, sum(a * b for a, b in zip(w, costs, strict=True)) / sum(w)


@pytest.mark.parametrize("weights", [False, True])
def test_every_number_is_that_of_the_rows(work: Work, weights: bool) -> None:
    rows = configured(work, weights)
    run = work.ran()
    told = work.redcal("evaluate", "--json")
    assert told.code == 0, told.out
    row = work.runs()[-1]
    audits = json.loads(row["audits"])
    written = work.table().to_pylist()
    for split, fold in (("fit", "train"), ("holdout", "test")):
        cases = set(split_rows(rows, fold)["case"].to_pylist())
        own = [r for r in written if r["case"] in cases and r["w"]]
        for stage, suffix in (("before", ""), ("after", "_reconciled")):
            lines = {
                (x["segment"], x["kind"], x["value"]): x for x in audits[split][stage]["segments"]
            }
            regions = {
                ("region", "null" if r["region"] is None else "value", r["region"]) for r in own
            }
            flags = {("late", "value", str(r["late"]).lower()) for r in own}
            assert set(lines) == regions | flags
            for (column, _, value), line in lines.items():
                some = [r for r in own if _text(r[column]) == value]
                w = sum(Fraction(r["w"]) for r in some)
                assert line["rows"] == w * (2 if weights else 1)
                for name, model, number in plainly(some, suffix):
                    if name == "brier":
                        assert line["brier"][model - 1] == float(number)
                        continue
                    [loss] = [x for x in line["losses"] if x["loss"] == name]
                    assert Fraction(loss["decision_loss_exact"][model - 1]) == number
                    action = f"{name}_{model}_"
                    moved = sum(
                        Fraction(r["w"])
                        for r in some
                        if stage == "after" and r[action + "before"] != r[action + "after"]
                    )
                    assert Fraction(loss["changed_rows"][model - 1]) / line["rows"] == moved / w
    checks = [c for c in json.loads(row["certificate"])["checks"] if c["name"] == "segment_loss"]
    assert len(checks) == 2 * 2 * 2  # columns, losses, models
    assert {check["split"] for check in checks} == {"holdout"}
    assert "Who pays" in Path(run["report"]).read_text("utf-8")
    history = [h for h in work.table("out/rows_history").to_pylist() if h["segment"] is not None]
    assert {(h["segment"], h["segment_kind"]) for h in history} == {
        ("region", "value"),
        ("region", "null"),
        ("late", "value"),
    }


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value


def test_the_fit_does_not_look_at_them(work: Work) -> None:
    configured(work, True)
    work.tree["output"]["table"] = "out/with"
    work.ran()
    del work.tree["input"]["segments"]
    work.tree["output"]["table"] = "out/without"
    work.ran()
    one, two = (
        work.table(f"out/{n}_patches").drop_columns(["run_id"]) for n in ("with", "without")
    )
    assert one.sort_by("step").equals(two.sort_by("step")) and len(one)


def test_the_audit_has_them(work: Work) -> None:
    configured(work, False)
    audit = work.ran("audit")
    assert {line["segment"] for line in audit["segments"]} == {"region", "late"}
    assert sum(line["rows"] for line in audit["segments"]) == 2 * audit["rows"]


def test_more_than_200_values() -> None:
    """199 with most rows, ties by code point, and a remainder that no value can be taken for."""
    values = [f"v{i:03}" for i in range(250)] + ["v240"] * 2 + ["v001", None, "(other)", None]
    column = coded(pa.array(values))
    one = np.ones(len(values), np.int64)
    sums = table([column], [one], None)
    found = chosen(["c"], [sums])
    [segments] = found.segments
    assert len(segments) == 200
    assert segments[0] == Segment("c", "value", "v240")
    assert segments[1:3] == (Segment("c", "value", "v001"), Segment("c", "null"))
    assert segments[-1] == Segment("c", "other")
    assert Segment("c", "value", "(other)") in segments  # ( is before v
    [lines] = found.folded(sums)
    assert sum(line[0] for line in lines) == len(values)
    kept = {segment.text for segment in segments if segment.kind == "value"}
    assert lines[-1][0] == sum(value not in kept and value is not None for value in values)


def test_refusals(work: Work) -> None:
    configured(work, False)
    for given, said in (
        (["none"], "column 'none' not found"),
        (["a"], "segment column 'a' has type"),
        (["region", "region"], "input.segments[1]: is the same as segments[0]"),
    ):
        work.tree["input"]["segments"] = given
        told = work.redcal("check")
        assert (told.code, said in told.err) == (2, True), told.err

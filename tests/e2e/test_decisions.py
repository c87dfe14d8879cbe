"""`output.tie`: a decision a row, the agreed action or what a rule says, through whole jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import load_config
from redcal_spark.core.decisions import decisions
from redcal_spark.core.losses import Loss
from redcal_spark.errors import UsageError
from redcal_spark.runs.job import Job
from tests.e2e.work import LOSSES, Work, scores, write
from tests.helpers import refused
from tests.tampering import read

RULES: tuple[Any, ...] = ("model_1", "model_2", "cheaper", None)
COLUMNS = ["triage_decision", "beds_decision"]


def grid(values: list[float]) -> list[int]:
    return [round(p * 2**26) for p in values]


def quantised(costs: list[list[float]]) -> list[list[int]]:
    low, high = (f(c for row in costs for c in row) for f in (min, max))
    return [[round((c - low) / (high - low) * 2**26) for c in row] for row in costs]


TWO = {"1": "a", "2": "b"}
THREE = {"champion": "a", "challenger": "b", "other": "c"}


def decided(
    row: dict[str, Any], loss: str, tie: str | None, models: dict[str, str] = TWO
) -> str | None:
    """The specification in plain Python, from what the row says."""
    each = [row[f"{loss}_{called}_after"] for called in models]
    if len({*each}) == 1:
        return str(each[0])
    if tie is None:
        return None
    if tie != "cheaper":
        return str(each[int(tie[-1]) - 1])
    given = LOSSES[loss]
    names = given.get("actions") or [str(i) for i in range(len(given["costs"]))]
    costs = dict(zip(names, quantised(given["costs"]), strict=True))
    all_ = [
        sum(xs) for xs in zip(*(grid(row[f"{m}_reconciled"]) for m in models.values()), strict=True)
    ]
    price = [sum(x * c for x, c in zip(all_, costs[a], strict=True)) for a in each]
    return str(each[price.index(min(price))])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("tie", RULES)
def test_decisions_of_a_run_and_an_apply(work: Work, tie: str | None) -> None:
    plain = work.ran()
    before = work.table().sort_by("case")
    assert not any("decision" in name for name in before.column_names), "off by default"
    work.tree["output"] |= {"table": "out/more", "tie": tie}
    run = work.ran()
    assert (run["patches"], run["metrics"]) == (plain["patches"], plain["metrics"])
    rows = work.table("out/more").sort_by("case")
    assert rows.drop_columns(COLUMNS).equals(before)
    place = rows.column_names.index
    assert all(place(f"{x}_decision") == place(f"{x}_agree") + 1 for x in LOSSES)
    told = rows.to_pylist()
    taken = set()
    for loss in LOSSES:
        for row in told:
            assert row[f"{loss}_decision"] == decided(row, loss, tie)
            if not row[f"{loss}_agree"]:
                taken.add(row[f"{loss}_decision"] == row[f"{loss}_1_after"])
    expected = {"model_1": {True}, "model_2": {False}, "cheaper": {True, False}, None: {False}}
    assert taken == expected[tie], "the rows in dispute show the rule"
    work.ran("apply")
    assert work.table("out/more").sort_by("case").equals(rows)
    assert work.redcal("evaluate").code == 0


def three_models(work: Work) -> None:
    table = scores()
    write(table.append_column("c", scores(seed=6)["a"]))
    given = work.tree["input"]
    del given["model_1"], given["model_2"]
    given["models"] = dict(THREE)


def test_more_than_two_models(work: Work) -> None:
    three_models(work)
    for tie, rule in (("other", "model_3"), ("cheaper", "cheaper"), (None, None)):
        work.tree["output"] |= {"table": f"out/{tie}", "tie": tie}
        assert work.redcal("run").code in (0, 3)
        rows = work.table(f"out/{tie}").to_pylist()
        assert [r["triage_decision"] for r in rows] == [
            decided(r, "triage", rule, THREE) for r in rows
        ]
    assert work.redcal("evaluate").code == 0
    told = work.redcal("check", "--set", "output.tie=model_3")
    said = "output.tie: must be off, champion, challenger, other, cheaper or null, got 'model_3'"
    assert told.code == 2 and said in told.err


def test_sums_that_do_not_fit_64_bits() -> None:
    """Scores of 16 models at the corner of the box, the largest sums that there are."""
    loss = Loss.of("x", [[1.0] * 1024, [1.0] * 1023 + [1.0 - 2**-26], [0.0] * 1024])
    full = np.full((2, 1024), 2**26, np.int32)
    one, two = np.array([0, 1], np.uint8), np.array([1, 0], np.uint8)
    actions = [one, *[two] * 15]
    done = decisions(loss, [full] * 16, actions, np.ones(2, np.bool_), "cheaper")
    assert done.to_pylist() == ["1", "1"]
    last = [np.array([2, 0], np.uint8)]
    done = decisions(loss, [full] * 16, [*actions[:15], *last], np.ones(2, np.bool_), "cheaper")
    assert done.to_pylist() == ["2", "1"]


def test_rows_that_cannot_be_used_have_no_decision(work: Work) -> None:
    table = scores().to_pylist()
    table[0]["a"] = None
    write(pa.Table.from_pylist(table, scores().schema))
    work.tree["input"]["on_bad_rows"] = "skip"
    work.tree["output"]["tie"] = "model_2"
    work.ran()
    rows = work.table().sort_by("case").to_pylist()
    assert rows[0]["triage_decision"] is None and rows[1]["triage_decision"] is not None


def test_evaluate_notices_a_changed_decision(work: Work) -> None:
    work.tree["output"]["tie"] = "cheaper"
    work.ran()
    rows = read("out/rows")
    place = rows.column_names.index("triage_decision")
    values = rows["triage_decision"].to_pylist()
    values[7] = next(x for x in LOSSES["triage"]["actions"] if x != values[7])
    changed = rows.set_column(place, "triage_decision", pa.array(values, pa.string()))
    write_deltalake("out/rows", changed, mode="overwrite")
    told = work.redcal("evaluate", "--json")
    assert told.code == 1
    findings = [f for checked in told.json["checked"] for f in checked["findings"]]
    [finding] = [f for f in findings if f["column"] == "triage_decision"]
    assert finding["row"] == {"case": rows["case"][7].as_py()}
    write_deltalake(
        "out/rows", rows.drop_columns("beds_decision"), mode="overwrite", schema_mode="overwrite"
    )
    assert work.redcal("evaluate").code == 1, "a column that is gone is noticed, too"


@pytest.mark.slow
def test_an_existing_table_takes_them_once_it_may_change(work: Work) -> None:
    work.tree["output"]["mode"] = "merge"
    work.ran()
    write(scores(20, seed=8))
    work.ran()  # today's tables stay mergeable: the key is off
    work.tree["output"]["tie"] = None
    told = work.redcal("check")
    assert told.code == 2
    assert "new: 'triage_decision', string" in told.err
    assert "output.schema: evolve adds new columns and leaves missing ones empty" in told.err
    assert work.redcal("run", "--set", "output.schema=evolve").code == 0
    rows = work.table().sort_by("case").to_pylist()
    assert {row["triage_decision"] is None for row in rows[20:]} == {True}, "rows of earlier runs"
    for row in rows[:20]:
        assert row["triage_decision"] == decided(row, "triage", None)
    write(scores(30, seed=8))
    work.ran()  # and later runs need nothing
    assert work.redcal("evaluate").code == 0


def test_the_digest_of_earlier_configurations_stays(work: Work) -> None:
    work.redcal("check")

    def digest(*overrides: str) -> str:
        config = load_config("config.yaml", list(overrides))
        return Job(config, LocalBackend(DeltaRsStore())).digest

    assert digest() == digest("output.tie=off") != digest("output.tie=null")
    assert len({digest(f"output.tie={tie or 'null'}") for tie in RULES}) == 4


def test_in_python(work: Work) -> None:
    work.ran("fit")
    work.redcal("export", "-o", "model.json")
    pair = ReconciledPair.load("model.json")
    assert not {*COLUMNS} & {*pair.apply(scores()).column_names}
    for tie in RULES:
        done = pair.apply(scores(), tie=tie, suffix="_v2").to_pylist()
        plain = pair.apply(scores()).to_pylist()
        for row, same in zip(done, plain, strict=True):
            assert row["triage_decision_v2"] == decided(same, "triage", tie)
    wrong: Any = "dearer"
    told = refused(UsageError, lambda: pair.apply(scores(), tie=wrong))
    assert told == (
        "tie: must be one of 'off', 'model_1', 'model_2', 'cheaper', None, got 'dearer'"
    )


def test_wrong_rules_are_refused(work: Work) -> None:
    work.tree["output"]["tie"] = "dearer"
    told = work.redcal("check")
    assert told.code == 2
    said = "output.tie: must be off, model_1, model_2, cheaper or null, got 'dearer'"
    assert said in told.err
    work.tree["output"]["tie"] = "cheaper"
    work.tree["reconcile"]["algorithm"] = "reconcile"
    del work.tree["losses"]
    told = work.redcal("check")
    assert told.code == 2
    assert "output.tie: needs losses: without them there is nothing to decide" in told.err
    assert not Path("out").exists()


def test_the_ledger_knows_the_rule(work: Work) -> None:
    work.tree["output"]["tie"] = None
    work.ran()
    [row] = work.runs()
    assert json.loads(row["config"])["output"]["tie"] is None

"""More than two models through whole jobs: by their names, in tables, commands and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import load_config
from redcal_spark.errors import InputError, ModelFileError, UsageError
from redcal_spark.report.data import Report
from redcal_spark.report.provenance import certificate
from redcal_spark.runs.job import Job
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, scores, write
from tests.oracle import Problem

NAMES = ("champion", "challenger", "vendor")
GIVEN = {"champion": "a", "challenger": "b", "vendor": [f"v{j}" for j in range(len(CLASSES))]}


def third(table: pa.Table, seed: int = 9) -> np.ndarray[Any, Any]:
    """Scores of a vendor: a mean of both with noise of its own."""
    rng = np.random.default_rng(seed)
    one, two = (np.array(table[name].to_pylist()) for name in "ab")
    mixed = 0.4 * one + 0.3 * two + 0.3 * rng.dirichlet([1] * len(CLASSES), len(one))
    return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def rows_of_three(seed: int = 5) -> pa.Table:
    table = scores(300, seed)
    for j, column in enumerate(third(table).T):
        table = table.append_column(f"v{j}", pa.array(column))
    return table


@pytest.fixture
def three(work: Work) -> Work:
    write(rows_of_three())
    del work.tree["input"]["model_1"], work.tree["input"]["model_2"]
    work.tree["input"]["models"] = dict(GIVEN)
    return work


def problem(table: pa.Table, algorithm: str = "redcal", **parameters: Any) -> Problem:
    """The fitting rows, for the oracle."""
    part = table.filter(pa.compute.and_(pa.compute.equal(table["fold"], "train"),
                                        pa.compute.is_valid(table["outcome"])))  # fmt: skip
    vendor = [list(row) for row in zip(*(part[f"v{j}"].to_pylist() for j in range(4)), strict=True)]
    return Problem(
        part["a"].to_pylist(),
        part["b"].to_pylist(),
        [CLASSES.index(y) for y in part["outcome"].to_pylist()],
        {name: loss["costs"] for name, loss in LOSSES.items()},
        algorithm,
        more=[vendor],
        **{"alpha": 0.005, "eta": 0.01} | parameters,
    )


def test_a_run_is_what_the_oracle_says(three: Work) -> None:
    run = three.ran()
    log = three.redcal("log", "--json").lines
    table = rows_of_three()
    assert log == oracle.fit(problem(table)).log
    assert {patch["model"] for patch in log} == {1, 2, 3}
    assert run["status"] == "converged"
    rows = three.table().sort_by("case")
    new = [f"v{j}_reconciled" for j in range(4)]
    actions = [
        [*(f"{loss}_{name}_{when}" for when in ("before", "after") for name in NAMES),
         f"{loss}_agree"]
        for loss in LOSSES
    ]  # fmt: skip
    added = [
        "a_reconciled",
        "b_reconciled",
        *new,
        *chain.from_iterable(actions),
        "touched",
        "split",
    ]
    assert rows.column_names == [*table.column_names, *added]
    for row in rows.to_pylist():
        for loss in LOSSES:
            after = {row[f"{loss}_{name}_after"] for name in NAMES}
            assert row[f"{loss}_agree"] is (len(after) == 1)
    assert three.redcal("evaluate").code == 0


def test_what_is_written_is_what_python_gives(three: Work) -> None:
    three.ran()
    table = rows_of_three()
    fitting = table.filter(pa.compute.equal(table["fold"], "train"))
    costs = {name: dict(loss) for name, loss in LOSSES.items()}
    given: dict[str, Any] = {"losses": costs, "alpha": 0.005, "eta": 0.01, "models": GIVEN}
    pair = Reconciler(**given, label="outcome", classes=CLASSES, id="case").fit(fitting)
    rows, applied = three.table().sort_by("case"), pair.apply(table).sort_by("case")
    for name in applied.column_names:
        assert rows[name].to_pylist() == applied[name].to_pylist(), name


def test_names_where_people_look(three: Work) -> None:
    shown = three.redcal("run").out
    for name in NAMES:
        assert f"triage: cost of {name} " in shown
    log = three.redcal("log").out
    assert "(champion / challenger)" in log and "vendor" in log
    audit = three.redcal("audit").out
    head = next(line for line in audit.splitlines() if line.startswith("disagree"))
    assert head.split() == ["disagree", "challenger", "vendor"]
    told = three.redcal("audit", "--json").json
    assert told["models"] == list(NAMES)
    for loss in told["losses"]:
        assert [pair["models"] for pair in loss["by_pair"]] == [[1, 2], [1, 3], [2, 3]]
        for pair in loss["by_pair"]:
            apart = sum(p["rows"] for p in pair["pairs"])
            assert apart == pair["disagreement_rows"] <= loss["disagreement_rows"]
    page = Path(three.ran("run", "--force")["report"]).read_text("utf-8")
    assert "3 models, " in page and "Every pair of models" in page
    for name in NAMES:
        assert name in page
    evaluated = three.redcal("evaluate").out
    assert "loss fell, triage, vendor, holdout rows" in evaluated
    assert "all losses fell" in evaluated and "both losses fell" not in evaluated
    explained = three.redcal("explain", "--id", "1007").out
    assert "vendor" in explained


def test_the_report_shows_first_whether_all_losses_fell(three: Work) -> None:
    three.ran()
    job = Job(load_config("config.yaml"), LocalBackend(DeltaRsStore()))
    shown = list(certificate(Report.of(job.store, job.tables, job.find())))
    first = [[check.name for _, check in group["first"]] for group in shown]
    fell = [names for names in first if "all_losses_fell" in names]
    assert fell and all(names[0] == "all_losses_fell" for names in fell)


def test_the_sums_of_written_scores_are_evaluated(three: Work) -> None:
    """Without the columns that they are made of, too."""
    three.tree["output"]["columns"] = ["case", "outcome", "fold"]
    three.ran()
    told = three.redcal("evaluate", "--json").json
    sums = [x for x in told["certificate"]["checks"] if x["name"] == "replay"]
    assert {x["verdict"] for x in sums} == {"holds"}


@pytest.mark.slow
def test_words_of_the_mean_of_three(three: Work) -> None:
    told = three.redcal("compare").out
    assert "Mean of all models" in told and "It keeps none of yours" in told


def test_the_report_knows_models_whose_names_are_numbers(three: Work) -> None:
    """`model_1` is the model of this name, wherever it stands."""
    named = ("model_2", "model_3", "model_1")
    three.tree["input"]["models"] = dict(zip(named, GIVEN.values(), strict=True))
    three.tree["output"]["tie"] = "model_1"
    page = Path(three.ran()["report"]).read_text("utf-8")
    assert "that of model_1 (<code>output.tie: model_1</code>)" in page


@pytest.mark.slow
def test_monitor_says_whose_events_and_patches(three: Work) -> None:
    three.ran()
    write(rows_of_three(seed=6), "new.parquet")
    told = three.redcal("monitor", "--table", "new.parquet", "--json").json
    shown = three.redcal("monitor", "--table", "new.parquet").out.splitlines()
    for mass in told["masses"]:
        (line,) = (x for x in shown if x.startswith(f"{mass['loss']}: ") and " / " in x)
        one, two = (NAMES[i - 1] for i in mass["models"])
        assert f"({one} / {two})" in line or not mass["rows"]
    log = {patch["step"]: patch for patch in three.redcal("log", "--json").lines}
    start = next(i for i, line in enumerate(shown) if line.startswith("patch"))
    for line in shown[start + 1 : start + 1 + min(20, len(log))]:
        patch = log[int(line.partition(":")[0])]
        assert NAMES[patch["model"] - 1] in line
        assert patch["other"] is None or NAMES[patch["other"] - 1] in line


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["reconcile", "decision_calibration", "dc_then_redcal"])
def test_the_other_algorithms(three: Work, algorithm: str) -> None:
    three.tree["reconcile"] |= {"algorithm": algorithm, "alpha": 0.05, "max_steps": 40}
    assert three.redcal("run").code in (0, 3)
    expected = oracle.fit(problem(rows_of_three(), algorithm, alpha=0.05, max_steps=40))
    assert three.redcal("log", "--json").lines == expected.log
    assert three.redcal("evaluate").code == 0


def test_the_model_travels(three: Work) -> None:
    three.ran()
    assert three.redcal("export", "-o", "model.json").code == 0
    data = json.loads(Path("model.json").read_text("utf-8"))
    assert data["schema_version"] == 3
    assert data["columns"]["models"] == ["a", "b", GIVEN["vendor"]]
    assert data["columns"]["model_names"] == list(NAMES)
    pair = ReconciledPair.load("model.json")
    assert pair.columns.shown == NAMES
    three.ran("apply", "--model", "model.json", "--set", "output.table=again/rows")
    before, after = (three.table(name).sort_by("case") for name in ("out/rows", "again/rows"))
    for name in ("a_reconciled", "v2_reconciled", "triage_vendor_after", "touched"):
        assert before[name].equals(after[name])
    damages: list[tuple[str, dict[str, Any]]] = [
        ("columns", {"model_names": ["x", "x", "y"]}),
        ("columns", {"models": ["a"], "model_names": ["x"]}),
        ("log", {"other": data["log"][0]["model"]}),
        ("log", {"other": 7}),
    ]
    for part, change in damages:
        changed = json.loads(json.dumps(data))
        (changed["log"][0] if part == "log" else changed["columns"]).update(change)
        with pytest.raises(ModelFileError):
            ReconciledPair.from_json(changed)


# --- rows without a model's scores ----------------------------------------------------------------


def with_gaps(table: pa.Table) -> pa.Table:
    """Row 3 has no scores of the vendor, row 5 none of the champion."""
    for name in GIVEN["vendor"]:
        values = table[name].to_pylist()
        values[3] = None
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    values = table["a"].to_pylist()
    values[5] = None
    return table.set_column(table.column_names.index("a"), "a", pa.array(values))


def test_a_missing_model_is_named(three: Work) -> None:
    write(with_gaps(rows_of_three()))
    told = three.redcal("run")
    assert told.code == 2
    assert "column 'v0': 1 row without scores of model 'vendor'" in told.err
    assert "column 'a': 1 row without scores of model 'champion'" in told.err
    assert "input.missing_model: skip_row those without a model's scores" in told.err


def test_a_missing_model_may_skip_its_row(three: Work) -> None:
    table = with_gaps(rows_of_three())
    write(table)
    three.tree["input"]["missing_model"] = "skip_row"
    run = three.ran()
    rest = table.take([i for i in range(len(table)) if i not in (3, 5)])
    assert three.redcal("log", "--json").lines == oracle.fit(problem(rest)).log
    rows = {row["case"]: row for row in three.table().to_pylist()}
    ids = [table["case"][i].as_py() for i in (3, 5)]
    assert [row["case"] for row in rows.values() if not row["valid"]] == ids
    skipped = rows[ids[0]]
    assert skipped["v0_reconciled"] is None and skipped["a_reconciled"] == skipped["a"]
    assert skipped["triage_vendor_after"] is None and not skipped["touched"]
    assert run["status"] == "converged"
    assert three.redcal("evaluate").code == 0
    told = three.redcal("explain", "--id", str(ids[0])).out
    assert "input.missing_model: skip_row passed it through untouched" in told


def test_skipping_missing_models_skips_nothing_else(three: Work) -> None:
    table = rows_of_three()
    values = table["v1"].to_pylist()
    values[7] = None  # one of four
    values[8] = 7.0
    write(table.set_column(table.column_names.index("v1"), "v1", pa.array(values)))
    three.tree["input"]["missing_model"] = "skip_row"
    told = three.redcal("run")
    assert told.code == 2
    assert "column 'v1': 1 row with null" in told.err
    assert "column 'v1': 1 row with a value outside [0, 1]" in told.err


def test_apply_in_python(three: Work) -> None:
    table = with_gaps(rows_of_three())
    costs = {name: dict(loss) for name, loss in LOSSES.items()}
    given: dict[str, Any] = {
        "losses": costs, "alpha": 0.005, "eta": 0.01, "models": GIVEN, "label": "outcome",
        "classes": CLASSES,
    }  # fmt: skip
    with pytest.raises(InputError, match="without scores of model 'vendor'"):
        Reconciler(**given).fit(table)
    pair = Reconciler(**given, missing_model="skip_row").fit(table)
    with pytest.raises(InputError, match="without scores of model 'champion'"):
        pair.apply(table)
    rows = pair.apply(table, missing_model="skip_row")
    assert [i for i, valid in enumerate(rows["valid"].to_pylist()) if not valid] == [3, 5]
    with pytest.raises(UsageError, match="must be 'error' or 'skip_row', got 'drop'"):
        pair.apply(table, missing_model="drop")  # type: ignore[call-overload]


# --- tables of their own, and refusals ------------------------------------------------------------


def test_every_model_in_a_table_of_its_own(three: Work) -> None:
    table = rows_of_three()
    expected = oracle.fit(problem(table)).log
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    pq.write_table(shuffled.select(["case", "b"]).rename_columns(["case", "a"]), "b.parquet")
    pq.write_table(shuffled.select(["case", *GIVEN["vendor"]]), "v.parquet")
    write(table.drop_columns(["b", *GIVEN["vendor"]]))
    three.tree["input"]["models"] = {
        "champion": "a",
        "challenger": {"table": "b.parquet", "columns": "a"},
        "vendor": {"table": "v.parquet", "columns": GIVEN["vendor"]},
    }
    three.ran()
    assert three.redcal("log", "--json").lines == expected
    assert "challenger_a_reconciled" in three.table().column_names
    assert three.redcal("evaluate").code == 0


def one(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda given: given.update({name: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (one("model_1", "a"), "input.model_1: input.models has every model by its name"),
        (one("models", {"one": "a"}), "input.models: must have 2 to 16 models, has 1"),
        (
            one("models", {f"m{i}": f"c{i}" for i in range(17)}),
            "input.models: must have 2 to 16 models, has 17",
        ),
        (
            one("models", {"one": "a", "two": "b", "three": "a"}),
            "input.models.three: is the same as one; leave one out",
        ),
        (
            one("models", {"one": "a", "two": ["b", "b"]}),
            "input.models.two[1]: is the same as two[0]",
        ),
        (one("models", None), "input.model_1: is required, or input.models with every model"),
        (one("models", {"one": "a", "two": "outcome"}), "input.label: is a score column of"),
        (one("missing_model", "drop"), "input.missing_model: must be 'error' or 'skip_row'"),
    ],
)
def test_refused(three: Work, change: Callable[[dict[str, Any]], None], told: str) -> None:
    change(three.tree["input"])
    found = three.redcal("check")
    assert found.code == 2 and told in found.err


def test_different_widths_are_named(three: Work) -> None:
    three.tree["input"]["models"]["vendor"] = ["v0", "v1", "v2"]
    assert "input.models.vendor: is for 3 classes" in three.redcal("check").err
    three.tree["input"]["models"]["vendor"] = "v0"
    told = three.redcal("check").err
    assert "'vendor' has one column P(class 1)" in told and "give all models in one form" in told


def test_names_that_would_be_one_column(three: Work) -> None:
    three.tree["input"]["models"] = {"Vendor": "a", "vendor": "b"}
    assert "two new columns would have the same name" in three.redcal("check").err


def test_too_many_comparisons_are_refused_at_check(three: Work) -> None:
    three.tree["input"]["models"] = {f"m{i}": f"v{i}" for i in range(16)}
    three.tree["losses"] = {f"l{i}": {"costs": [[0, 1], [1, 0]]} for i in range(40)}
    del three.tree["input"]["classes"]
    table = rows_of_three()
    for i in range(16):
        if f"v{i}" not in table.column_names:
            table = table.append_column(f"v{i}", table["v0"])
    write(table)
    told = three.redcal("check")
    assert told.code == 2
    assert "16 models make 120 pairs; with 40 losses there are 4,800 comparisons" in told.err


@pytest.mark.slow
def test_segments_and_weights_of_three(three: Work) -> None:
    """Every segment has the numbers of all models; they add up to those of all rows."""
    table = rows_of_three()
    regions = pa.array(["north", "south", None, "west"])
    place = pa.array([i % 4 if i % 7 else 0 for i in range(len(table))])
    table = table.append_column("region", regions.take(place))
    weights = [(i % 5) / 2 for i in range(len(table))]
    write(table.append_column("w", pa.array(weights)))
    three.tree["input"] |= {"segments": ["region"], "weight": "w", "weight_unit": 0.5}
    run = three.ran()
    told = three.redcal("evaluate", "--json")
    assert told.code == 0, told.out
    row = three.runs()[-1]
    audits, checks = json.loads(row["audits"]), json.loads(row["certificate"])["checks"]
    for split in ("fit", "holdout"):
        for stage in ("before", "after"):
            lines = audits[split][stage]["segments"]
            assert len(lines) == 4
            whole = audits[split][stage]
            for place_of, loss in enumerate(whole["losses"]):
                for model in range(3):
                    cost = sum(
                        Fraction(line["losses"][place_of]["decision_loss_exact"][model])
                        * line["rows"]
                        for line in lines
                    )
                    assert cost == Fraction(loss["decision_loss_exact"][model]) * whole["rows"]
    said = {(c["loss"], c["model"]) for c in checks if c["name"] == "segment_loss"}
    assert said == {(loss, model) for loss in LOSSES for model in (1, 2, 3)}
    page = Path(run["report"]).read_text("utf-8")
    assert "Who pays" in page and all(name in page for name in NAMES)
    compared = three.ran("compare")
    alone = dict(three.tree["input"])
    del three.tree["input"]["segments"]
    assert _numbers(three.ran("compare")) == _numbers(compared)
    three.tree["input"] = alone


def _numbers(compared: Any) -> Any:
    """What a comparison measured, without what is of the clock."""
    return [{k: v for k, v in one.items() if k != "seconds"} for one in compared["procedures"]]

"""`redcal compare`: the numbers of four runs, from one read, and nothing is written."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from redcal_spark import Reconciler
from redcal_spark.backends.local.backend import LocalBackend, LocalScan
from redcal_spark.core.arrow import batches
from redcal_spark.core.splits import ColumnSplit
from redcal_spark.runs.compare import PROCEDURES
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, scores
from tests.helpers import gather
from tests.oracle import Problem

ALPHA = 0.08  # Reconcile's own


def of_a_run(work: Work, algorithm: str) -> dict[str, Any]:
    """What a run of its own says of a procedure, from its tables."""
    tree = dict(work.tree["reconcile"])
    work.tree["reconcile"] |= {"algorithm": algorithm}
    if algorithm == "reconcile":
        work.tree["reconcile"]["alpha"] = ALPHA
    run = work.redcal("run", "--json").json
    work.tree["reconcile"] = tree
    history: dict[str, list[Any]] = {}
    for row in work.table("out/rows_history").to_pylist():
        if row.pop("run_id") == run["run_id"]:
            history.setdefault(row.pop("split"), []).append(row)
    for rows in history.values():
        for row in rows:
            row["brier_sum"] = str(row["brier_sum"])
            absent = [row.pop(name) for name in ("segment", "segment_kind", "segment_value")]
            assert absent == [None] * 3
    told = {key: run[key] for key in ("status", "patches", "rounds")}
    return told | {"algorithm": algorithm, "history": {s: in_order(h) for s, h in history.items()}}


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row["step"], row["model"], row["loss"]))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "changes", [{}, {"alpha": 0.03, "beta": 1e-3, "max_steps": 40}], ids=["auto", "capped"]
)
def test_the_numbers_of_four_runs(work: Work, changes: dict[str, Any]) -> None:
    work.tree["reconcile"] |= changes
    told = work.redcal("compare", "--json", "--reconcile-alpha", str(ALPHA))
    assert told.code == 0, told.err  # capped or not: nothing was promised
    procedures = told.json["procedures"]
    assert [one["algorithm"] for one in procedures] == list(PROCEDURES)
    assert [one["alpha"] for one in procedures] == [ALPHA, *[changes.get("alpha", 0.005)] * 3]
    for one in procedures:
        expected = of_a_run(work, one["algorithm"])
        assert expected["patches"] > 2
        assert set(expected["history"]) == {"fit", "holdout"}
        one["history"] = {split: in_order(rows) for split, rows in one["history"].items()}
        assert {key: one[key] for key in expected} == expected
        assert one["seconds"] > 0
    assert ({one["status"] for one in procedures} == {"converged"}) == (changes == {})


def test_one_read_and_nothing_written(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.redcal("check")
    before, scans, scan = work.files(), [], LocalBackend.scan

    def counted(self: LocalBackend, *arguments: Any) -> Any:
        scans.append(arguments)
        return scan(self, *arguments)

    monkeypatch.setattr(LocalBackend, "scan", counted)
    assert work.redcal("compare").code == 0
    assert work.files() == before
    assert len(scans) == 1


@pytest.mark.parametrize("algorithm", ["redcal", "reconcile"])
def test_a_second_look_at_kept_rows_is_a_scan_of_their_own(algorithm: str) -> None:
    def reconciler(name: str) -> Reconciler:
        return Reconciler(
            losses=LOSSES, algorithm=name, alpha=0.03, eta=0.01,
            model_1="a", model_2="b", label="outcome", classes=CLASSES,
        )  # fmt: skip

    def scanned(name: str) -> LocalScan:
        split = ColumnSplit("fold", "train", "test")
        found = gather(reconciler(name), batches(table), table.schema, split)
        return LocalScan(*found)

    table = scores()
    own = scanned(algorithm).gathered
    again = scanned("decision_calibration").again(reconciler(algorithm).problem).gathered
    for name in ("rows", "unlabelled", "unused", "bad", "off_sum"):
        assert getattr(again, name) == getattr(own, name)
    for one, two in ((own.fit, again.fit), (own.holdout, again.holdout)):
        assert one.rows == two.rows > sum(block.rows for block in two.active) > 0
        for x, y in zip(one.totals.events, two.totals.events, strict=True):
            assert (x == y).all()
        assert (one.totals.gaps == two.totals.gaps).all()
        assert one.totals.brier == two.totals.brier
        for block, same in zip(one.active, two.active, strict=True):
            assert all(map(np.array_equal, block.f, same.f))
            assert (block.y == same.y).all()  # type: ignore[union-attr]


def test_the_table_says_what_the_json_says(work: Work) -> None:
    found = work.redcal("compare", "--json").json["procedures"]
    lines = work.redcal("compare").out.splitlines()
    for algorithm, name in PROCEDURES.items():
        [one] = [x for x in found if x["algorithm"] == algorithm]
        told = [line.removeprefix(name).split() for line in lines if line.startswith(f"{name}  ")]
        told = told[: 1 + len(LOSSES)]  # those behind are of equal costs
        ends = {s: [r for r in h if r["step"] == h[-1]["step"]] for s, h in one["history"].items()}
        status, patches, values, _, *brier = told[0]
        assert (status, patches) == (one["status"], str(one["patches"]))
        assert values == f"{one['fitted_values']:,}"
        mean = {s: sum(r["brier"] for r in rows) / len(rows) for s, rows in ends.items()}
        assert brier == [f"{mean[split]:.4f}" for split in ("fit", "holdout")]
        for loss, numbers in zip(LOSSES, told[1:], strict=True):
            for place, split in enumerate(("fit", "holdout")):
                rows = [r for r in ends[split] if r["loss"] == loss]
                gap = sum(r["loss_gap"] for r in rows) / 2
                assert float(numbers[place]) == pytest.approx(gap, abs=5.1e-5)
                assert numbers[2 + 2 * place] == f"{rows[0]['disagreement'] * 100:.2f}"
    assert sum(line.startswith("before  ") for line in lines) == 1 + len(LOSSES)


def test_without_a_split(work: Work) -> None:
    del work.tree["input"]["split"]
    told = work.redcal("compare")
    assert "fitted" in told.out and "holdout" not in told.out
    found = work.redcal("compare", "--json").json["procedures"]
    assert all(set(one["history"]) == {"fit"} for one in found)


def test_the_chart(work: Work) -> None:
    work.tree["losses"] = {"<$1 & $2>": LOSSES["triage"]}
    told = work.redcal("compare", "-o", "chart.svg")
    assert told.code == 0, told.err
    assert told.out.endswith("  chart    chart.svg\n")
    drawn = ElementTree.parse("chart.svg")
    texts = ["".join(node.itertext()) for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert set(PROCEDURES.values()) <= set(texts)
    paths = [node.attrib for node in drawn.iter("{http://www.w3.org/2000/svg}path")]
    panels = 2 * (1 + len(work.tree["losses"]))  # fitted and holdout; the Brier score, the losses
    assert len(paths) == panels * len(PROCEDURES)
    assert len({(path["stroke"], path.get("stroke-dasharray")) for path in paths}) == 4
    assert sum("Brier score" in text for text in texts) == 2  # fitted and holdout
    assert sum(text.startswith("loss gap: <$1 & $2>, ") for text in texts) == 2
    first = Path("chart.svg").read_bytes()
    assert work.redcal("compare", "-o", "chart.svg", "--quiet").out == ""
    assert Path("chart.svg").read_bytes() == first
    assert work.redcal("compare", "-o", "page.HTML").code == 0
    page = Path("page.HTML").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 1 and "http-equiv" not in page and "<script" not in page


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        (
            {"reconcile": {"algorithm": "reconcile", "alpha": 0.1, "eta": 0.05}, "losses": None},
            (),
            ("--reconcile-alpha 0.1 for Reconcile", "losses: none are there"),
        ),
        (
            {"reconcile": {"algorithm": "decision_calibration"}},
            (),
            ("reconcile.alpha: is not set", "--set reconcile.eta=..."),
        ),
        ({}, ("-o", "chart.gif"), ("-o chart.gif: a chart's name ends in .svg or .html",)),
        ({}, ("-o", "nowhere/chart.svg"), ("-o nowhere/chart.svg: there is no folder nowhere",)),
        ({}, ("--set", "input.label=nope"), ("column 'nope' not found in scores.parquet",)),
    ],
    ids=["of reconcile", "of calibration", "ending", "folder", "label"],
)
def test_what_cannot_be_compared(
    work: Work, changes: dict[str, Any], arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    work.tree |= changes
    told = work.redcal("compare", *arguments)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("redcal compare: ")
    for text in said:
        assert text in told.err


@pytest.mark.parametrize("alpha", ["0", "1.5", "nan", "much"])
def test_an_alpha_that_is_none(work: Work, alpha: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        work.redcal("compare", "--reconcile-alpha", alpha)
    assert ended.value.code == 2
    assert f"must be a number above 0 and up to 1, got '{alpha}'" in capsys.readouterr().err


# --- the mean of both models, and equal costs -----------------------------------------------------


def test_the_mean_of_both_models(work: Work) -> None:
    """By the plain loops, on the holdout rows."""
    found = work.redcal("compare", "--json").json
    table = scores()
    rows = [r for r in table.to_pylist() if r["fold"] == "test" and r["outcome"] is not None]
    one, two = (oracle.grid_scores([r[name] for r in rows]) for name in ("a", "b"))
    mean = [
        [round(Fraction(x + y, 2)) for x, y in zip(*both, strict=True)]
        for both in zip(one, two, strict=True)
    ]
    problem = Problem(
        [r["a"] for r in rows], [r["b"] for r in rows], [CLASSES.index(r["outcome"]) for r in rows],
        {name: loss["costs"] for name, loss in LOSSES.items()}, "redcal",
    )  # fmt: skip
    brier = oracle.brier_sum(mean, oracle.grid_labels(problem))
    assert {row["brier_sum"] for row in found["mean"]["holdout"]} == {str(brier)}
    for row in found["mean"]["holdout"]:
        loss = oracle.decision_loss(problem, row["loss"], mean)
        assert row["decision_loss"] == pytest.approx(float(loss), rel=1e-12)
        assert row["disagreement_rows"] == row["largest_event_rows"] == 0


@pytest.mark.slow
def test_equal_numbers_of_patches_and_of_fitted_values(work: Work) -> None:
    found = work.redcal("compare", "--json").json
    procedures = {one["algorithm"]: one for one in found["procedures"]}
    for one in procedures.values():
        per_patch = 1 if one["algorithm"] == "reconcile" else len(CLASSES)
        assert one["fitted_values"] == per_patch * one["patches"]
    rivals = procedures["redcal"], procedures["reconcile"]
    least = {
        "patches": min(one["patches"] for one in rivals),
        "fitted values": min(one["fitted_values"] for one in rivals),
    }
    for measure, told in found["equal"].items():
        assert told.pop("most") == least[measure] > 0
        for algorithm, at in told.items():
            one = procedures[algorithm]
            per_patch = 1 if measure == "patches" or algorithm == "reconcile" else len(CLASSES)
            assert at["step"] == min(one["patches"], least[measure] // per_patch)
            assert at["spent"] == at["step"] * per_patch
    # by a run that may make no more patches
    steps = found["equal"]["fitted values"]["redcal"]["step"]
    assert 0 < steps < procedures["redcal"]["patches"]
    work.tree["reconcile"]["max_steps"] = steps
    work.redcal("run")
    wrote = [r for r in work.table("out/rows_history").to_pylist() if r["step"] == steps]
    ends = {(r["split"], r["loss"], r["model"]): r["decision_loss"] for r in wrote}
    for split in ("fit", "holdout"):
        for row in found["equal"]["fitted values"]["redcal"][split]:
            assert row["decision_loss"] == ends[split, row["loss"], row["model"]]
    del work.tree["reconcile"]["max_steps"]
    lines = work.redcal("compare").out
    for measure, most in least.items():
        assert f"at {most:,} {measure} at most, holdout rows" in lines
    assert "keeps neither of yours and certifies nothing" in lines

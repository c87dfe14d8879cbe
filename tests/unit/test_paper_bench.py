"""The paper's experiments: draws, curves, verdicts; on made-up predictions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark.runs.compare import PROCEDURES
from tests import oracle
from tests.bench import paper, paper_summary
from tests.bench.__main__ import main
from tests.bench.paper import EXPERIMENTS
from tests.bench.paper_summary import CLAIMS, Mean, at_steps, verdict
from tests.oracle import Problem


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made-up predictions in the form of the real ones."""
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(3)
    label = rng.integers(0, 7, 240)
    skin = {"label": label}
    for name in ("f1", "f2"):
        logits = rng.normal(size=(240, 7))
        logits[np.arange(240), label] += 1.5
        scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        skin[name] = pa.array(scores.astype(np.float32).tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table(skin), folder / "dermamnist.parquet")
    label = np.repeat(np.arange(1_000), 6)
    images: dict[str, Any] = {"label": label}
    for name in ("f1", "f2"):
        cls = np.stack([label, *((label + rng.integers(1, 990) + k) % 1_000 for k in range(4))], 1)
        cls = np.take_along_axis(cls, rng.permuted(np.tile(np.arange(5), (6_000, 1)), axis=1), 1)
        prob = np.sort(rng.dirichlet(np.ones(6), 6_000)[:, :5], axis=1)[:, ::-1]
        images[f"{name}_cls"] = pa.array(cls.astype(np.int16).tolist(), pa.list_(pa.int16()))
        images[f"{name}_prob"] = pa.array(prob.tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table(images), folder / "imagenet_top5.parquet")
    monkeypatch.setenv(paper.VARIABLE, str(folder))
    return folder


def test_parameters_are_the_papers() -> None:
    told = {name: (e.classes, e.actions, e.alpha, e.eta, e.beta) for name, e in EXPERIMENTS.items()}
    assert told == {
        "ham10000": (7, 2, 0.1, 0.01, 0.000001),
        "imagenet_10": (10, 10, 0.01, 0.01, 0.0001),
        "imagenet_100": (100, 10, 0.001, 0.01, 0.00001),
        "imagenet_1000": (1000, 10, 0.0001, 0.01, 0.000001),
    }


@pytest.mark.parametrize(
    ("setting", "eta", "beta", "reconcile_alpha"),
    [
        ("paper", 0.01, 1e-5, 0.001),
        ("auto", 0.01, "auto", 0.05),
        ("finer", 0.002, "auto", 0.05),
        ("tuned", "auto", "auto", 0.05),
    ],
)
def test_settings(setting: Any, eta: Any, beta: Any, reconcile_alpha: float) -> None:
    experiment = EXPERIMENTS["imagenet_100"].under(setting)
    found = experiment.reconciler({"loss": np.eye(100)}).parameters
    assert (found.alpha, found.eta, found.beta) == (0.001, eta, beta)
    assert experiment.reconcile_alpha == reconcile_alpha


def test_a_draw_is_of_chance_and_repeatable(data: Path) -> None:
    experiment = EXPERIMENTS["imagenet_10"]
    one, again, other = (paper.draw(experiment, seed) for seed in (4, 4, 5))
    assert one.f1.shape == one.f2.shape == (60, 10)
    np.testing.assert_allclose(one.f1.sum(axis=1), 1)
    assert one.fitted == 48
    assert (one.costs == again.costs).all() and (one.f1 == again.f1).all()
    assert (one.costs != other.costs).any() and not np.array_equal(one.y, other.y)
    assert not (np.diff(one.y) >= 0).all()  # the file's order is by class
    skin = paper.draw(EXPERIMENTS["ham10000"], 0)
    assert (skin.f1.shape, skin.fitted, skin.costs.shape) == ((240, 7), 120, (2, 7))


@pytest.mark.parametrize("setting", ["paper", "auto"])
def test_the_ends_of_curves_are_the_oracles(data: Path, setting: Any) -> None:
    """ReDCal and Reconcile on one draw, by the plain loops."""
    experiment = replace(EXPERIMENTS["ham10000"].under(setting), max_steps=25)
    drawn = paper.draw(experiment, 1)
    found = paper.everything_of(paper.compared(experiment, drawn))
    assert list(found) == [*PROCEDURES, "mean", "equal"]
    for algorithm in ("redcal", "reconcile"):
        alpha = experiment.reconcile_alpha if algorithm == "reconcile" else experiment.alpha
        beta = experiment.beta if setting == "paper" else "auto"
        rows = {"fit": slice(0, drawn.fitted), "holdout": slice(drawn.fitted, None)}
        given = {
            split: Problem(
                drawn.f1[part].tolist(), drawn.f2[part].tolist(), drawn.y[part].tolist(),
                {"loss": drawn.costs.tolist()}, algorithm,
                alpha=alpha, eta=0.01, beta=beta, max_steps=25,
            )
            for split, part in rows.items()
        }  # fmt: skip
        log = oracle.fit(given["fit"]).log
        assert found[algorithm]["patches"] == len(log) > 2
        for split, problem in given.items():
            f, y = oracle.replay(problem, log), oracle.grid_labels(problem)
            curve = found[algorithm]["curves"][split]
            sums = [oracle.brier_sum(scores, y) for scores in f]
            assert curve["brier"][-1] == pytest.approx(sum(sums) / 2 / len(y) / 2**52, rel=1e-12)
            paid = [oracle.decision_loss(problem, "loss", scores) for scores in (*f, y)]
            gap = float((paid[0] + paid[1]) / 2 - paid[2])
            assert curve["gap"][-1] == pytest.approx(gap, rel=1e-12)
            assert curve["steps"][-1] == len(log)
        assert found[algorithm]["eta"] == 0.01
        before = [
            oracle.decision_loss(problem, "loss", scores) for scores in oracle.replay(problem, [])
        ]
        for ends, was, now in zip(found[algorithm]["falls"], before, paid, strict=False):
            if ends is None:
                assert was == now
            else:
                assert ends[0] < float(was - now) < ends[1]  # what these rows say is inside


def test_the_command(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["paper", "--quick", "ham10000", "imagenet_10", "--to", str(tmp_path / "results")]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    results = tmp_path / "results" / "quick"
    summary = json.loads((results / "summary.json").read_text(encoding="utf-8"))
    assert set(summary) == {"imagenet_10-raw"} | {
        f"{name}-{setting}"
        for name in ("ham10000", "imagenet_10")
        for setting in ("paper", "auto", "tuned")
    }
    for key in summary:
        assert f"| **{key}, 1 draw** | before |" in told
    monkeypatch.setattr(paper, "compared", None)  # nothing is left to compute
    assert main(arguments) == 0
    assert capsys.readouterr().out == told
    with pytest.raises(SystemExit):
        main(["paper", "imagenet_7"])
    assert "no imagenet_7; there are: ham10000, imagenet_10," in capsys.readouterr().err
    (data / "dermamnist.parquet").unlink()
    assert main(arguments) == 2
    assert "no dermamnist.parquet in" in capsys.readouterr().err


def test_curves_carry_their_last_value_on() -> None:
    curve: dict[str, list[float]] = {"steps": [0, 2, 5], "brier": [1.0, 0.5, 0.25]}
    assert at_steps(curve, "brier", [0, 1, 2, 4, 5, 90]).tolist() == [1, 1, 0.5, 0.5, 0.25, 0.25]


def made_up(ends: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Draws that begin at 1.0 and end, after one patch, where it is said; one loss, one Brier."""

    def curve(end: float) -> dict[str, list[float]]:
        curves = {m: [1.0, end] for m in paper_summary.MEASURES}
        return {"steps": [0, 1], **curves}

    return [
        {
            algorithm: {
                "status": "converged", "patches": 1, "rounds": 1, "seconds": 0.1, "eta": 0.01,
                "falls": draw.get(f"{algorithm} fell", [None, None]),
                "curves": {split: curve(draw.get(algorithm, 1.0)) for split in ("fit", "holdout")},
            }
            for algorithm in PROCEDURES
        }
        | {"mean": {split: {"brier": 0.5, "gap": 0.5} for split in ("fit", "holdout")}}
        | {
            "equal": {
                by: {name: {"holdout": {"gap": draw.get(name, 1.0)}} for name in PROCEDURES}
                for by in ("patches", "fitted values")
            }
        }
        for draw in ends
    ]  # fmt: skip


def test_claims_at_equal_cost() -> None:
    equal = {
        by: {"redcal": {"holdout": {"gap": one}}, "reconcile": {"holdout": {"gap": two}}}
        for by, one, two in (("patches", 0.4, 0.8), ("fitted values", 0.6, 0.3))
    }
    ends = {"curves": {"holdout": {"gap": [1.0, 0.4]}}}
    draw = {"redcal": ends, "equal": equal, "mean": {"holdout": {"gap": 0.35}}}
    said = {claim.text: claim for claim in CLAIMS if claim.measure == "gap"}
    for text, difference in (
        ("... at equal numbers of patches", -0.4),
        ("... of fitted values", 0.3),
        ("The mean of both models has a lower loss than ReDCal", -0.05),
    ):
        assert said[text].differences([draw]).tolist() == pytest.approx([difference])


def test_scores_that_are_not_renormalised(data: Path) -> None:
    whole, raw = (paper.draw(EXPERIMENTS["imagenet_10"].under(s), 3) for s in ("auto", "raw"))
    assert (whole.y == raw.y).all() and (whole.costs == raw.costs).all()
    sums = raw.f1.sum(axis=1)
    assert (sums <= 1 + 1e-12).all() and (sums < 0.999).any()
    np.testing.assert_allclose(raw.f1 / sums[:, None], whole.f1)


def test_means_and_standard_errors() -> None:
    mean = Mean.of([1.0, 2.0, 4.0, 5.0])
    assert mean.value == 3
    assert mean.error == pytest.approx(math.sqrt(10 / 3) / 2)
    assert math.isnan(Mean.of([1.0]).error)
    told = paper_summary.summary(made_up([{"redcal": 0.5}, {"redcal": 0.7}]))
    assert told["steps"] == [0, 1]
    line = told["procedures"]["redcal"]["holdout"]["gap"]
    assert line["mean"] == pytest.approx([1.0, 0.6])
    assert line["error"] == pytest.approx([0.0, 0.1])


def test_the_table_of_results() -> None:
    found = made_up([{"redcal": 0.5}, {"redcal": 0.7}])
    lines = paper_summary.results_table({"x": found}).splitlines()
    assert len(lines) == 2 + 1 + len(PROCEDURES)
    assert (
        lines[2] == "| **x, 2 draws** | before | | | 1.0000 | 1.0000 | 1.0000 | 1.0000 | 100.0% |"
    )
    change = " | ".join(["-0.4000 ± 0.1000"] * 4)
    assert f"| | ReDCal | 1.0 | 1.0 | {change} | 60.0% |" in lines


def test_the_table_of_what_is_certified() -> None:
    draws: list[dict[str, Any]] = [
        {"redcal fell": [(0.1, 0.3), (-0.1, 0.5)], "reconcile fell": [(-0.4, -0.2), None]},
        {"redcal fell": [(0.2, 0.4), None]},
    ]
    lines = paper_summary.certified_table({"x": made_up(draws)}).splitlines()
    assert "| ReDCal | 2 fell, 0 rose of 3; ± 0.1667 |" in lines
    assert "| Reconcile | 0 fell, 1 rose of 1; ± 0.1000 |" in lines
    assert "| Decision Calibration | no patch |" in lines
    assert lines[-1] == "| eta | 0.01 |"


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (-0.3, 0.1, "held"),
        (-0.2, 0.1, "not seen"),
        (0.1, 0.1, "not seen"),
        (0.3, 0.1, "the opposite"),
        (0.0, 0.0, "no difference"),
    ],
)
def test_verdicts(value: float, error: float, said: str) -> None:
    assert verdict(Mean(value, error, 5)) == said
    assert verdict(Mean(value, error, 4)) == ("few draws" if value else said)


def test_of_one_draw_there_is_no_error() -> None:
    one = Mean.of([-0.25])
    assert (str(one), verdict(one)) == ("-0.2500", "few draws")
    assert verdict(Mean.of([0.0])) == "no difference"


def test_claims_are_paired_by_draw() -> None:
    # Reconcile and ReDCal vary together: only the difference of each draw tells them apart
    levels = [0.1, 0.9, 0.2, 0.8, 0.5]
    found = made_up(
        [
            {"redcal": x, "reconcile": x + 0.05 + tiny, "dc_then_redcal": 1.2}
            for x, tiny in zip(levels, (0.0, 0.001, 0.002, 0.0, 0.001), strict=True)
        ]
    )
    verdicts = [said for _, _, said in paper_summary.claims(found)]
    named = zip(CLAIMS, verdicts, strict=True)
    said = {
        (claim.measure, claim.lower, claim.than): verdict
        for claim, verdict in named
        if type(claim) is paper_summary.Claim
    }
    assert said["gap", "redcal", "reconcile"] == "held"
    assert said["brier", "reconcile", "redcal"] == "the opposite"
    assert said["gap", "redcal", None] == "held"
    assert said["gap", "dc_then_redcal", "decision_calibration"] == "the opposite"
    assert said["gap", "decision_calibration", None] == "no difference"
    assert "0 / 0 of 5" in paper_summary.claims_table({"x": found})

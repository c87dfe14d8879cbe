"""Real predictions: the oracle's log on a part of the rows, the promises on all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from redcal_spark import ReconciledPair
from redcal_spark.cli import main
from redcal_spark.core.blocks import Block
from redcal_spark.core.metrics import Metrics, brier_sum, measure
from tests import oracle
from tests.helpers import Array, check_brier, fit, fitted, quietly, reconciler, same_as
from tests.oracle import ALGORITHMS, ONE
from tests.real_data import FOLDER, RealSet, load, six_models
from tests.unit.test_layers import ROOT

# Rows for the oracle, which is slow, and its most steps.
SETS = {
    "nfl_elo": (400, 60),
    "dermamnist": (250, 40),
    "mnist_pycalib": (200, 40),
    "imagenet_10": (500, 40),
    "imagenet_100": (150, 8),
}


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SETS)
def test_the_oracles_log_on_a_part_of_the_rows(name: str, algorithm: str) -> None:
    rows, steps = SETS[name]
    problem = load(name).take(rows).problem(algorithm, beta=0.002, max_steps=steps)
    result = oracle.fit(problem)
    pair = fit(problem)
    assert pair.log
    same_as(pair, result)
    assert fitted(pair, problem) == (result.f1, result.f2)


@cache
def whole(name: str) -> tuple[RealSet, ReconciledPair, tuple[Array, Array]]:
    """ReDCal on all rows of a set, and the reconciled scores."""
    data = load(name)
    with quietly():
        pair = reconciler(data.take(1).problem("redcal")).fit(data.f1, data.f2, data.y)
        return data, pair, pair.apply(data.f1, data.f2)


def on_grid(f: Array) -> Array:
    q = np.rint(f.astype(np.float64) * ONE).astype(np.int32)
    return np.stack([ONE - q, q], axis=1) if q.ndim == 1 else q


def exact_error(f: Array, y: Array) -> int:
    return brier_sum(f, y.astype(np.int32))


@pytest.mark.parametrize("name", SETS)
def test_redcal_converges_on_all_rows(name: str) -> None:
    data, pair, new = whole(name)
    assert (pair.status, pair.rows) == ("converged", len(data.y))
    assert pair.log and pair.binary == (name == "nfl_elo")
    block = Block((on_grid(data.f1), on_grid(data.f2)), data.y.astype(np.int32))
    scores = check_brier(block, pair.rules, pair.log, error=exact_error)
    for replayed, applied, old in zip(scores, new, (data.f1, data.f2), strict=True):
        assert np.array_equal(replayed, on_grid(applied))
        same = (replayed == on_grid(old)).all(axis=1)
        assert np.array_equal(applied[same], old[same].astype(np.float64))


@pytest.mark.parametrize("name", SETS)
def test_no_event_of_mass_eta_is_left(name: str) -> None:
    data, pair, new = whole(name)
    y = data.y.astype(np.int32)
    start = Metrics(
        measure(Block((on_grid(data.f1), on_grid(data.f2)), y), pair.rules), pair.losses
    )
    end = Metrics(measure(Block((on_grid(new[0]), on_grid(new[1])), y), pair.rules), pair.losses)
    losses, eta = range(len(pair.losses)), oracle.exact(0.01)
    assert max(start.largest_event(loss) for loss in losses) >= eta
    assert max(end.largest_event(loss) for loss in losses) < eta
    assert all(end.brier(model) <= start.brier(model) for model in (1, 2))


@pytest.mark.parametrize("name", SETS)
def test_fitting_again_on_all_rows_gives_no_patch(name: str) -> None:
    data, _, new = whole(name)
    with quietly():
        again = reconciler(data.take(1).problem("redcal")).fit(*new, data.y)
    assert (again.status, again.log) == ("converged", ())


def test_the_sets_are_what_they_are_said_to_be() -> None:
    """Accuracies as documented beside the data, so that no column was mistaken for another."""
    said = {"dermamnist": (0.881, 0.895), "mnist_pycalib": (0.933, 0.966)}
    for name, accuracies in said.items():
        data = load(name)
        for f, accuracy in zip((data.f1, data.f2), accuracies, strict=True):
            assert round(float((f.argmax(axis=1) == data.y).mean()), 3) == accuracy
    nfl = load("nfl_elo")
    assert round(float(((nfl.f1 > 0.5) == nfl.y).mean()), 2) == 0.64
    assert load("imagenet_10").f1.shape == (500, 10)
    assert load("imagenet_100").f1.shape == (5_000, 100)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_oracles_log_of_six_models(algorithm: str) -> None:
    problem = replace(six_models(90), algorithm=algorithm, beta=0.002, max_steps=12)
    result = oracle.fit(problem)
    pair = fit(problem)
    same_as(pair, result)
    assert fitted(pair, problem) == tuple(result.f)
    assert len(result.log) > 3


def test_the_example_of_six_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's own configuration gives the page's own numbers."""
    six_models(1)  # or skip
    page = (ROOT / "docs/guide/many-models.md").read_text("utf-8")
    example = page[page.index("## An example") :]
    tree = yaml.safe_load(example.split("```yaml\n")[1].split("```")[0])
    tree["input"]["table"] = str(FOLDER / "dermamnist.parquet")
    monkeypatch.chdir(tmp_path)
    Path("six.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
    assert main(["audit", "-c", "six.yaml", "--engine", "local"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for line in example.split("```text\n")[1].split("```")[0].splitlines():
        assert line in printed
    assert main(["run", "-c", "six.yaml", "--engine", "local", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert f"{run['patches']} patches in {run['rounds']} rounds" in example
    measured = {
        (m["name"], m["model"], m["when"]): m["value"]["value"]
        for m in run["certificate"]["measures"]
        if m["split"] == "holdout"
    }
    rows = [line for line in example.splitlines() if line.startswith("| cost of")]
    assert len(rows) == 6
    for number, line in enumerate(rows, 1):
        told = [cell.strip() for cell in line.split("|")[2:4]]
        costs = [measured["decision_loss", number, when] for when in ("before", "after")]
        assert told == [f"{cost:.4f}" for cost in costs]
    apart = [measured["disagreement", None, when] for when in ("before", "after")]
    shares = " | ".join(f"{100 * share:.2f} %" for share in apart)
    assert f"| images on which they disagree | {shares} |" in example

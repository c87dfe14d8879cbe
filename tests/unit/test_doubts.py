"""Fits that are perhaps not meant: few rows, one class, costs that are all alike."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.cli import main
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import few_rows
from redcal_spark.errors import FitWarning

COSTS = [[0, 5], [1, 0]]
FEW = (
    "the fit uses only 5 rows, where an event of one row reaches {}, and may not hold on other rows"
)
ALIKE = (
    "loss 't': every action costs the same in each class, so that no action is ever worse than "
    "another and there is nothing to reconcile"
)


def fitted(rows: int, costs: Any = COSTS, classes: int = 2, **given: Any) -> list[str]:
    """What a fit in Python warns of."""
    rng = np.random.default_rng(2)
    y = np.arange(rows) % classes
    one, two = 0.25 + 0.25 * y + 0.25 * rng.random((2, rows))  # better than 0.5 on every row
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Reconciler(losses={"t": costs}, **{"alpha": 0.01, "eta": 0.1} | given).fit(one, two, y)
    for warning in caught:
        assert warning.category is FitWarning
        assert warning.filename == __file__  # the user's line, not one of the package
    return [str(warning.message) for warning in caught]


def test_nothing_is_told_of_a_usual_fit() -> None:
    assert fitted(400) == []


def test_five_rows() -> None:
    assert fitted(5) == [FEW.format("eta=0.1")]


def test_one_class() -> None:
    assert fitted(400, classes=1) == ["all 400 fitting rows have the same label, class 0"]


MIXED_UP = "equal scores for all classes would have a better Brier score than {}: are the classes"


def mixed_up(change: Any) -> list[str]:
    """What a fit says of three classes, after a change to scores and labels that were right."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 600)
    sharp = 0.8 * np.eye(3)[y] + 0.2 * rng.dirichlet([1, 1, 1], 600)
    one, two, y = change(sharp, 0.9 * sharp + 0.1 / 3, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        costs = [[0, 2, 6], [1, 0, 2], [3, 2, 0]]
        Reconciler(losses={"t": costs}, alpha=0.01, eta=0.1).fit(one, two, y)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda one, two, y: (one, two, y), None),
        (lambda one, two, y: (one, two[:, [2, 0, 1]], y), "model_2"),  # columns in another order
        (lambda one, two, y: (one, two[::-1], y), "model_2"),  # rows in another order
        (lambda one, two, y: (one, two, (y + 1) % 3), "model_1 and model_2"),  # classes
        (lambda one, two, y: (one[:99], two[:99, ::-1], y[:99]), "few rows"),
    ],
)
def test_classes_or_rows_in_another_order(change: Any, named: str | None) -> None:
    told = mixed_up(change)
    if named == "few rows":
        assert [text.startswith("the fit uses only 99 rows") for text in told] == [True]
    elif named is None:
        assert told == []
    else:
        assert [text.startswith(MIXED_UP.format(named)) for text in told] == [True]


def test_equal_scores_are_not_worse_than_equal_scores() -> None:
    assert mixed_up(lambda one, two, y: (0 * one + 0.5, two, y))  # 3 / 4 > 2 / 3
    half = np.full(400, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Reconciler(losses={"t": COSTS}, alpha=0.01, eta=0.1).fit(half, half, np.arange(400) % 2)


@pytest.mark.parametrize("costs", [[[0, 0], [0, 0]], [[7, 7], [7, 7]], [[1, 4], [1, 4]]])
def test_costs_that_are_all_alike(costs: Any) -> None:
    assert fitted(400, costs) == [ALIKE]


@pytest.mark.parametrize("costs", [[[0, 0], [0, 1e-3]], [[0, 4], [0, 4], [1, 3]]])
def test_costs_of_which_some_are_alike(costs: Any) -> None:
    assert fitted(400, costs) == []


def test_a_small_beta() -> None:
    (told,) = fitted(400, beta=1e-6)
    assert told.startswith("beta 1e-06 is ") and "beta='auto' would be" in told


@pytest.mark.parametrize(
    ("rows", "eta", "told"),
    [
        (1, 0.5, "the fit uses only 1 row, where an event of one row reaches {}, and"),
        (5, 0.05, "the fit uses only 5 rows, where an event of one row reaches {}, and"),
        (99, 0.05, "the fit uses only 99 rows, where an event of 5 rows reaches {}, and"),
        (100, 0.05, None),
        (1_000, 0.001, "the fit uses only 1,000 rows, where an event of one row reaches {}, and"),
        (1_001, 0.001, None),  # one row is less than a thousandth of them
    ],
)
def test_how_few_is_few(rows: int, eta: float, told: str | None) -> None:
    for parameters in (
        Parameters(alpha=0.1, eta=eta),
        Parameters(algorithm="reconcile", alpha=0.1, eta=eta),
    ):
        found = few_rows(parameters, rows)
        if told is None:
            assert found is None
        else:
            assert found is not None
            assert found.startswith(told.format(f"reconcile.eta: {eta}"))


def test_decision_calibration_has_no_eta() -> None:
    parameters = Parameters(algorithm="decision_calibration")
    assert few_rows(parameters, 5) == "the fit uses only 5 rows and may not hold on other rows"
    assert few_rows(parameters, 100) is None


def test_a_model_that_is_read_again_warns_of_nothing() -> None:
    with pytest.warns(FitWarning):
        pair = Reconciler(losses={"t": [[0, 0], [0, 0]]}, alpha=0.01, eta=0.1).fit(
            np.array([0.1, 0.9]), np.array([0.2, 0.8]), np.array([0, 1])
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ReconciledPair.from_json(pair.to_json())


@pytest.mark.parametrize("command", ["check", "audit", "run"])
def test_jobs_tell_it_in_the_words_of_a_configuration(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    scores = [0.1, 0.2, 0.4, 0.6, 0.9]
    pq.write_table(pa.table({"a": scores, "b": scores[::-1], "y": [1] * 5}), "rows.parquet")
    tree = {
        "input": {"table": "rows.parquet", "label": "y", "model_1": "a", "model_2": "b"},
        "losses": {"t": {"costs": [[0, 0], [0, 0]]}},
        "reconcile": {"alpha": 0.01, "eta": 0.1},
        "output": {"table": "out", "report": None},
        "engine": {"name": "local"},
    }
    Path("job.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert main([command, "-c", "job.yaml"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.count(FEW.format("reconcile.eta: 0.1")) == 1
    assert told.count(ALIKE) == 1
    alike = told.count("all 5 fitting rows have the same label, class 1")
    assert alike == (command != "check")  # which reads no labels

"""Costs in data frames: whose index names the actions and whose columns name the classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.errors import UsageError
from tests.helpers import refused

ACTIONS, CLASSES = ("wait", "treat"), ("well", "sick")
COSTS = [[0.0, 5.0], [1.0, 2.0]]  # square, and not symmetric: a transpose would be another loss
ROWS = tuple(map(tuple, COSTS))

PANDAS = pd.DataFrame(COSTS, index=ACTIONS, columns=CLASSES)
POLARS = pl.DataFrame({"action": ACTIONS, "well": [0.0, 1.0], "sick": [5.0, 2.0]})

NAMED: dict[str, Any] = {
    "pandas": PANDAS,
    "pandas, from CSV": PANDAS.reset_index(),
    "polars": POLARS,
    "arrow": POLARS.to_arrow(),
    "whole numbers": PANDAS.astype(int),
}
NAMELESS: dict[str, Any] = {
    "lists": COSTS,
    "numpy": np.array(COSTS),
    "numpy integers": np.array(COSTS, int),
    "numpy objects": np.array(COSTS, object),
    "pandas": pd.DataFrame(COSTS),
    "polars": pl.DataFrame(np.array(COSTS)),
    "numbers as text": pd.DataFrame(COSTS, columns=["0", "1"]),
}


@pytest.mark.parametrize("kind", NAMED)
def test_frames_name_both_sides(kind: str) -> None:
    loss = Loss.of("l", NAMED[kind])
    assert (loss.costs, loss.actions, loss.classes) == (ROWS, ACTIONS, CLASSES)


@pytest.mark.parametrize("kind", NAMELESS)
def test_numbers_are_no_names(kind: str) -> None:
    loss = Loss.of("l", NAMELESS[kind])
    assert (loss.costs, loss.actions, loss.classes) == (ROWS, ("0", "1"), None)


def test_actions_given_beside_a_frame_without_names() -> None:
    loss = LossFamily.of({"l": {"costs": pd.DataFrame(COSTS), "actions": list(ACTIONS)}})[0]
    assert (loss.costs, loss.actions) == (ROWS, ACTIONS)
    same = LossFamily.of({"l": {"costs": PANDAS, "actions": list(ACTIONS)}})[0]
    assert same.actions == ACTIONS


def test_actions_that_are_not_those_of_the_frame() -> None:
    given = {"l": {"costs": PANDAS, "actions": ["treat", "wait"]}}
    assert refused(UsageError, lambda: LossFamily.of(given)) == (
        "loss 'l': the actions are 'treat', 'wait', and the rows of the costs are called 'wait', "
        "'treat'; name them once, or in the same order"
    )


def reconciler(costs: Any, **given: Any) -> Reconciler:
    return Reconciler(losses=costs, alpha=0.01, eta=0.05, **given)


def test_classes_must_be_those_of_the_frame() -> None:
    assert reconciler({"l": PANDAS}, classes=CLASSES).columns.classes == CLASSES
    found = refused(UsageError, lambda: reconciler({"l": PANDAS}, classes=["sick", "well"]))
    assert found == (
        "classes: are sick, well, and the columns of the costs are well, sick; give both in the "
        "same order"
    )
    turned = {"l": PANDAS, "m": PANDAS[["sick", "well"]]}
    assert refused(UsageError, lambda: reconciler(turned)) == (
        "losses must have the same classes (columns) in one order: 'l': 'well', 'sick'; "
        "'m': 'sick', 'well'"
    )


@pytest.mark.parametrize("costs", [PANDAS, POLARS], ids=["pandas", "polars"])
def test_labels_by_the_names_of_the_frame(costs: Any) -> None:
    rng = np.random.default_rng(1)
    one, two, y = rng.random(500), rng.random(500), rng.integers(0, 2, 500)
    plain = reconciler({"l": {"costs": COSTS, "actions": ACTIONS}}).fit(one, two, y)
    pair = reconciler({"l": costs, "m": COSTS}).fit(one, two, np.array(CLASSES)[y])
    assert plain.log and pair.log[0].to_json() == plain.log[0].to_json()
    assert pair.columns.classes == CLASSES
    again = ReconciledPair.from_json(pair.to_json())
    assert again.columns.classes == CLASSES and again.losses[0].actions == ACTIONS


WRONG: list[tuple[Any, str]] = [
    (
        pd.DataFrame(COSTS, columns=[1, 0]),
        "the columns of the costs are 1, 0: give the names of the classes as text, or number them "
        "from 0 to 1 in their order",
    ),
    (
        pd.DataFrame(COSTS, columns=["well", 1]),
        "the columns of the costs are 'well', 1: give the names of the classes as text, or number "
        "them from 0 to 1 in their order",
    ),
    (pd.DataFrame(COSTS, columns=["a", "a"]), "the columns of the costs repeat: a, a"),
    (pd.DataFrame(COSTS, index=["a", "a"]), "action names repeat: a, a"),
    (
        pd.DataFrame(COSTS, index=[0.5, None]),
        "the index of the costs names the actions by text, and has 0.5",
    ),
    (
        pd.DataFrame([[0.0, None], [1.0, 2.0]]),
        "1 costs are not finite; first: action 0, class 1: nan",
    ),
    (
        pl.DataFrame({"well": [0.0, 1.0], "sick": [5.0, None]}),
        "cost of action 1, class 1 is not a number: None",
    ),
    (
        pl.DataFrame({"well": [0.0, 1.0], "sick": ["x", "y"]}),
        "cost of action 0, class 1 is not a number: 'x'",
    ),
    (
        POLARS.lazy(),
        "costs are a LazyFrame of polars, which cannot be read here; give a DataFrame of pandas or "
        "polars, an array, or lists",
    ),
    (pd.DataFrame(), "costs are empty: give one list of class costs per action"),
]


@pytest.mark.parametrize(("costs", "line"), WRONG)
def test_frames_that_cannot_be_costs(costs: Any, line: str) -> None:
    found = refused(UsageError, lambda: Loss.of("l", costs))
    assert found.startswith(f"loss 'l': {line}")


def test_three_dimensions_are_no_matrix() -> None:
    for costs in (np.zeros((2, 3, 4)), np.zeros((2, 3, 4)).tolist()):
        found = refused(UsageError, partial(Loss.of, "l", costs))
        assert found.startswith("loss 'l': cost of action 0, class 0 is not a number: ")


def test_an_arrow_table_is_not_its_transpose() -> None:
    table = pa.table({"well": [0.0, 1.0], "sick": [5.0, 2.0]})
    assert Loss.of("l", table).costs == ROWS

"""What a table looks like: forms of scores, labels, ids, and what is told when in doubt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark.errors import InputError
from redcal_spark.model.guess import guess
from tests.helpers import refused

N = 200
RNG = np.random.default_rng(4)


def simplex(d: int, seed: int) -> Any:
    truth = np.random.default_rng(7).integers(0, d, N)
    noise = np.random.default_rng(seed).normal(0, 0.7, (N, d)) + 2.5 * np.eye(d)[truth]
    return np.exp(noise) / np.exp(noise).sum(axis=1, keepdims=True)


def truth(d: int) -> Any:
    return np.random.default_rng(7).integers(0, d, N)


def test_arrays_and_an_index() -> None:
    table = pa.table(
        {
            "customer_id": np.arange(N),
            "champion": simplex(3, 1).tolist(),
            "challenger": simplex(3, 2).tolist(),
            "income": RNG.normal(size=N),
            "outcome": truth(3),
        }
    )
    known = guess(table, "t")
    assert known.model_1.columns == ("champion",) and known.model_2.columns == ("challenger",)
    assert (known.label, known.id, known.classes, known.doubts) == (
        "outcome",
        "customer_id",
        None,
        {},
    )


def test_columns_a_class_each() -> None:
    names = ["low", "mid", "high"]
    one, two = simplex(3, 1), simplex(3, 2)
    columns: dict[str, Any] = {f"a_{n}": one[:, j] for j, n in enumerate(names)}
    columns |= {f"b_{n}": two[:, j] for j, n in enumerate(names)}
    columns |= {"risk": [names[k] for k in truth(3)]}
    known = guess(pa.table(columns), "t")
    assert known.model_1.columns == ("a_low", "a_mid", "a_high")
    assert known.model_2.columns == ("b_low", "b_mid", "b_high")
    assert known.classes == ("low", "mid", "high")  # by the ends of the columns, not the alphabet
    assert "classes" not in known.doubts and known.id is None


def test_two_single_columns_are_a_guess() -> None:
    table = pa.table(
        {
            "key": [f"k{i}" for i in range(N)],
            "pd_old": simplex(2, 1)[:, 1],
            "pd_new": simplex(2, 2)[:, 1],
            "default": truth(2),
        }
    )
    known = guess(table, "t")
    assert (known.model_1.form, known.model_1.columns, known.label) == (
        "binary",
        ("pd_old",),
        "default",
    )
    assert "P(class 1)" in known.doubts["model_1"] and known.id == "key"


def test_names_in_the_order_of_the_scores() -> None:
    names = ["zebra", "ape", "newt"]  # not the alphabet's
    table = pa.table(
        {
            "a": simplex(3, 1).tolist(),
            "b": simplex(3, 2).tolist(),
            "animal": [names[k] for k in truth(3)],
        }
    )
    known = guess(table, "t")
    assert known.classes == ("zebra", "ape", "newt") and "check" in known.doubts["classes"]
    assert guess(table, "t", ["zebra", "ape", "newt"]).doubts.keys() == {"label"}


def test_more_than_two_models_are_told() -> None:
    table = pa.table({n: simplex(3, i).tolist() for i, n in enumerate("abc")} | {"y": truth(3)})
    assert guess(table, "t").doubts == {"model_1": "these look like scores, too: c (input.models)"}


def test_an_earlier_result_is_no_model() -> None:
    scores = {"a": simplex(3, 1).tolist(), "a_reconciled": simplex(3, 1).tolist()}
    table = pa.table(scores | {"b": simplex(3, 2).tolist(), "y": truth(3)})
    known = guess(table, "t")
    assert (known.model_1.columns, known.model_2.columns) == (("a",), ("b",))


def test_a_split_that_is_there() -> None:
    table = pa.table(
        {
            "a": simplex(3, 1).tolist(),
            "b": simplex(3, 2).tolist(),
            "y": truth(3),
            "part": ["Train", "test"] * (N // 2),
        }
    )
    assert guess(table, "t").split == ("part", "Train", "test")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": simplex(3, 1).tolist(), "y": truth(3)}, "no two models' scores"),
        ({"a": simplex(3, 1).tolist(), "b": simplex(4, 1).tolist(), "y": truth(3)}, "same form"),
        ({"a": simplex(3, 1).tolist(), "b": simplex(3, 2).tolist()}, "looks like a label of 3"),
    ],
)
def test_nothing_to_guess_from_is_refused(columns: dict[str, Any], words: str) -> None:
    assert words in refused(InputError, lambda: guess(pa.table(columns), "t"))


def test_rows_without_scores_or_labels_do_no_harm() -> None:
    a: list[Any] = simplex(3, 1).tolist()
    a[0] = None
    labels: list[Any] = ["xyz"[k] for k in truth(3)]
    labels[1] = None
    known = guess(pa.table({"a": a, "b": simplex(3, 2).tolist(), "y": labels}), "t")
    assert known.classes == ("x", "y", "z")

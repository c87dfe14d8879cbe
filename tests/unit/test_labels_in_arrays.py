"""Labels in arrays: which of them are none, in every way that numpy and its friends have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.errors import InputError
from tests.helpers import refused

N, D = 300, 3
NAMES = ["low", "mid", "high"]
RNG = np.random.default_rng(8)
P1, P2 = (RNG.dirichlet(np.ones(D), N) for _ in range(2))
Y = RNG.integers(0, D, N)
ABSENT = RNG.random(N) < 0.3
NAN = float("nan")


def fit(labels: Any, **given: Any) -> ReconciledPair:
    losses = {"t": [[0, 4, 9], [3, 0, 4], [8, 4, 0]]}
    return Reconciler(losses=losses, alpha=0.01, eta=0.05, **given).fit(P1, P2, labels)


@pytest.fixture(scope="module")
def expected() -> ReconciledPair:
    """Of the labelled rows alone."""
    losses = {"t": [[0, 4, 9], [3, 0, 4], [8, 4, 0]]}
    pair = Reconciler(losses=losses, alpha=0.01, eta=0.05).fit(P1[~ABSENT], P2[~ABSENT], Y[~ABSENT])
    assert len(pair.log) >= 3
    return pair


def floats(kind: Any) -> Any:
    return np.where(ABSENT, np.nan, Y).astype(kind)


def objects(nothing: Any) -> Any:
    return np.array([nothing if a else int(y) for a, y in zip(ABSENT, Y, strict=True)], object)


def vectors(nothing: Any) -> list[Any]:
    one_hot = np.eye(D)[Y].tolist()
    return [nothing if a else y for a, y in zip(ABSENT, one_hot, strict=True)]


def names(nothing: Any) -> list[Any]:
    return [nothing if a else NAMES[y] for a, y in zip(ABSENT, Y, strict=True)]


LABELS: dict[str, Any] = {
    "float64": lambda: floats(np.float64),
    "float32": lambda: floats(np.float32),
    "float16": lambda: floats(np.float16),
    "a list with NaN": lambda: floats(np.float64).tolist(),
    "a list with None": lambda: objects(None).tolist(),
    "objects with None": lambda: objects(None),
    "objects with NaN": lambda: objects(NAN),
    "masked integers": lambda: np.ma.array(Y, mask=ABSENT),
    "masked vectors": lambda: np.ma.array(np.eye(D)[Y], mask=np.repeat(ABSENT[:, None], D, 1)),
    "vectors with NaN": lambda: np.array(vectors([NAN] * D)),
    "float32 vectors with NaN": lambda: np.array(vectors([NAN] * D), np.float32),
    "vectors of objects": lambda: np.array(vectors([None] * D), object),
    "a list of vectors with None": lambda: vectors(None),
    "a list of vectors with NaN": lambda: vectors(NAN),
    "arrays and None": lambda: [None if y is None else np.array(y) for y in vectors(None)],
    "pandas": lambda: pd.Series(floats(np.float64)),
    "pandas integers": lambda: pd.Series(objects(None), dtype="Int64"),
    "polars": lambda: pl.Series(objects(None).tolist()),
    "polars with NaN": lambda: pl.Series(floats(np.float64)),
    "polars lists": lambda: pl.Series(vectors(None)),
    "polars lists of NaN": lambda: pl.Series(vectors([NAN] * D)),
}


@pytest.mark.parametrize("kind", LABELS)
def test_rows_without_a_label_are_not_fitted(kind: str, expected: ReconciledPair) -> None:
    pair = fit(LABELS[kind]())
    assert pair.rows == N - ABSENT.sum()
    assert list(pair.log) == list(expected.log)


@pytest.mark.parametrize("nothing", [None, NAN], ids=["None", "NaN"])
@pytest.mark.parametrize("kind", ["list", "objects", "pandas", "polars"])
def test_names_of_classes(kind: str, nothing: Any, expected: ReconciledPair) -> None:
    given = names(nothing)
    made: dict[str, Any] = {
        "list": given,
        "objects": np.array(given, object),
        "pandas": pd.Series(given),
        "polars": pl.Series([None if y is nothing else y for y in given]),
    }
    pair = fit(made[kind], classes=NAMES)
    assert pair.rows == N - ABSENT.sum()
    assert list(pair.log) == list(expected.log)


def test_the_name_nan_is_a_label() -> None:
    given = ["nan" if y == 0 else NAMES[y] for y in Y]
    pair = fit(given, classes=["nan", *NAMES[1:]])
    assert (pair.rows, list(pair.log)) == (N, list(fit(Y).log))


def test_a_vector_with_some_nan_is_a_mistake() -> None:
    labels = np.eye(D)[Y]
    labels[7, 1] = np.nan
    assert "column 'label': 1 row with NaN or infinity; first: row 7" in refused(
        InputError, lambda: fit(labels)
    )


def test_one_hot_labels_as_pandas_makes_them() -> None:
    hot = pd.get_dummies(Y)
    assert {kind.kind for kind in hot.dtypes} == {"b"}
    assert fit(hot).log == fit(hot.to_numpy()).log == fit(Y).log != ()


def test_infinity_is_no_missing_label() -> None:
    labels = Y.astype(float)
    labels[7] = np.inf
    assert "no class index from 0 to 2; first: row 7: inf" in refused(
        InputError, lambda: fit(labels)
    )


def test_nobody_labelled() -> None:
    assert "has no rows to fit on: of 300 rows 300 have no label" in refused(
        InputError, lambda: fit(np.full(N, np.nan))
    )


def test_scores_have_no_such_rule() -> None:
    scores = P1.copy()
    scores[7] = np.nan
    model = Reconciler(losses={"t": [[0, 4, 9], [3, 0, 4]]}, alpha=0.01, eta=0.05)
    assert "'model_1': 1 row with NaN or infinity" in refused(
        InputError, lambda: model.fit(scores, P2, Y)
    )
    hidden = np.ma.array(P1, mask=np.arange(N * D).reshape(N, D) == 22)
    assert "'model_1': 1 row with a null among its values; first: row 7" in refused(
        InputError, lambda: model.fit(hidden, P2, Y)
    )


def test_in_arrow_nan_is_a_number_and_null_is_none() -> None:
    """Who has both means something by each."""
    columns = {"model_1": P1.tolist(), "model_2": P2.tolist()}
    model = Reconciler(losses={"t": [[0, 4, 9], [3, 0, 4]]}, alpha=0.01, eta=0.05)
    labels = floats(np.float64)
    assert f"{ABSENT.sum()} rows with a label that is no class index" in refused(
        InputError, lambda: model.fit(pa.table(columns | {"label": labels}))
    )
    pair = model.fit(pa.table(columns | {"label": pa.array(labels, from_pandas=True)}))
    assert pair.rows == N - ABSENT.sum()

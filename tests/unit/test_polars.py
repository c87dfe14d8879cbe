"""polars in, polars out."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.errors import InputError, UsageError
from tests.helpers import refused

N, D = 400, 3
RNG = np.random.default_rng(6)
P1, P2 = (RNG.dirichlet(np.ones(D), N) for _ in range(2))
Y = RNG.integers(0, D, N)
COSTS = [[0, 4, 9], [3, 0, 4], [8, 4, 0]]
NAMES = np.array(["low", "mid", "high"])

LISTS, ARRAYS = pl.List(pl.Float64), pl.Array(pl.Float64, D)


def reconciler(**given: Any) -> Reconciler:
    return Reconciler(losses={"t": COSTS}, alpha=0.01, eta=0.05, threads=1, **given)


def frame(kind: Any = LISTS, **more: Any) -> pl.DataFrame:
    columns = {
        "kind": pl.Series(["u", "v"] * (N // 2), dtype=pl.Categorical),
        "model_1": pl.Series(P1.tolist(), dtype=kind),
        "model_2": pl.Series(P2.tolist(), dtype=kind),
        "label": pl.Series(Y),
        "thing": pl.Series([object()] * N, dtype=pl.Object),  # Arrow has no such type
    }
    return pl.DataFrame(columns | more)


@pytest.fixture(scope="module")
def expected() -> ReconciledPair:
    pair = reconciler().fit(P1, P2, Y)
    assert len(pair.log) >= 3
    return pair


LABELS: dict[str, Any] = {
    "index": lambda: pl.Series(Y),
    "names": lambda: pl.Series(NAMES[Y]),
    "categories": lambda: pl.Series(NAMES[Y], dtype=pl.Categorical),
    "enum": lambda: pl.Series(NAMES[Y], dtype=pl.Enum(NAMES.tolist())),
    "vectors": lambda: pl.Series(np.eye(D)[Y].tolist()),
}


@pytest.mark.parametrize("kind", LABELS)
def test_fit(kind: str, expected: ReconciledPair) -> None:
    pair = reconciler(classes=NAMES.tolist()).fit(frame(label=LABELS[kind]()))
    assert list(pair.log) == list(expected.log)


def test_null_is_no_label_and_nan_is_refused_as_in_arrow(expected: ReconciledPair) -> None:
    labels = [None, *Y[1:].tolist()]
    assert reconciler().fit(frame(label=pl.Series(labels))).rows == N - 1
    wrong = frame(label=pl.Series([float("nan"), *Y[1:].astype(float).tolist()]))
    assert "label that is no class index from 0 to 2; first: row 0: nan" in refused(
        InputError, lambda: reconciler().fit(wrong)
    )


@pytest.mark.parametrize("kind", [LISTS, ARRAYS], ids=["lists", "arrays"])
def test_apply_gives_polars_with_columns_added(kind: Any, expected: ReconciledPair) -> None:
    given = frame(kind)
    found = expected.apply(given)
    assert type(found) is pl.DataFrame
    assert_frame_equal(found.drop("thing")[:, : given.width - 1], given.drop("thing"))
    assert found.columns[: given.width] == given.columns
    arrow = expected.apply(
        pa.table({"model_1": P1.tolist(), "model_2": P2.tolist(), "label": Y.tolist()})
    )
    added = arrow.column_names[3:]
    assert found.columns[given.width :] == added
    assert found.schema["model_1_reconciled"] == kind
    assert found.schema["touched"] == pl.Boolean and any(found["touched"])
    for name in added:
        assert found[name].to_list() == arrow[name].to_pylist(), name


def test_one_number_a_row() -> None:
    given = pl.DataFrame({"model_1": P1[:, 0], "model_2": P2[:, 0], "label": np.minimum(Y, 1)})
    pair = Reconciler(losses={"t": [[0, 5], [1, 0]]}, alpha=0.01, eta=0.05).fit(given)
    found = pair.apply(given.drop("label"))
    assert pair.log and found.schema["model_1_reconciled"] == pl.Float64


def test_bad_rows_pass_through(expected: ReconciledPair) -> None:
    given = frame(model_1=pl.Series([None, [0.5], *P1[2:].tolist()], dtype=LISTS))
    assert "model_1" in refused(InputError, lambda: expected.apply(given))
    found = expected.apply(given, on_bad_rows="skip")
    assert found["valid"].to_list() == [False, False] + [True] * (N - 2)
    assert found["model_1_reconciled"].to_list()[:2] == [None, [0.5]]


def test_no_rows(expected: ReconciledPair) -> None:
    found = expected.apply(frame().clear())
    assert found.height == 0 and found.schema["model_1_reconciled"] == LISTS
    assert refused(InputError, lambda: reconciler().fit(frame().clear())) == "the data has no rows"


def test_explain_takes_a_row_of_polars(expected: ReconciledPair) -> None:
    touched = int(np.flatnonzero(expected.apply(frame())["touched"].to_numpy())[0])
    wanted = expected.explain(P1[touched], P2[touched]).to_json()
    assert wanted["steps"]
    assert expected.explain(frame()[touched]).to_json() == wanted
    assert expected.explain(frame().row(touched, named=True)).to_json() == wanted


def test_series_are_arrays(expected: ReconciledPair) -> None:
    given = frame()
    pair = reconciler().fit(given["model_1"], given["model_2"], given["label"])
    assert list(pair.log) == list(expected.log)
    one, two = pair.apply(given["model_1"], given["model_2"])
    wanted = expected.apply(P1, P2)
    assert np.array_equal(one, wanted[0]) and np.array_equal(two, wanted[1])


def test_a_missing_column_is_named_among_those_that_are_there(expected: ReconciledPair) -> None:
    assert refused(InputError, lambda: expected.apply(frame().drop("model_2"))) == (
        "column 'model_2' not found in the data; it has: kind, model_1, label, thing"
    )


def test_a_lazy_frame_is_refused_with_the_way_out(expected: ReconciledPair) -> None:
    told = "data is a polars LazyFrame, which has no rows yet: give data.collect()"
    lazy = frame().lazy()
    calls: list[Any] = [reconciler().fit, expected.apply, expected.explain]
    for call in calls:
        assert refused(UsageError, partial(call, lazy)) == told


def test_python_objects_are_no_labels() -> None:
    given = frame().drop("label").rename({"thing": "label"})
    assert "label column 'label' has type" in refused(InputError, lambda: reconciler().fit(given))


def test_polars_is_never_imported_by_the_package() -> None:
    script = (
        "import sys; import numpy as np, pandas as pd; from redcal_spark import Reconciler\n"
        "p = np.linspace(0, 1, 200); y = (p > .5).astype(int)\n"
        "pair = Reconciler(losses={'t': [[0, 5], [1, 0]]}, alpha=.1, eta=.1).fit(p, p ** 2, y)\n"
        "pair.apply(pd.DataFrame({'model_1': p, 'model_2': p ** 2}))\n"
        "print('polars' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]

"""What people are used to: scikit-learn's tools, any table, one row, examples that run."""

from __future__ import annotations

import gc
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from arro3.core import Table as Arro3Table
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.errors import InputError, UsageError
from redcal_spark.model.evaluation import Evaluation
from redcal_spark.model.plots import Plots
from tests.helpers import Array, refused

LOSSES = {"lend": {"costs": [[0, 5], [1, 0]], "actions": ["approve", "refuse"]}}
GIVEN: dict[str, Any] = {"losses": LOSSES, "alpha": 0.01, "eta": 0.02, "threads": 1}


@cache
def rows() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 2_000)
    one, two = np.clip(0.3 + 0.4 * y + rng.normal(0, 0.25, (2, 2_000)), 0, 1)
    return one, two, y


@cache
def vectors() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 2_000)
    scores = rng.random((2, 2_000, 3)) + 0.6 * np.eye(3)[y]
    one, two = scores / scores.sum(axis=2, keepdims=True)
    return one, two, y


@cache
def pair() -> ReconciledPair:
    return Reconciler(**GIVEN).fit(*rows())


@cache
def of_vectors() -> ReconciledPair:
    losses = {"route": [[0, 2, 4], [1, 0, 1], [3, 2, 0]]}
    return Reconciler(**GIVEN | {"losses": losses}).fit(*vectors())


def same(one: Any, two: Any) -> None:
    assert np.array_equal(np.asarray(one), np.asarray(two))


# --- scikit-learn ---------------------------------------------------------------------------------


def test_params_and_clone() -> None:
    reconciler = Reconciler(**GIVEN)
    given = reconciler.get_params()
    assert given["alpha"] == 0.01 and given["losses"] is LOSSES and given["guard"] == "report"
    reconciler.fit(*rows())
    twin = clone(reconciler)
    assert twin is not reconciler and not hasattr(twin, "pair_")
    assert repr(twin) == repr(reconciler)
    assert twin.set_params(eta=0.05, max_steps=3) is twin
    assert (twin.parameters.eta, twin.parameters.max_steps, twin.parameters.alpha) == (
        0.05,
        3,
        0.01,
    )
    assert len(twin.fit(*rows()).log) <= 3 and len(reconciler.pair_.log) > 3
    words = refused(UsageError, lambda: twin.set_params(etta=1))
    assert "no parameter 'etta'; there are: losses, algorithm, alpha" in words
    assert "eta: must be 'auto' or in (0, 1], got 7" in refused(
        UsageError, lambda: twin.set_params(eta=7)
    )
    assert twin.parameters.eta == 0.05, "a wrong value changes nothing"
    assert not hasattr(twin.set_params(eta=0.02), "pair_")


def test_transform_takes_both_models_side_by_side() -> None:
    one, two, y = rows()
    both = np.column_stack([one, two])
    reconciler = Reconciler(**GIVEN)
    assert "nothing is fitted yet" in refused(UsageError, lambda: reconciler.transform(both))
    new = reconciler.fit_transform(both, y)
    same(new, np.column_stack(pair().apply(one, two)))
    assert reconciler.pair_.log == pair().log
    one, two, y = vectors()
    wide = np.hstack([one, two])
    reconciler = Reconciler(**GIVEN | {"losses": of_vectors().losses})
    same(reconciler.fit_transform(wide, y), np.hstack(of_vectors().apply(one, two)))
    words = refused(InputError, lambda: reconciler.fit(wide[:, :5], y))
    assert "as many columns for each; got 5 columns" in words
    frame = pd.DataFrame({"model_1": rows()[0], "model_2": rows()[1]})
    fitted = Reconciler(**GIVEN).fit(frame, rows()[2])
    assert fitted.log == pair().log
    words = refused(UsageError, lambda: Reconciler(**GIVEN).fit(frame.assign(label=1), rows()[2]))
    assert "has the column 'label'" in words
    assert "labels are missing" in refused(UsageError, lambda: Reconciler(**GIVEN).fit(*rows()[:2]))


class TwoModels(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # it has no types
    """Two rules of thumb, each on one feature."""

    def fit(self, X: Array, y: Array) -> TwoModels:
        self.fitted_ = True
        return self

    def transform(self, X: Array) -> Array:
        return np.clip(0.5 + 0.3 * X[:, :2], 0, 1)


def test_the_last_step_of_a_pipeline() -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 2_000)
    X = rng.normal(size=(2_000, 2)) + 2 * y[:, None] - 1
    pipeline = make_pipeline(TwoModels(), Reconciler(**GIVEN))
    check_is_fitted(pipeline.fit(X, y))
    scores = TwoModels().transform(X)
    expected = Reconciler(**GIVEN).fit(scores[:, 0], scores[:, 1], y)
    assert len(expected.log) > 0
    same(pipeline.transform(X), np.column_stack(expected.apply(*scores.T)))
    same(clone(pipeline).fit_transform(X, y), pipeline.transform(X))
    pipeline.set_params(reconciler__eta=0.5)
    assert pipeline[-1].parameters.eta == 0.5
    named = Pipeline([("scores", TwoModels()), ("reconcile", Reconciler(**GIVEN))])
    assert "Reconciler" in named.fit(X, y)._repr_html_()


# --- tables ---------------------------------------------------------------------------------------


def table() -> pa.Table:
    one, two, y = rows()
    return pa.table({"note": ["x"] * len(y), "model_1": one, "model_2": two, "label": y})


class OnlyArrow:
    """Something that speaks Arrow and nothing else."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return table().__arrow_c_stream__(requested_schema)


def relation() -> Any:
    rows_of_duckdb = table()
    made = duckdb.connect().sql("SELECT * FROM rows_of_duckdb").select("*")
    assert rows_of_duckdb.num_rows
    return made


KINDS = {
    "pandas": lambda: table().to_pandas(),
    "polars": lambda: pl.DataFrame(table()),
    "arrow": table,
    "batch": lambda: table().combine_chunks().to_batches()[0],
    "reader": lambda: table().to_reader(),
    "arro3": lambda: Arro3Table.from_arrow(table()),
    "duckdb": relation,
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_of_table_comes_back(kind: str) -> None:
    given = KINDS[kind]()
    assert Reconciler(**GIVEN).fit(KINDS[kind]()).log == pair().log
    new = pair().apply(given)
    assert type(new) is type(given)
    gc.collect()
    back = pa.table(new) if kind != "pandas" else pa.Table.from_pandas(new)
    assert back.column_names[:4] == table().column_names
    assert back["note"].to_pylist()[:2] == ["x", "x"]
    expected = pair().apply(*rows()[:2])
    same(back["model_1_reconciled"].to_numpy(), expected[0])
    same(back["model_2_reconciled"].to_numpy(), expected[1])
    assert set(back["lend_1_after"].to_pylist()) == {"approve", "refuse"}


def test_a_relation_stays_on_its_connection() -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE scores AS SELECT i AS case_id, 0.2 AS model_1, 0.7 AS model_2 "
        "FROM range(5) t(i)"
    )
    new = pair().apply(connection.table("scores"))
    joined = new.set_alias("new").join(connection.table("scores").set_alias("old"), "case_id")
    assert len(joined.fetchall()) == 5


def test_what_only_speaks_arrow_gives_arrow() -> None:
    new = pair().apply(OnlyArrow())
    assert isinstance(new, pa.Table)
    same(new["model_1_reconciled"].to_numpy(), pair().apply(*rows()[:2])[0])
    words = refused(UsageError, lambda: pair().apply(7))
    assert "a DuckDB relation" in words and "got int" in words


# --- one row --------------------------------------------------------------------------------------


def test_one_row_of_numbers() -> None:
    one, two, _ = rows()
    new = pair().apply(one, two)
    for i in range(40):
        assert pair().apply(float(one[i]), float(two[i])) == (new[0][i], new[1][i])
        assert pair().apply(one[i], two[i]) == (new[0][i], new[1][i])
    one, two, _ = vectors()
    new = of_vectors().apply(one, two)
    for i in range(40):
        for kind in (lambda x: x, list):
            row = of_vectors().apply(kind(one[i]), kind(two[i]))
            same(row[0], new[0][i])
            same(row[1], new[1][i])
    four = of_vectors().apply(one[0], two[0], normalise=True)
    assert len(four) == 4 and four[2].shape == (3,)
    assert "outside [0, 1]" in refused(InputError, lambda: pair().apply(1.2, 0.3))


def test_one_row_with_names() -> None:
    whole = pair().apply(table().to_pandas())
    for i in (0, 3, 17):
        series = table().to_pandas().iloc[i]
        expected = whole.iloc[i]
        for given in (series.to_dict(), series):
            new = pair().apply(given)
            assert type(new) is type(given)
            assert list(new.keys()) == list(whole.columns)
            for name in whole.columns:
                assert new[name] == expected[name], name
        assert pair().apply(series).name == i
    few: dict[str, Any] = pair().apply({"model_1": 0.2, "model_2": 0.7})
    assert few["touched"] in (True, False) and few["lend_1_before"] in ("approve", "refuse")
    words = refused(InputError, lambda: pair().apply({"model_1": 0.2}))
    assert "column 'model_2' not found" in words
    fitted = Reconciler(**GIVEN, id="note").fit(
        table().set_column(0, "note", pa.array([str(i) for i in range(2_000)]))
    )
    assert fitted.apply({"model_1": 0.2, "model_2": 0.7})["model_1_reconciled"] >= 0
    assert fitted.apply(0.2, 0.7) == pair().apply(0.2, 0.7)


# --- examples -------------------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, str]]:
    for owner in (Reconciler, ReconciledPair, Plots, Evaluation):
        members = {owner.__name__: owner} | {
            f"{owner.__name__}.{name}": member
            for name, member in inspect.getmembers(owner)
            if not name.startswith("_")
        }
        for name, member in members.items():
            text = textwrap.dedent(" " * 4 + (member.__doc__ or ""))
            for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
                yield name, textwrap.dedent(code)


EXAMPLES = list(examples())


def test_every_method_has_an_example() -> None:
    shown = {name for name, _ in EXAMPLES}
    for owner, names in (
        (Reconciler, ("fit", "transform", "fit_transform", "get_params", "set_params")),
        (
            ReconciledPair,
            (
                *("apply", "transform", "changes", "explain", "summary", "report", "evaluate"),
                *("save", "load", "history"),
            ),
        ),
        (Plots, ("steps", "disagreement", "costs", "patches")),
    ):
        for name in names:
            assert f"{owner.__name__}.{name}" in shown
    assert "Reconciler" in shown


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    one, two, y = rows()
    names = {
        "p1": one,
        "p2": two,
        "y": y,
        "np": np,
        "pd": pd,
        "Reconciler": Reconciler,
        "ReconciledPair": ReconciledPair,
        "reconciler": Reconciler(**GIVEN),
        "pair": pair(),
    }
    names["seen"] = pair().evaluate(one, two, y)
    exec(compile(code, name, "exec"), names)
    pyplot.close("all")


def test_pandas_rows_in_another_order_are_refused() -> None:
    one, two, y = (pd.Series(values, name="x") for values in rows())
    assert len(Reconciler(**GIVEN).fit(one, two, y).log) == len(pair().log)
    shuffled = two.sample(frac=1, random_state=1)
    wrong = f"place 0 is 0 in one and {shuffled.index[0]} in the other; rows are paired by place"
    fit = Reconciler(**GIVEN).fit
    for given, named in (
        ((one, shuffled, y), "the scores of model 1 and the scores of model 2 have different"),
        ((one, two, y[shuffled.index]), "the scores of model 1 and the labels have different"),
        ((pd.DataFrame({"model_1": one, "model_2": two}), y[shuffled.index]), "the data and the"),
    ):
        told = refused(InputError, partial(fit, *given))
        assert named in told and wrong in told
    assert "different indexes" in refused(InputError, lambda: pair().apply(one, shuffled))
    Reconciler(**GIVEN).fit(one, shuffled.to_numpy(), y)  # whoever says so has looked
    Reconciler(**GIVEN).fit(one.rename(str), two.rename(str), y.to_numpy())


def test_columns_in_another_order_are_refused() -> None:
    one, two, y = vectors()
    names = ["well", "ill", "grave"]
    a, b = (pd.DataFrame(scores, columns=names) for scores in (one, two))
    losses = {"route": [[0, 2, 4], [1, 0, 1], [3, 2, 0]]}
    reconciler = Reconciler(**GIVEN | {"losses": losses})
    mixed = ["grave", "ill", "well"]
    wrong = (
        "columns in another order: the scores of model 1: well, ill, grave; the scores of model 2: "
        "grave, ill, well; they are taken by their place: put them in the same order, "
        "[['well', 'ill', 'grave']]"
    )
    assert wrong in refused(InputError, lambda: reconciler.fit(a, b[mixed], y))
    assert wrong in refused(InputError, lambda: reconciler.fit([a, b[mixed]], y))
    fitted = reconciler.fit(a, b, y)
    assert fitted.log == of_vectors().log
    same(fitted.apply(a, b)[0], of_vectors().apply(one, two)[0])
    with pytest.raises(InputError, match="in another order"):
        fitted.apply(a, b[mixed])
    for again in (fitted.apply, partial(fitted.evaluate, labels=y)):
        told = refused(InputError, partial(again, a[mixed], b[mixed]))
        assert "the scores that were fitted: well, ill, grave; the scores of model 1: grav" in told
    other = b.set_axis(["w", "i", "g"], axis=1)  # names that say nothing
    assert reconciler.fit(a, other, y).log == fitted.log
    named = Reconciler(**GIVEN | {"losses": losses, "classes": names})
    told = refused(InputError, lambda: named.fit(a[mixed], b[mixed], y))
    assert "the classes: well, ill, grave; the scores of model 1: grave, ill, well" in told
    table = pa.Table.from_pandas(a)
    assert "in another order" in refused(
        InputError, lambda: fitted.apply(table, table.select(mixed))
    )


def test_a_frame_with_more_than_scores_is_told_by_column() -> None:
    one, two, y = vectors()
    frames = [pd.DataFrame(scores, columns=["p0", "p1", "p2"]) for scores in (one, two)]
    for frame in frames:
        frame.insert(0, "id", "x")
    fit = Reconciler(**GIVEN | {"losses": {"route": [[0, 2, 4], [1, 0, 1], [3, 2, 0]]}}).fit
    told = refused(InputError, lambda: fit(frames[0], frames[1], y))
    wanted = "column 'id' holds text; give the scores alone, [['p0', 'p1', 'p2']]"
    assert told == f"the scores of model 1: {wanted}"


def test_a_split_that_leaves_nothing_to_fit_says_by_what_it_goes() -> None:
    one, two, y = rows()
    frame = pd.DataFrame({"model_1": one, "model_2": two, "label": y, "region": "north", "id": 7})
    told = refused(InputError, lambda: Reconciler(**GIVEN).fit(frame, holdout="region"))
    assert "rows with 'fit' in column 'region' are fitted, those with 'holdout' held out" in told
    told = refused(InputError, lambda: Reconciler(**GIVEN, id="id").fit(frame, holdout=0.99))
    assert "rows with the same 'id' stay together: do its values tell rows apart?" in told


def test_labels_in_other_letters_are_told_the_classes() -> None:
    one, two, y = rows()
    names = np.array(["bad", "good"])[y]
    told = refused(
        InputError, lambda: Reconciler(**GIVEN, classes=["Bad", "Good"]).fit(one, two, names)
    )
    assert "(the classes are 'Bad', 'Good', in these very letters)" in told

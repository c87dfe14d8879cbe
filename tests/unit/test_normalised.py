"""Scores divided by their sum: beside the reconciled ones, exact, null where the sum is 0."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.errors import InputError, UsageError
from tests.helpers import DRAWN, batches_of, fit, quietly, refused
from tests.oracle import ONE, Problem
from tests.problems import problems

LOSSES = {"act": {"costs": [[0, 1, 2], [1, 0, 0]], "actions": ["wait", "treat"]}}
ROWS = [[0.5, 0.25, 0.5], [0.25, 0.25, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.125]]
DIVIDED = [[0.4, 0.2, 0.4], [0.25, 0.25, 0.5], None, [0.0, 0.0, 1.0]]
NEW = ["model_1_reconciled_normalised", "model_2_reconciled_normalised"]


@pytest.fixture(scope="module")
def pair() -> ReconciledPair:
    """Models that agree: no patch, so that scores are what was given."""
    with quietly():
        found = Reconciler(losses=LOSSES, alpha=0.1, eta=0.5).fit(ROWS, ROWS, [0, 1, 2, 2])
    assert not found.log
    return found


def test_arrow(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ROWS, "model_2": ROWS[::-1]})
    done = pair.apply(table, normalise=True)
    assert done[NEW[0]].type == pa.list_(pa.float64())
    assert done[NEW[0]].to_pylist() == DIVIDED
    assert done[NEW[1]].to_pylist() == DIVIDED[::-1]
    plain = pair.apply(table)
    assert done.column_names == [*plain.column_names[:4], *NEW, *plain.column_names[4:]]
    assert done.drop_columns(NEW).equals(plain)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(ROWS)), 3)
    same = pair.apply(pa.table({"model_1": fixed, "model_2": fixed}), normalise=True)
    assert same[NEW[0]].to_pylist() == DIVIDED


def test_pandas(pair: ReconciledPair) -> None:
    frame = pd.DataFrame({"model_1": ROWS, "model_2": ROWS}, index=[7, 5, 3, 1])
    done = pair.apply(frame, normalise=True)
    assert list(done.index) == [7, 5, 3, 1]
    for found, wanted in zip(done[NEW[0]], DIVIDED, strict=True):
        assert found is None if wanted is None else list(found) == wanted


def test_polars(pair: ReconciledPair) -> None:
    polars = pytest.importorskip("polars")
    done = pair.apply(polars.DataFrame({"model_1": ROWS, "model_2": ROWS}), normalise=True)
    assert isinstance(done, polars.DataFrame)
    assert done[NEW[0]].to_list() == DIVIDED


def test_numpy(pair: ReconciledPair) -> None:
    new_1, _, sum_1, sum_2 = pair.apply(np.array(ROWS), np.array(ROWS), normalise=True)
    assert new_1.tolist() == ROWS
    for found in (sum_1, sum_2):
        assert found.shape == (4, 3)
        assert np.isnan(found[2]).all()
        assert [found[i].tolist() for i in (0, 1, 3)] == [DIVIDED[i] for i in (0, 1, 3)]
    assert pair.apply(np.empty((0, 3)), np.empty((0, 3)), normalise=True)[2].shape == (0, 3)


def test_separate_columns(pair: ReconciledPair) -> None:
    names = [f"{model}{j}" for model in "ab" for j in range(3)]
    table = pa.table(np.hstack([ROWS, ROWS]).T.tolist(), names=names)
    given: Any = {"model_1": names[:3], "model_2": names[3:]}
    labelled = table.append_column("label", pa.array([0, 1, 2, 2]))
    with quietly():
        made = Reconciler(losses=LOSSES, alpha=0.1, eta=0.5, **given).fit(labelled)
    done = made.apply(table, normalise=True, suffix="_v2")
    found = done.select([f"{name}_v2_normalised" for name in names]).to_pydict().values()
    rows = [None if row[0] is None else list(row) for row in zip(*found, strict=True)]
    assert rows == [wanted and wanted * 2 for wanted in DIVIDED]


def test_bad_rows_are_null(pair: ReconciledPair) -> None:
    bad = [None, [0.5, 0.25, 0.5], [7.0, 0.0, 0.0], [0.5]]
    table = pa.table({"model_1": bad, "model_2": ROWS})
    done = pair.apply(table, normalise=True, on_bad_rows="skip")
    assert done[NEW[0]].to_pylist() == [None, DIVIDED[0], None, None]
    assert done[NEW[1]].to_pylist() == [None, DIVIDED[1], None, None]


@DRAWN
@given(problems(binary=False))
def test_every_one_is_the_nearest_to_the_true_quotient(problem: Problem) -> None:
    """By fractions; and nothing else is different."""
    [batch] = batches_of(problem, ())
    table = pa.Table.from_batches([batch])
    with quietly():
        made = fit(problem)
        plain, done = made.apply(table), made.apply(table, normalise=True)
    assert done.drop_columns(NEW).equals(plain)
    for name in ("model_1_reconciled", "model_2_reconciled"):
        rows = zip(done[name].to_pylist(), done[f"{name}_normalised"].to_pylist(), strict=True)
        for raw, found in rows:
            grid = [round(p * ONE) for p in raw]
            total = sum(grid)
            assert found == ([float(Fraction(q, total)) for q in grid] if total else None)


def test_one_column_has_nothing_to_divide() -> None:
    binary = Reconciler(losses={"act": [[0, 1], [1, 0]]}, alpha=0.1, eta=0.5)
    made = binary.fit([0.25, 0.5], [0.25, 0.5], [0, 1])
    told = refused(UsageError, lambda: made.apply([0.5], [0.5], normalise=True))
    assert told == (
        "normalise: the scores are one column P(class 1) for each model, and P(class 0) is the "
        "rest: they sum to 1 as they are. Leave it out"
    )


def test_anything_but_true_or_false(pair: ReconciledPair) -> None:
    word: Any = "no"
    told = refused(UsageError, lambda: pair.apply(ROWS, ROWS, normalise=word))
    assert told == "normalise: must be True or False, got 'no'"


def test_a_column_of_that_name(pair: ReconciledPair) -> None:
    table = pa.table({"model_1": ROWS, "model_2": ROWS, NEW[1]: [1, 2, 3, 4]})
    assert pair.apply(table).num_rows == 4
    told = refused(InputError, lambda: pair.apply(table, normalise=True))
    assert told.startswith(f"the data has already the column {NEW[1]!r}; name the new ones")

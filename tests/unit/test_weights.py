"""Weights as they are read: what is a multiple of the unit, what is refused, and by what words."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark import Reconciler
from redcal_spark.core.additive import Additive
from redcal_spark.core.weights import (
    Weights,
    common_unit,
    multiples,
    summed,
    weighted_product,
    weighted_squares,
)
from redcal_spark.errors import InputError, UsageError
from redcal_spark.model.pair import ReconciledPair
from tests import oracle
from tests.helpers import DRAWN, refused

LOSS = {"zero_one": [[0.0, 1.0], [1.0, 0.0]]}
UNITS = (1.0, 0.1, 0.25, 0.001, 1e-6, 0.3, 7.0, 2.5, 1e-9, 1e20)


def model(**options: Any) -> Reconciler:
    given: dict[str, Any] = {"losses": LOSS, "alpha": 0.1, "eta": 0.2, "beta": 0.1}
    return Reconciler(**given | options)


def table(w: Any, **columns: Any) -> pa.Table:
    n = len(w)
    rows = {"model_1": [0.9] * n, "model_2": [0.1] * n, "label": [1, 0] * (n // 2), "w": w}
    return pa.table(rows | columns)


# --- multiples ------------------------------------------------------------------------------------


def judged(value: Any, unit: Fraction) -> int | None:
    """As the oracle has it: None where it refuses."""
    try:
        return oracle.weight_of(value, unit)
    except ValueError:
        return None


def same(values: Any, unit: float, kind: pa.DataType | None = None) -> None:
    w, codes = multiples(pa.array(values, kind), oracle.exact(unit))
    for value, found, code in zip(values, w.tolist(), codes.tolist(), strict=True):
        expected = judged(value, oracle.exact(unit))
        assert (code == 0) == (expected is not None), (value, unit)
        if expected is not None:
            assert found == min(expected, 2**37), (value, unit)


FLOATS = st.floats(0, 2.0**40) | st.floats(0, 100, width=32)
NEAR = st.tuples(st.integers(0, 2**40), st.integers(-2, 2))


@DRAWN
@given(st.sampled_from(UNITS), st.lists(FLOATS, max_size=20), st.lists(NEAR, max_size=20))
def test_floats_are_judged_as_fractions_are(unit: float, any_: Any, near: Any) -> None:
    """Also a few units in the last place beside a multiple, where float64 might be fooled."""
    for kind in (np.float64, np.float32):
        values = [kind(x) for x in any_]
        for k, steps in near:
            value = kind(float(k * oracle.exact(unit)))
            for _ in range(abs(steps)):
                value = np.nextafter(value, kind(np.inf if steps > 0 else 0))
            values.append(value)
        same(values, unit)


def test_multiples_of_a_tenth_in_every_type() -> None:
    tenths = [x / 10 for x in range(0, 5_000, 7)]
    whole = list(range(0, 5_000, 7))
    for values in (tenths, np.array(tenths, np.float32), [Decimal(str(x)) for x in tenths]):
        w, codes = multiples(pa.array(values), Fraction(1, 10))
        assert w.tolist() == whole and not codes.any()
    half = np.array([0.5, 1.5, 2.0], np.float16)
    assert multiples(pa.array(half), Fraction(1, 10))[0].tolist() == [5, 15, 20]


def test_a_half_between_two_multiples_goes_to_the_even_one() -> None:
    """A float32 that is as near to one multiple as to the next, and stands for both."""
    value = np.float32(2**20 + 0.25)
    w, codes = multiples(pa.array([value]), Fraction(1, 10))
    assert (w.tolist(), codes.tolist()) == ([10_485_762], [0])
    assert judged(value, Fraction(1, 10)) == 10_485_762


def test_integers_and_decimals_are_compared_exactly() -> None:
    same([0, 5, 7, 10, 2**53 + 1], 5.0)
    same([0, 1, 2**62], 1e-6)
    unsigned = pa.array([2**64 - 1, 2], pa.uint64())
    w, codes = multiples(unsigned, Fraction(2))
    assert (w.tolist(), codes.tolist()) == ([2**37, 1], [3, 0])
    same([Decimal("0.10"), Decimal("0.15"), Decimal("0.3")], 0.1)
    tiny = pa.array([Decimal("0.1000000000000000000001")])
    assert multiples(tiny, Fraction(1, 10))[1].tolist() == [3]
    assert multiples(pa.array([0.1]), Fraction(1, 10))[1].tolist() == [0]


# --- sums -----------------------------------------------------------------------------------------


def test_sums_that_add_up_to_nearly_two_to_the_37() -> None:
    rng = np.random.default_rng(5)
    w = rng.integers(2**26, 2**27, 1_000)
    assert 2**27 < w.sum() < 2**37
    grid = rng.integers(0, 2**26, (1_000, 3), endpoint=True)
    exact = (grid.astype(object) * w[:, None]).sum(axis=0).tolist()
    a = np.ones((1, 1_000))
    assert weighted_product(a, grid.astype(float), w)[0].tolist() == exact
    assert weighted_product(-a, grid.astype(float), w)[0].tolist() == [-x for x in exact]
    keys = rng.integers(0, 4, 1_000)
    for j in range(3):
        by_key = [int((grid[keys == k, j].astype(object) * w[keys == k]).sum()) for k in range(4)]
        assert summed(keys, grid[:, j], 4, w).tolist() == by_key
    signed = grid - 2**25
    squares = int(((signed.astype(object) ** 2) * w[:, None]).sum())
    assert weighted_squares(signed, w) == squares > 2**64


def test_what_is_known_of_all_weights_adds_up() -> None:
    w = np.array([1, 2**36, 5])
    known = Weights.of(w)
    assert known == Weights(3, 2**72 + 26, 2**36)
    assert known + Weights.of(np.array([7])) == Weights(4, 2**72 + 75, 2**36)
    assert isinstance(known, Additive)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "line"),
    [
        ([1.0, None], "1 row with null; first: row 1: None"),
        ([1.0, -2.0], "1 row with a negative weight; first: row 1: -2.0"),
        ([1, -2], "1 row with a negative weight; first: row 1: -2"),
        ([1.0, float("nan")], "1 row with a weight that is NaN or infinite; first: row 1: nan"),
        ([1.0, float("inf")], "1 row with a weight that is NaN or infinite; first: row 1: inf"),
        (
            [0.5, 0.75],
            "2 rows with a weight that is no multiple of 1; first: row 0: 0.5, row 1: 0.75; "
            "weight_unit=0.25 would do",
        ),
        (
            [1 / 3, 2.0],
            "1 row with a weight that is no multiple of 1; first: row 0: 0.3333333333333333; they "
            "have too many digits: round them to three decimals, say, and set "
            "weight_unit=0.001",
        ),
    ],
)
def test_bad_weights_are_counted_and_named(w: Any, line: str) -> None:
    message = refused(InputError, lambda: model(weight="w").fit(table(w)))
    assert f"column 'w': {line}" in message
    assert "on_bad_rows='skip' passes such rows through untouched" in message


def test_the_unit_that_is_proposed_fits() -> None:
    w = np.array([0.3, 1.2, 2.0, 0.75] * 5, np.float32)
    message = refused(InputError, lambda: model(weight="w").fit(table(w)))
    assert "weight_unit=0.05 would do" in message
    pair = model(weight="w", weight_unit=0.05).fit(table(w))
    assert pair.rows == 5 * (6 + 24 + 40 + 15)
    assert common_unit(Fraction(1), Fraction(3, 4)) == Fraction(1, 4)


def test_bad_rows_can_be_skipped() -> None:
    w = [1.0, 2.0, -1.0, 0.5, None, float("nan")]
    pair = model(weight="w", on_bad_rows="skip").fit(table(w))
    assert pair.rows == 3
    assert pair.weights == Weights(2, 5, 2)


def test_weights_are_looked_at_on_labelled_rows_only() -> None:
    w = [1.0, 2.0, -1.0, None]
    pair = model(weight="w").fit(table(w, label=[1, 0, None, None]))
    assert pair.rows == 3
    assert pair.apply(table(w).drop_columns(["w", "label"])).num_rows == 4


def test_no_weight_at_all_is_an_error() -> None:
    message = refused(InputError, lambda: model(weight="w").fit(table([0, 0, 0, 0])))
    assert message == (
        "the data has no rows to fit on: of 4 rows 0 have no label and 0 cannot be used and 4 have "
        "the weight 0"
    )


def test_too_much_weight_is_an_error() -> None:
    for w in ([2.0**37, 1.0], [2**36] * 2, [1e300, 1.0]):
        message = refused(InputError, partial(model(weight="w").fit, table(w)))
        assert "the weights in column 'w' add up to" in message and "2^37" in message
    assert model(weight="w").fit(table([2**36, 2**36 - 1])).rows == 2**37 - 1


def test_a_column_of_weights_is_one_of_numbers() -> None:
    message = refused(InputError, lambda: model(weight="w").fit(table(["1", "2"])))
    assert "weight column 'w' has type string; weights are numbers; first: '1'" in message
    message = refused(InputError, lambda: model(weight="none").fit(table([1, 2])))
    assert "column 'none' not found" in message


@pytest.mark.parametrize("unit", [0, -1, float("nan"), float("inf"), "1", True, None])
def test_a_unit_is_a_number_above_0(unit: Any) -> None:
    message = refused(UsageError, lambda: model(weight_unit=unit))
    assert message == f"weight_unit: must be a number above 0, got {unit!r}"


def test_arrays_come_with_their_weights() -> None:
    one, two, y = [0.9] * 4, [0.1] * 4, [1, 0, 1, 0]
    pair = model().fit(one, two, y, weight=[1, 2, 3, 4])
    assert (pair.rows, pair.columns.weight) == (10, "weight")
    assert "weights are missing" in refused(UsageError, lambda: model(weight="w").fit(one, two, y))
    message = refused(UsageError, lambda: model().fit(table([1, 2]), weight=[1, 2]))
    assert "of a table name the column" in message
    short = refused(InputError, lambda: model().fit(one, two, y, weight=[1, 2]))
    assert "arrays of different length" in short and "weight: 2" in short


# --- the model ------------------------------------------------------------------------------------


def test_the_unit_is_kept_with_the_log() -> None:
    pair = model(weight="w", weight_unit=0.5).fit(table([0.5, 1.5, 1e9, 2.0]))
    again = ReconciledPair.from_json(pair.to_json())
    assert again.to_json() == pair.to_json()
    assert (again.weights, again.columns.weight_unit) == (pair.weights, 0.5)
    assert pair.to_json()["weights"]["squares"] == str(1 + 9 + 4 * 10**18 + 16)
    plain = model().fit(table([1, 2]))
    assert plain.to_json()["weights"] is None


def test_weightless_rows_are_applied() -> None:
    rows = table([0, 3, 0, 2])
    pair = model(weight="w").fit(rows)
    assert pair.rows == 5
    new = pair.apply(rows)
    assert len(pair.log) and new["touched"].to_pylist() == [True] * 4

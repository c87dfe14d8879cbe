"""Exact numbers, on values where the plain form in int64 or float64 is shown to be wrong."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redcal_spark.algorithms.decision_calibration import largest_above
from redcal_spark.algorithms.redcal import more_wrong
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import (
    ONE,
    exact,
    from_grid,
    grid_size,
    loss_bits,
    on_grid,
    rounded_mean,
    sum_of_squares,
    to_grid,
)
from redcal_spark.core.losses import Loss
from redcal_spark.core.metrics import brier_sum
from redcal_spark.core.sums import Sums
from redcal_spark.settings import MAX_CLASSES
from tests import oracle
from tests.helpers import DRAWN, squared_error

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


# The grid


def test_scores_are_rounded_half_to_even() -> None:
    halves = np.array([0, 0.5, 1, 1.5, 2.5, 3.5]) / ONE
    assert to_grid(halves).tolist() == [0, 0, 1, 2, 2, 4]
    assert to_grid(np.array([-1e-17, 1 + 1e-15])).tolist() == [0, ONE]


def test_what_is_on_the_grid() -> None:
    assert on_grid(to_grid(np.array([0.0, -1e-17, 1.0, 1 + 1e-15])))
    for wrong in (-1e-3, 1.001, np.nan, np.inf, -np.inf):
        assert not on_grid(to_grid(np.array([0.5, wrong])))


@DRAWN
@given(st.lists(st.integers(0, ONE), min_size=1))
def test_a_grid_integer_survives_its_float(q: list[int]) -> None:
    grid = np.array(q, dtype=np.int32)
    assert to_grid(from_grid(grid)).tolist() == q


def test_float32_loses_grid_values_so_new_scores_are_float64() -> None:
    q = np.array([ONE - 1, 2**25 + 1], dtype=np.int32)
    assert to_grid(from_grid(q).astype(np.float32)).tolist() != q.tolist()
    assert from_grid(q).dtype == np.float64


@pytest.mark.parametrize(
    ("written", "meant"), [(0.1, "1/10"), (1e-5, "1/100000"), (0.3, "3/10"), (1, "1")]
)
def test_a_parameter_is_the_decimal_that_was_written(written: float, meant: str) -> None:
    assert exact(written) == Fraction(meant)


def test_bits_of_the_losses() -> None:
    bits = {d: loss_bits(d) for d in (2, 3, 1024, 1025, 2048, 2049, 8193, MAX_CLASSES)}
    assert bits == {2: 26, 3: 26, 1024: 26, 1025: 25, 2048: 25, 2049: 24, 8193: 22, 16_384: 22}
    for d in bits:  # scores stay below 2^62
        assert d * ONE * 2 ** loss_bits(d) <= 2**62


@DRAWN
@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**17))
@example(Fraction(16))
@example(Fraction(2**52))
@example(2**52 + Fraction(1, 10**9))
@example(Fraction(2**50) - Fraction(1, 3))
def test_grid_size_is_the_least_power_of_two(bound: Fraction) -> None:
    m = 1
    while m < ONE and m * m < bound:
        m *= 2
    assert grid_size(bound) == (m, m * m >= bound)


# Rounded means


def by_fractions(num: list[int], den: int, step: int) -> list[int]:
    return [round(Fraction(x, den * step)) * step for x in num]


@DRAWN
@given(
    st.integers(1, 2**37), st.integers(0, 26), st.lists(st.fractions(-1, 1), min_size=1, max_size=6)
)
def test_rounded_mean_is_that_of_fractions(den: int, bits: int, means: list[Fraction]) -> None:
    num = [int(mean * den * ONE) for mean in means]
    num = [max(-(2**63) + 1, min(2**63 - 1, x)) for x in num]
    step = ONE >> bits
    found = rounded_mean(np.array(num, dtype=np.int64), den, step)
    assert found.tolist() == by_fractions(num, den, step)


@pytest.mark.parametrize("den", [1, 3, 2**20 + 7, 2**36 - 1, 2**37 - 1])
@pytest.mark.parametrize("bits", [1, 2, 13, 24, 25])
def test_halves_go_to_even_however_many_rows_there_are(den: int, bits: int) -> None:
    step = ONE >> bits
    halves = [k * den * step // 2 for k in (-5, -3, -1, 1, 3, 5)]
    halves = [x for x in halves if abs(x) <= den * ONE and abs(x) < 2**63]
    beside = [x + off for x in halves for off in (-1, 0, 1)]
    found = rounded_mean(np.array(beside, dtype=np.int64), den, step)
    assert found.tolist() == by_fractions(beside, den, step)


def test_float64_alone_would_round_a_near_half_wrongly() -> None:
    den, step = 2**36 + 1, ONE >> 1
    num = np.array([den * step // 2 + 1, den * step // 2 - 1], dtype=np.int64)
    naive = (np.rint(num / (den * step)) * step).astype(np.int64)
    right = by_fractions(num.tolist(), den, step)
    assert naive.tolist() != right
    assert rounded_mean(num, den, step).tolist() == right == [step, 0]


def test_rounding_is_odd_so_that_a_binary_pair_keeps_its_sum() -> None:
    step = ONE >> 3
    for x in range(-40, 41):
        one = rounded_mean(np.array([x * step // 4, -x * step // 4], dtype=np.int64), 1, step)
        assert one.sum() == 0


# Sums of squares


def test_brier_sums_beyond_1024_bad_rows() -> None:
    n = 1_100
    f = np.tile(np.array([ONE, ONE, 0], dtype=np.int32), (n, 1))
    y = np.full(n, 2, dtype=np.int32)
    right = 3 * n * ONE**2  # every coordinate is off by 1
    error = f.astype(np.int64) - np.eye(3, dtype=np.int64)[y] * ONE
    assert int((error**2).sum()) != right  # int64 has overflowed
    assert brier_sum(f, y) == right
    assert brier_sum(f, (np.eye(3)[y] * ONE).astype(np.int32)) == right


def test_brier_sums_that_float64_would_round() -> None:
    f = np.array([[ONE, 1], [ONE, 1]], dtype=np.int32)
    y = np.array([1, 1], dtype=np.int32)
    right = 2 * (ONE**2 + (ONE - 1) ** 2)
    assert brier_sum(f, y) == right
    many = np.repeat(f, 3_000, axis=0)
    labels = np.ones(6_000, dtype=np.int32)
    plain = (many - np.eye(2)[labels] * ONE).reshape(-1)
    assert int(plain @ plain) != 3_000 * right  # past 2^53
    assert brier_sum(many, labels) == 3_000 * right


@DRAWN
@given(st.lists(st.integers(-ONE, ONE), min_size=1, max_size=50))
@example([ONE] * 50)
@example([-ONE, ONE - 1, 8191, 8192, -8193])
def test_sum_of_squares_is_that_of_python_integers(x: list[int]) -> None:
    assert sum_of_squares(np.array(x, dtype=np.int32)) == sum(value * value for value in x)


def test_brier_sum_across_chunks_is_exact() -> None:
    rng = np.random.default_rng(1)
    f = rng.integers(0, ONE + 1, (40_000, 3), dtype=np.int32)
    y = rng.integers(0, ONE + 1, (40_000, 3), dtype=np.int32)
    assert brier_sum(f, y) == squared_error(f, y)


# The choice of the model


def test_the_choice_of_the_model_beyond_2000_rows() -> None:
    # Both models are off by n * ONE in one coordinate, model 2 by one grid step more; times a
    # quantised cost of 2^26 that is n * 2^52, beyond int64 from 2^11 rows on.
    n = 4_096
    loss = Loss.of("l", [[0, 1], [1, 0]])
    labels = np.array([n * ONE, 0], dtype=np.int64)
    scores = np.array([[1, n * ONE], [0, n * ONE]], dtype=np.int64)
    sums = Sums(labels, scores)
    contrast = loss.quantised[0] - loss.quantised[1]
    with np.errstate(over="ignore"):
        naive = [abs(int((sums.residual(i) * contrast).sum())) for i in (1, 2)]
    exactly = [
        abs(sum(r * c for r, c in zip(sums.residual(i).tolist(), contrast.tolist(), strict=True)))
        for i in (1, 2)
    ]
    assert exactly[0] < exactly[1]
    assert naive[0] >= naive[1]  # int64 would choose model 1
    assert more_wrong(sums, loss, Disagreement(0, 0, 1)) == 2


def test_float64_could_not_choose_the_model_either() -> None:
    n = 2**30
    loss = Loss.of("l", [[0, 1], [1, 0]])
    labels = np.array([n * ONE, 0], dtype=np.int64)
    for scores, model in (([[1, 0], [0, 0]], 2), ([[0, 0], [1, 0]], 1), ([[1, 0], [1, 0]], 1)):
        one, two = (np.array(s, dtype=np.int64) for s in scores)
        sums = Sums(labels, np.stack([one, two]))
        floats = [abs(float((labels - s).astype(float) @ [-ONE, ONE])) for s in (one, two)]
        assert floats[0] == floats[1]
        assert more_wrong(sums, loss, Disagreement(0, 0, 1)) == model


# The largest residual


def python_norms(sums: list[list[int]]) -> list[int]:
    return [sum(x * x for x in row) for row in sums]


def check_largest(sums: list[list[int]], bound: int) -> None:
    norms = python_norms(sums)
    expected = norms.index(max(norms)) if max(norms) > bound else None
    assert largest_above(bound, np.array(sums, dtype=np.int64)) == expected


def test_squared_norms_overflow_int64() -> None:
    sums = [[2**32, 0], [3, 4]]
    array = np.array(sums, dtype=np.int64)
    assert (array * array).sum(axis=1).tolist()[0] == 0  # 2^64 is 0
    check_largest(sums, 10**18)
    check_largest(sums, 2**64)
    check_largest(sums, 2**64 - 1)


NEAR = [
    [[2**53, 1], [2**53, 2], [2**53, 0]],
    [[2**53, 2], [2, 2**53], [2**53, 1]],  # a tie: the first
    [[2**60, 2**31, 5], [2**60, 5, 2**31 + 1], [-(2**60), 2**31, -5]],
    [[2**62 + 1, 0], [2**62, 0]],
    [[0, 0], [0, 0]],
]


@pytest.mark.parametrize("sums", NEAR)
def test_near_ties_that_float64_cannot_tell_apart(sums: list[list[int]]) -> None:
    floats = [float(np.sum(np.array(row, dtype=np.float64) ** 2)) for row in sums]
    assert max(floats) - min(floats) <= 1e-15 * max(floats)
    largest = max(python_norms(sums))
    for bound in (0, largest - 1, largest, largest + 1):
        check_largest(sums, bound)


@DRAWN
@given(
    st.integers(1, 5).flatmap(
        lambda d: st.lists(st.lists(INT64, min_size=d, max_size=d), min_size=1, max_size=6)
    ),
    st.integers(-2, 2),
)
def test_largest_above_is_that_of_python_integers(sums: list[list[int]], off: int) -> None:
    check_largest(sums, max(0, max(python_norms(sums)) + off))
    check_largest(sums, 0)


@DRAWN
@given(INT64, st.lists(st.integers(-3, 3), min_size=4, max_size=8))
def test_cells_that_differ_by_a_unit(large: int, units: list[int]) -> None:
    sums = [[max(-(2**63) + 1, min(2**63 - 1, large + unit)), unit] for unit in units]
    check_largest(sums, 0)


def test_oracle_and_package_agree_on_float_bits() -> None:
    """Both read a score by the same IEEE rounding; one value on each side of a half."""
    for k in (12345, 54321, ONE - 1):
        half = (k + 0.5) / ONE
        below, above = np.nextafter(half, 0), np.nextafter(half, 1)
        found = to_grid(np.array([below, half, above])).tolist()
        assert found == [oracle.quantise(float(p)) for p in (below, half, above)]
        assert found[0] == k and found[2] == k + 1
        assert struct.pack("d", below) != struct.pack("d", half)

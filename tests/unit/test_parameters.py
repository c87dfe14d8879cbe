"""Parameters: the decimal that was written, auto beta, the size of the patch grid, refusals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.parameters import ALGORITHMS, Parameters, auto_beta
from redcal_spark.errors import UsageError
from tests import oracle, problems
from tests.helpers import DRAWN, fit, refused
from tests.oracle import Problem

ETAS = (1.0, 0.7, 0.5, 0.3, 0.1, 0.05, 0.01, 0.001, 1e-6)
ROWS = (1, 2, 3, 7, 24, 25, 26, 100, 2_500, 11_095, 10**6, 10**9, 2**37 - 1)


def searched_beta(eta: Fraction, rows: int) -> Fraction:
    """Every two-digit decimal, the largest that fits."""
    fits = [
        Fraction(a, 10**k)
        for k in range(1, 20)
        for a in range(10, 100)
        if Fraction(a, 10**k) ** 2 <= eta / (4 * rows)
    ]
    return max(fits)


@pytest.mark.parametrize("rows", ROWS)
def test_auto_beta_is_the_largest_two_digit_decimal_that_fits(rows: int) -> None:
    for eta in map(oracle.exact, ETAS):
        assert auto_beta(eta, rows) == searched_beta(eta, rows)


@DRAWN
@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_auto_beta_on_drawn_numbers(rows: int, millionths: int) -> None:
    eta = Fraction(millionths, 10**6)
    assert auto_beta(eta, rows) == searched_beta(eta, rows)


@pytest.mark.parametrize(
    ("n", "eta", "beta"), [(1, 1.0, "0.5"), (25, 1.0, "0.1"), (100, 0.1, "0.015")]
)
def test_auto_beta_by_hand(n: int, eta: float, beta: str) -> None:
    given = Parameters(alpha=0.1, eta=eta)
    assert given.resolve(n, 2).beta == Fraction(beta)
    alone = replace(given, algorithm="decision_calibration", eta=0.001)
    assert alone.resolve(n, 2).beta == searched_beta(Fraction(1), n)
    assert replace(given, algorithm="reconcile").resolve(n, 2).beta is None


def searched_m(bound: Fraction) -> int:
    return next((2**k for k in range(26) if (2**k) ** 2 >= bound), ONE)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("d", [2, 3, 100, 16_384])
def test_grid_size_against_a_search(algorithm: Any, d: int) -> None:
    capped = 0
    for alpha in (1.0, 0.5, 0.1, 0.005, 1e-5):
        for eta in (1.0, 0.25, 0.01, 1e-4):
            for beta in (1.0, 0.5, 0.25, 0.01, 1e-4, 1e-9):
                given = Parameters(algorithm=algorithm, alpha=alpha, eta=eta, beta=beta)
                a, e, b = map(oracle.exact, (alpha, eta, beta))
                bound = {
                    "decision_calibration": d / (2 * b**2),
                    "reconcile": 4 / (a**2 * e),
                }.get(algorithm, d / (2 * min(b**2, e * a**2 / (4 * d))))
                found = given.resolve(1_000, d)
                assert found.m == searched_m(bound)
                assert found.step * found.m == ONE
                assert found.grid_covered == (found.m**2 >= bound)
                capped += not found.grid_covered
    assert algorithm == "reconcile" or capped


def test_grid_sizes_by_hand() -> None:
    given = Parameters(alpha=0.1, eta=0.1, beta=0.2)
    sizes = {a: replace(given, algorithm=a).resolve(100, 2).m for a in ALGORITHMS}  # type: ignore[arg-type]
    assert sizes == {
        "redcal": 128,  # m^2 >= 8,000
        "dc_then_redcal": 128,
        "decision_calibration": 8,  # 25
        "reconcile": 64,  # 4,000
    }


@pytest.mark.parametrize(("bits", "m", "covered"), [(1, 2, False), (7, 128, True), (26, ONE, True)])
def test_grid_bits_set_the_grid(bits: int, m: int, covered: bool) -> None:
    found = Parameters(alpha=0.1, eta=0.1, beta=0.2, grid_bits=bits).resolve(100, 2)
    assert (found.m, found.grid_covered) == (m, covered)


def test_grid_bits_reach_the_patches() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    finest = round(Fraction(9, 10) * ONE - oracle.quantise(0.21))  # the mean is .9 - .21
    for bits, phi in ((1, ONE // 2), (2, 3 * ONE // 4), (26, finest)):
        first = fit(replace(problem, grid_bits=bits)).log[0]
        assert first.phi == (-phi, phi)


@pytest.mark.parametrize(("eta", "patched"), [(0.1, True), (0.1000000001, False), (0.2, False)])
def test_one_row_of_ten_is_a_mass_of_a_tenth(eta: float, patched: bool) -> None:
    # In float64, 0.1 is a little more than a tenth: 1 / 10 must count all the same.
    assert Fraction(0.1) > Fraction(1, 10)
    problem = Problem(
        [0.9] + [1.0] * 9, [0.2] + [1.0] * 9, [1] * 10, problems.ZERO_ONE, "redcal", 0.1, eta
    )
    pair = fit(problem)
    assert [p.rows for p in pair.log] == ([1] if patched else [])


def test_alpha_is_the_decimal_too() -> None:
    # A gap of exactly .3 (in Fractions) is not above alpha = .3, though float64's .3 is less.
    assert Fraction(0.3) < Fraction(3, 10)
    at = Parameters(alpha=0.3, eta=0.1, algorithm="reconcile")
    assert at.resolve(10, 2).alpha == Fraction(3, 10)


# What is refused

SHARES: list[tuple[Any, str]] = [
    (0, "0"),
    (-0.1, "-0.1"),
    (1.5, "1.5"),
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    ("x", "'x'"),
    (True, "True"),
]


@pytest.mark.parametrize(("value", "shown"), SHARES)
@pytest.mark.parametrize("name", ["alpha", "eta", "beta"])
def test_shares_outside_0_1(name: str, value: Any, shown: str) -> None:
    given: dict[str, Any] = {"alpha": 0.1, "eta": 0.1} | {name: value}
    either = "" if name == "alpha" else "'auto' or "
    make = lambda: Reconciler(losses=problems.ZERO_ONE, **given)  # noqa: E731
    assert refused(UsageError, make) == f"{name}: must be {either}in (0, 1], got {shown}"


OTHERS: list[tuple[dict[str, Any], str]] = [
    (
        {"algorithm": "rdcal"},
        "algorithm: must be one of redcal, decision_calibration, reconcile, dc_then_redcal; "
        "got 'rdcal'",
    ),
    ({"alpha": None}, "alpha: needed for redcal, in (0, 1]"),
    ({"eta": None, "algorithm": "reconcile"}, "eta: needed for reconcile, in (0, 1]"),
    ({"adaptive_beta": "yes"}, "adaptive_beta: must be true or false, got 'yes'"),
    ({"grid_bits": 0}, "grid_bits: must be an integer from 1 to 26, got 0"),
    ({"grid_bits": 27}, "grid_bits: must be an integer from 1 to 26, got 27"),
    ({"grid_bits": 3.0}, "grid_bits: must be an integer from 1 to 26, got 3.0"),
    ({"max_rounds": -1}, "max_rounds: must be an integer from 0 to 1,000,000,000,000, got -1"),
    ({"max_steps": "9"}, "max_steps: must be an integer from 0 to 1,000,000,000,000, got '9'"),
    ({"on_bad_rows": "drop"}, "on_bad_rows: must be 'error' or 'skip', got 'drop'"),
    ({"classes": ["a", "b", "c"]}, "classes: 3 names, but the losses have 2 classes"),
    (
        {"alpha": 0, "eta": 2},
        "alpha: must be in (0, 1], got 0; eta: must be 'auto' or in (0, 1], got 2",
    ),
]


@pytest.mark.parametrize(("changed", "message"), OTHERS)
def test_other_arguments(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"alpha": 0.1, "eta": 0.1} | changed
    make = lambda: Reconciler(losses=problems.ZERO_ONE, **given)  # noqa: E731
    assert refused(UsageError, make) == message


def test_numbers_of_numpy_are_numbers() -> None:
    found = Parameters(alpha=np.float64(0.1), eta=1).resolve(10, 2)
    assert (found.alpha, found.eta) == (Fraction(1, 10), Fraction(1))


def test_alpha_and_eta_are_optional_for_decision_calibration() -> None:
    pair = Reconciler(losses=problems.ZERO_ONE, algorithm="decision_calibration", beta=0.1).fit(
        [0.25, 0.25], [0.75, 0.75], [0, 0]
    )
    assert pair.status == "converged"
    assert [p.model for p in pair.log] == [1, 2]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_floats_of_numpy_mean_what_repr_of_float_shows(kind: Any) -> None:
    """float32's 0.1 is not 0.1: it means 0.10000000149011612, and was refused."""
    found = Parameters(alpha=kind(0.1), eta=kind(0.25), beta=kind(0.1))
    assert (found.alpha, found.eta, found.beta) == (float(kind(0.1)), 0.25, float(kind(0.1)))
    assert {type(x) for x in (found.alpha, found.eta, found.beta)} == {float}
    resolved = found.resolve(100, 3)
    assert resolved.alpha == resolved.beta == Fraction(repr(float(kind(0.1))))


def test_integers_and_flags_of_numpy_are_plain_ones() -> None:
    given: dict[str, Any] = {
        "alpha": np.int8(1),
        "eta": np.uint64(1),
        "adaptive_beta": np.bool_(True),
        "grid_bits": np.int32(5),
        "max_rounds": np.int64(7),
        "max_steps": np.uint8(9),
    }
    found = Parameters(**given)
    assert found == Parameters(
        alpha=1, eta=1, adaptive_beta=True, grid_bits=5, max_rounds=7, max_steps=9
    )
    assert {type(getattr(found, name)) for name in given} == {int, bool}


def test_a_model_fitted_with_numbers_of_numpy_is_saved_and_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one, two = (rng.dirichlet([1, 1], 50) for _ in range(2))
    share: Any = np.float32(0.1)
    made = Reconciler(losses={"t": [[0, 1], [1, 0]]}, alpha=share, eta=share)
    pair = made.fit(one, two, rng.integers(0, 2, 50))
    pair.save(tmp_path / "pair.json")
    again = ReconciledPair.load(tmp_path / "pair.json")
    assert again.to_json() == pair.to_json()


@pytest.mark.parametrize("name", ["alpha", "eta", "beta"])
@pytest.mark.parametrize(
    "value", [np.float32(0), np.float64("nan"), np.float32(1.5), np.bool_(True)]
)
def test_numbers_of_numpy_are_checked_like_others(name: str, value: Any) -> None:
    given: dict[str, Any] = {"alpha": 0.1, "eta": 0.1} | {name: value}
    assert refused(UsageError, lambda: Parameters(**given)).startswith(f"{name}: must be ")


def test_limits_that_are_too_large_are_told_with_the_limit() -> None:
    told = refused(UsageError, lambda: Parameters(alpha=0.1, eta=0.1, max_steps=10**12 + 1))
    assert told == "max_steps: must be an integer from 0 to 1,000,000,000,000, got 1000000000001"

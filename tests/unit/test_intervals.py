"""Intervals: against scipy, which the package does not need, and by what they promise."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from scipy import stats

from redcal_spark.certificate.intervals import BINOMIAL, Interval, binomial

LARGE = [
    (k, n)
    for n in (10**3, 10**6, 10**9, 10**10, 2**37 - 1)
    for k in (0, 1, 2, 17, n // 1000, n // 3, n // 2, n // 2 + 1, n - n // 1000, n - 2, n - 1, n)
]


def by_scipy(k: int, n: int, tail: float) -> tuple[float, float]:
    low = 0.0 if k == 0 else float(stats.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(stats.beta.ppf(1 - tail, k + 1, n - k))
    return low, high


def same(found: Interval, k: int, n: int, tail: float, off: float = 1e-9) -> None:
    low, high = by_scipy(k, n, tail)
    assert float(found.low) == pytest.approx(low, rel=off, abs=0)
    assert float(found.high) == pytest.approx(high, rel=off, abs=0)
    # and the small side of a share near 1
    if k < n:
        assert float(1 - found.high) == pytest.approx(
            float(stats.beta.ppf(tail, n - k, k + 1)), rel=off, abs=0
        )


@pytest.mark.parametrize("n", range(1, 31))
def test_every_share_of_few_rows_is_as_scipy_has_it(n: int) -> None:
    for k in range(n + 1):
        same(binomial(k, n), k, n, 0.025)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(("k", "n"), LARGE)
def test_shares_of_many_rows_are_as_scipy_has_them(k: int, n: int) -> None:
    same(binomial(k, n), k, n, 0.025, 1e-7)  # scipy is off by 1e-8 at times: see the next test


@pytest.mark.parametrize("n", [10**9, 10**10, 2**37 - 1])
@pytest.mark.parametrize("k", [0, 1, 2, 5, 17, 40])
def test_few_of_very_many_rows_with_sixty_digits(k: int, n: int) -> None:
    """The tails summed term by term: at the ends they are 1/40 to eleven digits, and not more."""

    def at_most(hits: int, p: Fraction) -> Decimal:
        share = Decimal(p.numerator) / p.denominator
        ln = (1 - share).ln()
        terms = (math.comb(n, i) * share**i * (ln * (n - i)).exp() for i in range(hits + 1))
        return sum(terms, Decimal(0))

    with localcontext(Context(prec=60)):
        found = binomial(k, n)
        beyond = [at_most(k, found.high)]
        if k:
            beyond.append(1 - at_most(k - 1, found.low))
        for tail in beyond:
            assert Decimal("0.025") * (1 - Decimal("1e-9")) <= tail <= Decimal("0.025")
        mirrored = binomial(n - k, n)
        assert (1 - mirrored.high, 1 - mirrored.low) == (found.low, found.high)


@pytest.mark.parametrize(
    "confidence", [Fraction(1, 2), Fraction(99, 100), Fraction(999_999, 10**6)]
)
def test_other_confidences(confidence: Fraction) -> None:
    rng = Random(5)
    for _ in range(30):
        n = rng.choice((9, 400, 12_345, 10**8))
        k = rng.randint(0, n)
        found = binomial(k, n, confidence)
        same(found, k, n, float((1 - confidence) / 2))
        assert found.confidence == confidence


def tail_up(k: int, n: int, p: Fraction) -> Fraction:
    """P(X >= k), exactly."""
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1)), Fraction(0))


def test_ends_are_rounded_outwards_never_inwards() -> None:
    """With fractions there is no doubt: just beyond an end the tail is at most 1/40."""
    for n, k in product((1, 2, 7, 20), range(21)):
        if k > n:
            continue
        found = binomial(k, n)
        if k > 0:
            assert tail_up(k, n, found.low) <= Fraction(1, 40)
            assert tail_up(k, n, found.low * (1 + Fraction(1, 10**10))) > Fraction(1, 40)
        if k < n:
            assert 1 - tail_up(k + 1, n, found.high) <= Fraction(1, 40)
            less = 1 - (1 - found.high) * (1 + Fraction(1, 10**10))
            assert 1 - tail_up(k + 1, n, min(less, found.high * (1 - Fraction(1, 10**10)))) > (
                Fraction(1, 40)
            )


def test_several_shares_at_once_get_wider_intervals() -> None:
    one, six = binomial(5, 100), binomial(5, 100, at_once=6)
    same(six, 5, 100, 0.025 / 6)
    assert six.low < one.low < one.high < six.high
    assert one.method == BINOMIAL
    assert "6 at once" in six.method


def test_what_is_no_share_is_refused() -> None:
    for k, n in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match="no share"):
            binomial(k, n)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng, n, p = Random(1), 40, Fraction(3, 20)
    held = 0
    for _ in range(500):
        share = binomial(sum(rng.random() < p for _ in range(n)), n, Fraction(9, 10))
        held += share.low <= p <= share.high
    assert 0.9 <= held / 500 <= 0.99


def test_no_interval_runs_backwards() -> None:
    with pytest.raises(ValueError, match="no interval"):
        Interval(Fraction(1), Fraction(0), Fraction(1, 2), "none")

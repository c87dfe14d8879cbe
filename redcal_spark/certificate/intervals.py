"""Intervals for shares and means of independent rows; which kind is said in the result.

Those of a certificate hold all together: every statement that is made, at every prefix of the log
that the guard could have chosen, gets an equal part of delta.

Ends are rounded outwards to 12 digits, so that an interval never promises too much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from redcal_spark.core.paired import Moments, Range
from redcal_spark.core.weights import Weights

CONFIDENCE = Fraction(19, 20)
AUDIT_LEVEL = 0.95
BINOMIAL = "exact binomial (Clopper-Pearson)"
BERNSTEIN = "empirical Bernstein (Maurer and Pontil)"

Height = tuple[float, float]  # of a function, and its slope there

_DIGITS = 12
_STEPS = 64, 1 << 16  # terms of a tail at a time, at first and at most


@dataclass(frozen=True)
class Interval:
    """Holds the true value with at least this confidence."""

    low: Fraction
    high: Fraction
    confidence: Fraction
    method: str

    def __post_init__(self) -> None:
        if not (self.low <= self.high and 0 < self.confidence < 1):
            raise ValueError(f"no interval: {self.low} to {self.high} at {self.confidence}")

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        return self.low, self.high

    def over(self, weight: Fraction) -> Interval:
        """Of w x for that of x, by the mean weight."""
        return Interval(self.low / weight, self.high / weight, self.confidence, self.method)


@dataclass(frozen=True)
class Sums:
    """Of the values of some rows, and of their squares."""

    total: Fraction
    squares: Fraction


@dataclass(frozen=True)
class Level:
    """With what probability all statements together may fail, and how many there are.

    candidates: prefixes of the log that could have been chosen by the very rows that speak.
    """

    delta: Fraction
    statements: int = 1
    candidates: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.delta < 1 and self.statements > 0 and self.candidates > 0):
            raise ValueError(f"no level: {self}")

    @property
    def at_once(self) -> int:
        return self.statements * self.candidates

    @property
    def each(self) -> Fraction:
        """What one statement may fail with."""
        return self.delta / self.at_once

    def share(self, hits: int, rows: int, weights: Weights | None = None) -> Interval:
        """The interval for a share; of weights, if rows have some: hits and rows are their sums.

        x, which is 1 or 0, less 1/2, times w, has the square w^2 / 4 whichever it is.
        """
        if weights is None:
            return binomial(hits, rows, 1 - self.delta, self.at_once)
        half = Fraction(1, 2)
        sums = Sums(hits - half * rows, Fraction(weights.squares, 4))
        within = Range(weights.largest, 1)
        around = self._mean(sums, within, weights.rows).over(Fraction(rows, weights.rows))
        return Interval(around.low + half, around.high + half, around.confidence, around.method)

    def mean(
        self, sums: Moments, within: Range, rows: int, weights: Weights | None = None
    ) -> Interval:
        """The interval for the mean of paired differences, from their sums, by at least 2 rows.

        weights: `rows` is their sum, and the sums are those of w x, with w x in the range.
        """
        unit = within.unit
        whole = Sums(sums.total * unit, sums.squares * unit**2)
        if weights is None:
            return self._mean(whole, within, rows)
        return self._mean(whole, within, weights.rows).over(Fraction(rows, weights.rows))

    def _mean(self, sums: Sums, within: Range, rows: int) -> Interval:
        """|mean - E| <= sqrt(2 V ln(4 / d') / n) + 7 r ln(4 / d') / (3 (n - 1)), V the unbiased
        sample variance, r the length of the interval that values lie in. They were rounded down to
        whole units: each end is a unit further out.
        """
        if rows < 2 or sums.squares * rows < sums.total**2:
            raise ValueError(f"{sums} are not the sums of {rows} rows")
        unit = within.unit
        mean = sums.total / rows
        variance = (sums.squares * rows - sums.total**2) / (rows * (rows - 1))
        with localcontext(Context(prec=40)):
            log = _log(4 / self.each)
            reach = (_decimal(2 * variance / rows) * log).sqrt()
            reach += _decimal(Fraction(7, 3) * within.length / (rows - 1)) * log
            half = Fraction(_outwards(reach, ROUND_CEILING)) + unit
        method = f"{BERNSTEIN}{_together(self.at_once)}"
        return Interval(mean - half, mean + half, 1 - self.delta, method)


def binomial(hits: int, rows: int, confidence: Fraction = CONFIDENCE, at_once: int = 1) -> Interval:
    """The exact interval for a share, from `hits` of `rows` independent rows.

    at_once: so many intervals are asked for, and all shall hold together.

        binomial(0, 10).high  # about 0.308
    """
    if not 0 <= hits <= rows or rows < 1:
        raise ValueError(f"{hits} of {rows} rows is no share")
    tail = float((1 - confidence) / (2 * at_once))
    if 2 * hits > rows:  # the shares near 1 are those of the misses near 0
        misses = rows - hits
        low, high = 1 - _upper(misses, rows, tail), 1 - _lower(misses, rows, tail)
    else:
        low, high = _lower(hits, rows, tail), _upper(hits, rows, tail)
    return Interval(low, high, confidence, f"{BINOMIAL}{_together(at_once)}")


def _together(at_once: int) -> str:
    return "" if at_once == 1 else f", {at_once:,} at once"


@lru_cache(maxsize=64)
def _log(x: Fraction) -> Decimal:
    """To 40 digits; every interval of a certificate asks for the same one."""
    with localcontext(Context(prec=40)):
        return _decimal(x).ln()


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def _outwards(x: Decimal, rounding: str) -> Decimal:
    return Context(prec=_DIGITS, rounding=rounding).plus(x)


# --- the binomial tail, for hits up to half of the rows ------------------------------------------


def _upper(hits: int, rows: int, tail: float) -> Fraction:
    """The share under which so few hits have just this probability."""
    if hits == rows:
        return Fraction(1)
    if hits == 0:  # (1 - p)^rows = tail
        end = -math.expm1(math.log(tail) / rows)
    else:
        share, reach = _near(hits, rows, tail)
        height = _height(hits, rows, tail, up=False)
        end = _root(height, hits / rows, 1.0, share + reach + reach * reach)
    return min(Fraction(1), Fraction(_outwards(Decimal(end), ROUND_CEILING)))


def _lower(hits: int, rows: int, tail: float) -> Fraction:
    """The share under which so many hits have just this probability."""
    if hits == 0:
        return Fraction(0)
    share, reach = _near(hits, rows, tail)
    height = _height(hits, rows, tail, up=True)
    end = _root(height, 0.0, hits / rows, max(share - reach, share * tail))
    return Fraction(_outwards(Decimal(end), ROUND_FLOOR))


def _height(hits: int, rows: int, tail: float, *, up: bool) -> Callable[[float], Height]:
    """By how much the logarithm of a tail's probability is above that of `tail`, under a share."""

    def height(p: float) -> Height:
        total = _tail(hits, rows, p, up=up)
        slope = hits / (p * total) if up else -(rows - hits) / ((1 - p) * total)
        return _log_probability(hits, rows, p) + math.log(total) - math.log(tail), slope

    return height


def _near(hits: int, rows: int, tail: float) -> tuple[float, float]:
    """The share, and how far from it an end is at most, roughly: only to start from."""
    share = hits / rows
    spread = math.sqrt(share * (1 - share) / rows) + 1 / rows
    return share, math.sqrt(2 * math.log(1 / tail)) * spread


def _root(height: Callable[[float], Height], low: float, high: float, start: float) -> float:
    """Where a monotone function of p, given with its slope, is 0: Newton's steps, kept inside."""
    p = start if low < start < high else (low + high) / 2
    for _ in range(200):
        value, slope = height(p)
        if (value > 0) == (slope > 0):
            high = p
        else:
            low = p
        new = p - value / slope
        if not low < new < high:
            new = (low + high) / 2
        if abs(new - p) <= 1e-15 * p or new in (low, high):
            return new
        p = new
    return p


def _tail(hits: int, rows: int, p: float, *, up: bool) -> float:
    """The probability of `hits` and all beyond (up or down), in units of that of `hits`."""
    odds = p / (1 - p)
    end = rows - hits if up else hits
    total, last, start, steps = 1.0, 1.0, 0, _STEPS[0]
    while True:
        step = np.arange(start, min(start + steps, end), dtype=float)
        if not len(step):
            return total
        if up:
            ratios = (rows - hits - step) / (hits + 1 + step) * odds
        else:
            ratios = (hits - step) / ((rows - hits + 1 + step) * odds)
        terms = last * np.cumprod(ratios)
        total += float(terms.sum())
        last, start, steps = float(terms[-1]), start + len(step), min(2 * steps, _STEPS[1])
        # the ratios only fall: what is left is less than a geometric series
        if last <= 1e-18 * total * (1 - min(float(ratios[-1]), 1 - 1e-12)):
            return total


def _log_probability(hits: int, rows: int, p: float) -> float:
    """The logarithm of the probability of 0 < hits < rows hits, after Loader (2000).

    Logarithms of factorials are 10^11 for 10^10 rows and lose all digits; these are differences
    from Stirling's formula, which are small.
    """
    misses = rows - hits
    error = _stirling(rows) - _stirling(hits) - _stirling(misses)
    error -= _deviance(hits, rows * p) + _deviance(misses, rows * (1 - p))
    return error + 0.5 * (math.log(rows / (2 * math.pi * hits)) - math.log(misses))


def _stirling(n: int) -> float:
    """ln n! - (n + 1/2) ln n + n - ln(2 pi) / 2."""
    if n < 16:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    m = 1 / (n * n)
    return (1 / 12 - m * (1 / 360 - m * (1 / 1260 - m * (1 / 1680 - m / 1188)))) / n


def _deviance(x: float, mean: float) -> float:
    """x ln(x / mean) + mean - x, without loss where x is near the mean."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total, term, j = (x - mean) * v, 2 * x * v, 1
    while True:
        term *= v * v
        new = total + term / (2 * j + 1)
        if new == total:
            return total
        total, j = new, j + 1


# --- margins of an audit: each number by itself ---------------------------------------------------


def calibration_margin(rows: int, n: int) -> float:
    """How far a gap over `rows` of n rows may be from that of the labels' expectations.

    Given the scores, only the labels are random. Their sum is off by at most sqrt(rows) in the
    mean, since a label's variance is at most 1, and one label moves it by at most sqrt(2): by
    McDiarmid's inequality by more than sqrt(rows) (1 + sqrt(ln(1 / (1 - level)))) with a
    probability of at most 1 - level.
    """
    return math.sqrt(rows) / n * (1 + math.sqrt(math.log(1 / (1 - AUDIT_LEVEL))))


def cost_margin(width: Fraction, rows: Fraction | int) -> float:
    """How far a mean of values this far apart may be from its expectation: Hoeffding."""
    return float(width) * math.sqrt(math.log(2 / (1 - AUDIT_LEVEL)) / (2 * rows))

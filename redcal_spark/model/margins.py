"""How far numbers of an audit may be from what they stand for."""

from __future__ import annotations

import math
from fractions import Fraction

LEVEL = 0.95


def calibration_margin(rows: int, n: int, level: float = LEVEL) -> float:
    """How far a gap over `rows` of n rows may be from that of the labels' expectations.

    Given the scores, only the labels are random. Their sum is off by at most sqrt(rows) in the
    mean, since a label's variance is at most 1, and one label moves it by at most sqrt(2): by
    McDiarmid's inequality by more than sqrt(rows) (1 + sqrt(ln(1 / (1 - level)))) with a
    probability of at most 1 - level.
    """
    return math.sqrt(rows) / n * (1 + math.sqrt(math.log(1 / (1 - level))))


def cost_margin(width: Fraction, rows: Fraction | int, level: float = LEVEL) -> float:
    """How far a mean of values this far apart may be from its expectation: Hoeffding."""
    return float(width) * math.sqrt(math.log(2 / (1 - level)) / (2 * rows))

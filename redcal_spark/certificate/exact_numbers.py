"""Exact numbers of a certificate: fractions and their square roots, as text and for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction


@dataclass(frozen=True)
class Root:
    """The square root of a fraction, kept exact by its square."""

    square: Fraction

    def __post_init__(self) -> None:
        if self.square < 0:
            raise ValueError(f"no square root of {self.square}")


Number = Fraction | Root


def compare(one: Number, two: Number) -> int:
    """-1, 0 or 1, exactly: squares with their signs have the same order."""
    a, b = (x.square if isinstance(x, Root) else x * abs(x) for x in (one, two))
    return (a > b) - (a < b)


def times(number: Number, scale: Fraction) -> Number:
    """scale: not below 0."""
    return Root(number.square * scale**2) if isinstance(number, Root) else number * scale


def text_of(number: Number) -> str:
    """As num/den, or sqrt(num/den)."""
    if isinstance(number, Root):
        return f"sqrt({text_of(number.square)})"
    return f"{number.numerator}/{number.denominator}"


def number_of(text: str) -> Number:
    """What `text_of` wrote."""
    parts = re.fullmatch(r"(sqrt\()?(-?\d+)/(\d+)(?(1)\))", text)
    if parts is None:
        raise ValueError(f"not an exact number: {text!r}")
    value = Fraction(int(parts[2]), int(parts[3]))
    return value if parts[1] is None else Root(value)


def fraction_of(text: str) -> Fraction:
    """The same where a root cannot be."""
    number = number_of(text)
    if isinstance(number, Root):
        raise ValueError(f"{text!r} is a root")
    return number


def shown(number: Number, scale: Fraction = Fraction(1), digits: int = 6) -> str:
    """For people, so many times: whole numbers as they are, others with so many digits."""
    number = times(number, scale)
    if isinstance(number, Fraction) and number.denominator == 1 and abs(number) < 10**15:
        return f"{number.numerator:,}"
    return f"{approximate(number):.{digits}g}"


def at_least(number: Fraction) -> str:
    """For people who are promised as much: three digits, rounded down."""
    return f"{Context(prec=3, rounding=ROUND_FLOOR).plus(approximate(number)):g}"


def approximate(number: Number) -> Decimal:
    context = Context(prec=20)
    x = number.square if isinstance(number, Root) else number
    value = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    return context.sqrt(value) if isinstance(number, Root) else value

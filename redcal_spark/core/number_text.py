"""Numbers as people read them: counts, shares, decimals, changes and models, as plain text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

Value = int | float | Fraction


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count of things: `1 row`, `1,200 rows`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def weight_text(count: int, unit: Fraction = Fraction(1)) -> str:
    """Rows that were counted by their weights in units, in the user's own: all digits, exactly."""
    value = count * unit
    if value.denominator == 1:
        return f"{value.numerator:,}"
    return f"{Decimal(value.numerator) / Decimal(value.denominator):,f}"


def model_text(model: int, names: Sequence[str] | None) -> str:
    """A model by its name, if it has one."""
    return names[model - 1] if names else f"model {model}"


def plain(value: float) -> str:
    """A number as people write it: all its digits, and no `.0`."""
    return repr(float(value)).removesuffix(".0")


def share_text(value: Value) -> str:
    """A share in per cent; what is there is never shown as nothing, and not all as all."""
    percent = float(value) * 100
    if 0 < percent < 0.005:
        return "< 0.01 %"
    if 99.995 <= percent < 100:
        return "> 99.99 %"
    return f"{percent:.2f} %"


def digits_for(values: Iterable[float], most: int = 12) -> int:
    """Decimals for numbers beside each other: five digits of the largest."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return 0
    return min(most, max(0, 4 - math.floor(math.log10(largest)) - (largest < 1)))


def decimal_text(value: Value, digits: int) -> str:
    """So many decimals, or a power of ten where they would show nothing."""
    text = f"{float(value):,.{digits}f}"
    rounded_away = value != 0 and not any(c in "123456789" for c in text)
    return f"{float(value):.1e}" if rounded_away else text


def cost_texts(values: Iterable[float]) -> list[str]:
    """Costs beside each other in the user's units, with the digits that the largest calls for."""
    costs = list(values)
    digits = digits_for(costs)
    return [decimal_text(cost, digits) for cost in costs]


def three_digits(value: Value) -> str:
    """A number for a sentence: three digits that count."""
    number = float(value)
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{digits}f}" if digits <= 8 else f"{number:.2e}"


def change_text(before: Fraction, after: Fraction) -> str | None:
    """By how much something went up or down; None from nothing."""
    if before == 0:
        return None
    percent = float((after - before) / abs(before)) * 100
    if after == before:
        return "±0 %"
    if abs(percent) < 0.05:
        return f"{'-' if percent < 0 else '+'}0.0 %"
    return f"{percent:+,.1f} %"

"""Numbers as people read them; each carries its full value, and what it is a number of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from redcal_spark.report.markup import Html, tag

Value = int | float | Fraction
PERCENT = "\u00a0%"  # no line ends before the sign


def shown(text: str, value: Value | str, *of: object) -> Html:
    """A number as text. of: what it is of, as the path `holdout/triage/disagreement/before`."""
    full = value if isinstance(value, str) else full_text(value)
    return tag("data", text, value=full, data_n="/".join(map(str, of)) or None)


def full_text(value: Value) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def whole(value: int, *of: object) -> Html:
    return shown(f"{value:,}", value, *of)


def share_text(value: Value) -> str:
    """A share in per cent; what is there is never shown as nothing, and not all as all."""
    percent = float(value) * 100
    if 0 < percent < 0.005:
        return f"< 0.01{PERCENT}"
    if 99.995 <= percent < 100:
        return f"> 99.99{PERCENT}"
    return f"{percent:.2f}{PERCENT}"


def share(value: Value, *of: object) -> Html:
    return shown(share_text(value), value, *of)


def digits_for(values: Iterable[float], most: int = 12) -> int:
    """Decimals for numbers beside each other: five digits of the largest."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return 0
    return min(most, max(0, 4 - math.floor(math.log10(largest)) - (largest < 1)))


def decimal(value: Value, digits: int, *of: object) -> Html:
    return shown(decimal_text(value, digits), value, *of)


def decimal_text(value: Value, digits: int) -> str:
    told = f"{float(value):,.{digits}f}"
    rounded_away = value != 0 and not any(c in "123456789" for c in told)
    return f"{float(value):.1e}" if rounded_away else told.replace("-", "−")


def change_text(before: Fraction, after: Fraction) -> str | None:
    """By how much something went up or down; None from nothing."""
    if before == 0:
        return None
    percent = float((after - before) / abs(before)) * 100
    if after == before:
        return f"±0{PERCENT}"
    if abs(percent) < 0.05:
        return f"{'−' if percent < 0 else '+'}0.0{PERCENT}"
    return f"{percent:+,.1f}{PERCENT}".replace("-", "−")


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from low to high, at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_texts(values: list[float], percent: bool = False) -> list[str]:
    """Ticks with as many digits as tell them apart."""
    scaled = [value * 100 if percent else value for value in values]
    gap = min((b - a for a, b in pairwise(scaled)), default=1.0)
    digits = min(12, max(0, -math.floor(math.log10(gap) + 1e-9)))
    if round(gap * 10**digits, 6) != round(gap * 10**digits):
        digits += 1  # steps of 0.25
    return [
        f"{value:,.{digits}f}{PERCENT if percent else ''}".replace("-", "−") for value in scaled
    ]

"""Numbers on the page; each carries its full value, and what it is a number of."""

from __future__ import annotations

import math
from itertools import pairwise

from redcal_spark.core.number_text import Value, decimal_text, share_text
from redcal_spark.report.markup import Html, tag


def typeset(text: str) -> str:
    """A number with a true minus, and no line end before its per cent."""
    return text.replace("-", "−").replace(" %", "\u00a0%")


def shown(text: str, value: Value | str, *of: object) -> Html:
    """A number as text. of: what it is of, as the path `holdout/triage/disagreement/before`."""
    full = repr(value) if isinstance(value, float) else str(value)
    return tag("data", typeset(text), value=full, data_n="/".join(map(str, of)) or None)


def whole(value: int, *of: object) -> Html:
    return shown(f"{value:,}", value, *of)


def share(value: Value, *of: object) -> Html:
    return shown(share_text(value), value, *of)


def decimal(value: Value, digits: int, *of: object) -> Html:
    return shown(decimal_text(value, digits), value, *of)


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
    return [typeset(f"{value:,.{digits}f}{' %' if percent else ''}") for value in scaled]

"""Numbers before and after: how much the models disagree, what they cost, how good they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from redcal_spark.core.number_text import Value, change_text, digits_for
from redcal_spark.report.data import WHENS, Report
from redcal_spark.report.markup import Html
from redcal_spark.report.numbers import decimal, share, typeset

WORSE = Fraction(1, 200)  # a rise that is reported


@dataclass(frozen=True)
class Change:
    """One number before and after; less is better."""

    values: tuple[Fraction, Fraction]
    before: Html
    after: Html

    @property
    def verb(self) -> str:
        before, after = self.values
        return "fell" if after < before else "rose" if after > before else "stayed"

    @property
    def mood(self) -> str:
        return {"fell": "good", "rose": "bad", "stayed": ""}[self.verb]

    @property
    def text(self) -> str | None:
        text = change_text(*self.values)
        return None if text is None else typeset(text)

    @property
    def widths(self) -> list[str]:
        """Of a bar for each, in per cent."""
        top = max(abs(x) for x in self.values) or 1
        return [f"{float(100 * abs(x) / top):.1f}" for x in self.values]

    @property
    def worse(self) -> bool:
        """Whether it rose by half a per cent or more."""
        before, after = self.values
        return after > before and after - before >= WORSE * abs(before)


def _change(value: Callable[[str], Value], show: Callable[..., Html], *of: object) -> Change:
    values = [value(when) for when in WHENS]
    before, after = (show(x, *of, when) for x, when in zip(values, WHENS, strict=True))
    return Change((Fraction(values[0]), Fraction(values[1])), before, after)


def _decimals(digits: int) -> Callable[..., Html]:
    return lambda value, *of: decimal(value, digits, *of)


def apart(report: Report, split: str, loss: int) -> Change:
    """The share of rows on which not all actions are the same."""
    of = (split, report.losses[loss].name, "disagreement")
    return _change(lambda when: report.apart(split, when, loss), share, *of)


def costs(report: Report, split: str, loss: int) -> list[Change]:
    """Per model, the mean cost of its decisions."""

    def cost(model: int, when: str) -> Fraction:
        return report.cost(split, when, loss, model)

    of = (split, report.losses[loss].name)
    digits = digits_for(float(cost(model, when)) for model in report.numbers for when in WHENS)
    return [_change(partial(cost, m), _decimals(digits), *of, f"cost_{m}") for m in report.numbers]


def briers(report: Report, split: str) -> list[Change]:
    """Per model, its Brier score."""

    def brier(model: int, when: str) -> Fraction:
        return report.brier(split, when, model)

    return [_change(partial(brier, m), _decimals(4), split, f"brier_{m}") for m in report.numbers]


def largest_gap(report: Report, split: str) -> Change:
    """For Decision Calibration: the largest calibration gap."""
    return _change(lambda when: report.largest_gap(split, when), _decimals(4), split, "largest_gap")


def largest_class(report: Report, split: str) -> Change:
    """For Reconcile: the share of rows whose scores are apart, in the worst class."""
    return _change(lambda when: report.largest_class(split, when), share, split, "largest_class")

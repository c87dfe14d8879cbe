"""A check: a bound, what was measured, and the verdict. Exact numbers, plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import eq, ge, gt, le, lt
from typing import Any, Literal, get_args

import pyarrow as pa

from redcal_spark.certificate.exact_numbers import (
    Number,
    approximate,
    compare,
    fraction_of,
    number_of,
    shown,
    text_of,
    times,
)
from redcal_spark.certificate.intervals import Interval
from redcal_spark.core.number_text import model_text
from redcal_spark.errors import ModelFileError

Verdict = Literal["holds", "violated", "undecided", "not covered", "not done"]
Kind = Literal["promise", "theory", "bookkeeping"]
Relation = Literal["<", "<=", ">", ">=", "=="]
SplitName = Literal["fit", "holdout"]
When = Literal["before", "after"]


PROMISES = frozenset(
    {
        *("largest_event", "largest_gap", "calibration_gap"),
        *("decision_loss", "decision_loss_from_input", "brier_decrease"),
        *("loss_fell", "both_losses_fell", "all_losses_fell", "segment_loss"),
    }
)
TOO_FEW = "too few holdout rows to tell: the interval contains the bound"


def holds(measured: Number, relation: Relation, bound: Number) -> bool:
    order = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}[relation]
    return bool(order(compare(measured, bound), 0))


def said(
    measured: Number, relation: Relation, bound: Number, interval: Interval | None
) -> Literal["holds", "violated", "undecided"]:
    """What the numbers say. Of an interval the worse end must be within the bound to hold it."""
    ends = (measured, measured) if interval is None else (interval.low, interval.high)
    true = [holds(end, relation, bound) for end in ends]
    return "holds" if all(true) else "undecided" if any(true) else "violated"


@dataclass(frozen=True)
class Check:
    """One claim: `measured` `relation` `bound`.

    verdict: holds and violated are what the numbers say, with an interval what all of it says.
    undecided: there are too few rows to tell. not covered: theory promises nothing here. not done:
    nobody looked; `redcal evaluate` does. `why` says more. measured is None where nobody measured.
    scale: users' units for one unit of these numbers: of a loss the spread of its costs, of the
    Brier score of a single column P(1) one half, which makes it the mean of (f - y)^2.
    """

    name: str
    claim: str
    split: SplitName
    relation: Relation
    bound: Number
    measured: Number | None
    verdict: Verdict
    why: str = ""
    loss: str | None = None
    model: int | None = None
    interval: Interval | None = None
    scale: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        kinds = ((self.verdict, Verdict), (self.relation, Relation), (self.split, SplitName))
        for value, kind in kinds:
            if value not in get_args(kind):
                raise ValueError(f"check {self.name!r}: {value!r} is none of {get_args(kind)}")
        if self.verdict in ("holds", "violated") and self.said != self.verdict:
            raise ValueError(f"check {self.name!r}: its numbers do not say {self.verdict!r}")
        if self.verdict not in ("holds", "violated") and not self.why:
            raise ValueError(f"check {self.name!r}: {self.verdict}, and no reason")

    @classmethod
    def of(
        cls,
        name: str,
        claim: str,
        measured: Number | None,
        relation: Relation,
        bound: Number,
        *,
        split: SplitName = "fit",
        uncovered: str | None = None,
        undecided: str | None = None,
        undone: str | None = None,
        why: str = "",
        loss: str | None = None,
        model: int | None = None,
        interval: Interval | None = None,
        scale: Fraction = Fraction(1),
    ) -> Check:
        """The check with its verdict.

        uncovered: why nothing is promised; undecided: why there is nothing to tell by; undone: why
        nobody measured. Else the numbers decide.
        """
        verdict: Verdict
        if uncovered is not None:
            verdict, why = "not covered", uncovered
        elif undecided is not None:
            verdict, why = "undecided", undecided
        elif undone is not None:
            verdict, why = "not done", undone
        else:
            assert measured is not None
            verdict = said(measured, relation, bound, interval)
            why = TOO_FEW if verdict == "undecided" else why
        return cls(
            *(name, claim, split, relation, bound, measured, verdict),
            *(why, loss, model, interval, scale),
        )

    @property
    def kind(self) -> Kind:
        """promise: to users. theory: what proofs say besides. bookkeeping: that nothing is odd."""
        if self.name in PROMISES:
            return "promise"
        return "bookkeeping" if self.relation == "==" else "theory"

    @property
    def said(self) -> Literal["holds", "violated", "undecided"] | None:
        """What the numbers say, whatever is promised."""
        if self.measured is None:
            return None
        return said(self.measured, self.relation, self.bound, self.interval)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "claim": self.claim,
            "loss": self.loss,
            "model": self.model,
            "split": self.split,
            "relation": self.relation,
            "bound": _to_json(self.bound),
            "measured": None if self.measured is None else _to_json(self.measured),
            "verdict": self.verdict,
            "why": self.why,
            "interval": _interval_to_json(self.interval),
            "scale": text_of(self.scale),
        }

    def to_row(self, models: Sequence[str] = ()) -> dict[str, Any]:
        """The check for a table of people's: floats in their units, models by name."""
        ends = (None, None) if self.interval is None else self.interval.ends
        return {
            "verdict": self.verdict,
            "claim": self.claim,
            "split": self.split,
            "loss": self.loss,
            "model": None if self.model is None else model_text(self.model, models),
            "measured": _float(self.measured, self.scale),
            "relation": self.relation,
            "bound": _float(self.bound, self.scale),
            "low": _float(ends[0], self.scale),
            "high": _float(ends[1], self.scale),
            "kind": self.kind,
            "check": self.name,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Check:
        return cls(
            name=_text(data["name"]),
            claim=_text(data["claim"]),
            split=data["split"],
            relation=data["relation"],
            bound=_from_json(data["bound"]),
            measured=None if data["measured"] is None else _from_json(data["measured"]),
            verdict=data["verdict"],
            why=_text(data["why"]),
            loss=None if data["loss"] is None else _text(data["loss"]),
            model=data["model"],
            interval=_interval_from_json(data["interval"]),
            scale=fraction_of(data["scale"]),
        )

    def line(self, models: Sequence[str] | None = None) -> str:
        """The check in one line, for a terminal; models by their names, if they have any."""
        what = self.name.replace("_", " ")
        if self.relation == "==":  # counts contradictions
            what = self.claim
        if self.loss is not None:
            what += f", {self.loss}"
        if self.model is not None:
            what += f", {model_text(self.model, models)}"
        if self.split == "holdout":
            what += ", holdout rows"
        line = f"{self.verdict:<11}  {what}"
        if self.relation != "==":
            line += f": {self._numbers(self.scale)}"
        if self.scale != 1:
            unit = "over both classes" if self.loss is None else "rescaled"
            line += f" ({unit}: {self._numbers(Fraction(1))})"
        return line + (f"  ({self.why})" if self.why else "")

    def _numbers(self, scale: Fraction) -> str:
        measured = "not measured" if self.measured is None else shown(self.measured, scale)
        line = f"{measured} {self.relation} {shown(self.bound, scale)}"
        if self.interval is None:
            return line
        return f"{line} [{shown(self.interval.low, scale)}, {shown(self.interval.high, scale)}]"


@dataclass(frozen=True)
class Measure:
    """A number to look at, of which nothing is claimed. Decision losses in the user's units."""

    name: str
    split: SplitName
    when: When
    value: Fraction
    loss: str | None = None
    model: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "loss": self.loss,
            "model": self.model,
            "split": self.split,
            "when": self.when,
            "value": _to_json(self.value),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measure:
        return cls(
            name=_text(data["name"]),
            split=data["split"],
            when=data["when"],
            value=_fraction(data["value"]),
            loss=None if data["loss"] is None else _text(data["loss"]),
            model=data["model"],
        )


TEXTS = {"verdict", "claim", "split", "loss", "model", "relation", "kind", "check", "why"}
ROWS = pa.schema(
    [
        (name, pa.string() if name in TEXTS else pa.float64())
        for name in (
            *("verdict", "claim", "split", "loss", "model", "measured", "relation", "bound"),
            *("low", "high", "kind", "check", "why"),
        )
    ]
)


def _float(number: Number | None, scale: Fraction) -> float | None:
    return None if number is None else float(approximate(times(number, scale)))


# --- numbers as text ------------------------------------------------------------------------------


def _to_json(number: Number) -> dict[str, Any]:
    """Exact, and as a float for display; a number too large for one is told by its text alone."""
    value = float(approximate(number))
    return {"exact": text_of(number), "value": value if abs(value) != float("inf") else None}


def _from_json(data: Mapping[str, Any]) -> Number:
    number = number_of(data["exact"])
    if _to_json(number) != data:
        raise ValueError(f"{data!r} is not one number")
    return number


def _fraction(data: Mapping[str, Any]) -> Fraction:
    _from_json(data)
    return fraction_of(data["exact"])


def _interval_to_json(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "low": _to_json(interval.low),
        "high": _to_json(interval.high),
        "confidence": text_of(interval.confidence),
        "method": interval.method,
    }


def _interval_from_json(data: Mapping[str, Any] | None) -> Interval | None:
    if data is None:
        return None
    low, high = _fraction(data["low"]), _fraction(data["high"])
    return Interval(low, high, fraction_of(data["confidence"]), _text(data["method"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"damaged certificate: {value!r} is no text")
    return value

"""The summary: what a pair was like before and after, as a text and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from redcal_spark.core.number_text import change_text, cost_texts, decimal_text, share_text
from redcal_spark.core.splits import SPLITS
from redcal_spark.core.tabular import Tabular

SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("measure", pa.string()),
        ("loss", pa.string()),
        ("model", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("change", pa.float64()),  # after minus before
    ]
)


@dataclass(frozen=True)
class Line:
    """One number before and after."""

    split: str
    measure: str
    loss: str | None
    model: str | None
    before: Fraction
    after: Fraction

    @property
    def what(self) -> str:
        parts = (self.measure, self.loss, self.model)
        return ", ".join(part for part in parts if part is not None)

    def texts(self) -> list[str]:
        values = [self.before, self.after]
        if self.measure in SHARES:
            shown = [share_text(value) for value in values]
        elif self.measure == COST:
            shown = cost_texts(map(float, values))
        else:
            shown = [decimal_text(value, 4) for value in values]
        return [self.what, *shown, change_text(self.before, self.after) or ""]


COST, APART, SCORES_APART = "mean cost", "decisions differ", "scores apart, worst class"
SHARES = (APART, SCORES_APART)


@dataclass(frozen=True)
class Summary(Tabular):
    """Before and after, per split. Printed it is a text; `to_pandas` and `to_arrow` give a table.

    heading: in a line, what it is of.
    """

    heading: str
    rows: Mapping[str, int]  # per split
    lines: tuple[Line, ...]

    @classmethod
    def of(
        cls, heading: str, audits: Mapping[str, Any], models: Sequence[str], binary: bool
    ) -> Summary:
        rows = {split: counted(both["before"]) for split, both in audits.items()}
        lines = [
            line for split, both in audits.items() for line in _lines(split, both, models, binary)
        ]
        return cls(heading, rows, tuple(lines))

    def to_arrow(self) -> pa.Table:
        """One row per split, measure, loss and model; shares are of rows, costs of one row."""
        rows = [
            {
                "split": line.split,
                "measure": line.measure,
                "loss": line.loss,
                "model": line.model,
                "before": float(line.before),
                "after": float(line.after),
                "change": float(line.after - line.before),
            }
            for line in self.lines
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def __str__(self) -> str:
        parts = [self.heading]
        for split, rows in self.rows.items():
            table = [line.texts() for line in self.lines if line.split == split]
            table.insert(0, [f"{rows:,} {SPLITS[split]} rows", "before", "after", "change"])
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            parts.append("")
            parts += [
                "  ".join(
                    text.ljust(width) if place == 0 else text.rjust(width)
                    for place, (text, width) in enumerate(zip(row, widths, strict=True))
                ).rstrip()
                for row in table
            ]
        return "\n".join(parts)

    __repr__ = __str__  # what a notebook without HTML shows of it


def _lines(
    split: str, both: Mapping[str, Any], models: Sequence[str], binary: bool
) -> Iterator[Line]:
    before, after = both["before"], both["after"]
    for one, two in zip(before["losses"], after["losses"], strict=True):
        shares = (Fraction(x["disagreement_rows"], before["rows"]) for x in (one, two))
        yield Line(split, APART, one["loss"], None, *shares)
    for one, two in zip(before["losses"], after["losses"], strict=True):
        for place, model in enumerate(models):
            costs = (Fraction(x["decision_loss_exact"][place]) for x in (one, two))
            yield Line(split, COST, one["loss"], model, *costs)
    if before["coordinates"]:
        shares = (largest_class(x) for x in (before, after))
        yield Line(split, SCORES_APART, None, None, *shares)
    for place, model in enumerate(models):
        scores = (usual_brier(x, place + 1, binary) for x in (before, after))
        yield Line(split, "Brier score", None, model, *scores)


def counted(audit: Mapping[str, Any]) -> int:
    """The rows themselves, whatever their weights."""
    rows: int = audit.get("weights", audit)["rows"]
    return rows


def usual_brier(audit: Mapping[str, Any], model: int, binary: bool) -> Fraction:
    """As people know it: of one column P(1) the mean of (f - y)^2, half of the sum."""
    return Fraction(int(audit["brier_sums"][model - 1]), audit["rows"] << (53 if binary else 52))


def largest_class(audit: Mapping[str, Any]) -> Fraction:
    """The largest share of rows beyond alpha in one class."""
    return Fraction(max((one["rows"] for one in audit["coordinates"]), default=0), audit["rows"])

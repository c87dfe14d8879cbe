"""Findings: what was checked of a run, how, and whether it is so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from redcal_spark.core.differences import Difference

Result = Literal["ok", "differs", "not checkable"]
EXIT: dict[Result, int] = {"ok": 0, "differs": 1, "not checkable": 3}
A_COLUMN = 3  # findings of one column, and of whole rows, that people are shown
LISTED = 1_000  # findings that are kept


@dataclass
class Checked:
    """One thing that was checked.

    table: None where it is of no table alone. how: where the expected values are from.
    unchecked: what could not be checked, and why. more: there are more differences than were found.
    notes: what is neither, and to be known.
    """

    what: str
    run_id: str
    table: str | None = None
    how: str = ""
    findings: list[Difference] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    more: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Result:
        if self.findings:
            return "differs"
        return "not checkable" if self.unchecked else "ok"

    def lines(self) -> Iterator[str]:
        """For people: a few findings of every column."""
        shown: Counter[str | None] = Counter()
        for finding in self.findings:
            shown[finding.column] += 1
            if shown[finding.column] <= A_COLUMN:
                yield f"{self.table}: {finding}" if self.table else str(finding)
        left = sum(max(0, count - A_COLUMN) for count in shown.values())
        if left or self.more:
            where = f"{self.table}: " if self.table else ""
            yield f"{where}and {left:,} more" + (" at least" if self.more else "")
        yield from (f"not checked: {why}" for why in self.unchecked)

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "run_id": self.run_id,
            "table": self.table,
            "result": self.result,
            "how": self.how,
            "findings": [_json(finding) for finding in self.findings[:LISTED]],
            "more": self.more or len(self.findings) > LISTED,
            "not_checked": self.unchecked,
        }


def only_violated(checked: Iterable[Checked]) -> bool:
    """Whether all was found as it was written, but for statements that do not hold."""
    every = list(checked)
    findings = [finding for one in every for finding in one.findings]
    whole = not any(one.unchecked for one in every)
    return whole and bool(findings) and all(one.problem == "violated" for one in findings)


def result(checked: Iterable[Checked]) -> Result:
    """The worst of all: what is not so tells more than what could not be seen."""
    results = {one.result for one in checked}
    return next(r for r in ("differs", "not checkable", "ok") if r in results or r == "ok")


def _json(finding: Difference) -> dict[str, Any]:
    return {
        "problem": finding.problem,
        "column": finding.column,
        "row": _plain(finding.row),
        "found": _plain(finding.actual),
        "expected": _plain(finding.expected),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | bytes):
        return str(value)
    return value

"""What `make bench-scale` found of its cases, and whether it can be so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.scale_data import Rows
from tests.bench.scale_plan import Case

LABEL, WEIGHT = 4, 8  # bytes of a packed row, beside its scores


@dataclass(frozen=True)
class Found:
    """A case and what it gave."""

    case: Case
    told: dict[str, Any]

    @property
    def ratio(self) -> float:
        return float(self.told["seconds"] / self.told["bare"])

    @property
    def active_rows(self) -> int:
        return int(self.told["active_bytes"]) // packed_bytes(self.case.rows)


def packed_bytes(rows: Rows) -> int:
    """Of a row as the engines keep it: int32 vectors, a label, and a weight if it has one."""
    return rows.row_bytes + LABEL + (WEIGHT if rows.weights else 0)


def of(found: Iterable[Found], series: str) -> list[Found]:
    return [f for f in found if f.case.series == series]


def by_problem(found: Iterable[Found]) -> list[list[Found]]:
    """Fits that must make the same patches, for they have the same rows and parameters."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for one in found:
        if "log" in one.told:
            groups.setdefault(one.case.problem, []).append(one)
    return [group for group in groups.values() if len(group) > 1]


def that_differ(found: Iterable[Found]) -> list[Found]:
    """Fits with another log than the first of the same problem."""
    return [
        other
        for first, *others in by_problem(found)
        for other in others
        if other.told["log"] != first.told["log"]
    ]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)

"""How a run goes and what it did: those who listen, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.patches import Patch
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.tables import measurements


class Listener:
    """Is told how a run goes; this one does not care."""

    def run(self, run_id: str) -> None:
        """This run is ours to work on."""

    def phase(self, name: str, rows: int | None = None) -> None:
        """A phase starts, over so many rows if that is known."""

    def advance(self, rows: int) -> None:
        """So many more rows of the phase are done."""

    def patch(self, patch: Patch) -> None:
        """A patch was found."""

    def round(self, first: Patch, metrics: Metrics | None) -> None:
        """The round that this patch opened is over."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def done(self) -> None:
        """The last phase is over."""


@dataclass
class Outcome:
    """What a run did. `row` is its row in the ledger.

    unchanged: nothing had to be done. held: another process is doing it; who, in words.
    """

    row: RunRow
    pair: ReconciledPair | None = None
    histories: dict[str, list[Point]] = field(default_factory=dict)
    unchanged: bool = False
    held: str | None = None

    def metrics(self, split: str) -> tuple[Metrics, Metrics] | None:
        """Before and after."""
        points = self.histories.get(split)
        if not points or self.pair is None:
            return None
        losses, binary = self.pair.losses, self.pair.binary
        first, last = (Metrics(points[place].totals, losses, binary) for place in (0, -1))
        return first, last


def summary(outcome: Outcome) -> dict[str, Any]:
    """Before and after, per split, as plain numbers."""
    found: dict[str, Any] = {}
    for split in outcome.histories:
        pair = outcome.metrics(split)
        if pair is not None:
            found[split] = {
                when: [_plain(m) for m in measurements(metrics)]
                for when, metrics in zip(("before", "after"), pair, strict=True)
            }
    return found


def _plain(measurement: dict[str, Any]) -> dict[str, Any]:
    return measurement | {"brier_sum": str(measurement["brier_sum"])}

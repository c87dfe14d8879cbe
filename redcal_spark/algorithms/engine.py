"""What an algorithm may ask of an engine, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.metrics import Totals
from redcal_spark.core.patches import Patch
from redcal_spark.core.sums import GapSums, Residuals, Sums


class Region(Protocol):
    """A set of rows that stays fixed while its scores are patched: a frozen event, or all rows."""

    def sums(self) -> Sums:
        """Label sums, and score sums of every model."""

    def residuals(self, model: int) -> Residuals:
        """Per (loss, action) the rows and sums of y - f, by the model's current best responses."""

    def patch(self, patch: Patch) -> None:
        """Apply a patch: a `reconcile` one to all rows, a `calibrate` one to its action's rows."""

    def close(self) -> None:
        """The rows join the others again, and events follow their scores."""


class Engine(Protocol):
    """The labelled rows that a run fits on. `rows` counts them all, active or not."""

    rows: int

    @property
    def models(self) -> int:
        """How many there are."""
        ...

    @property
    def totals(self) -> Totals | None:
        """Of all rows, kept up to date where someone watches, else None."""
        ...

    def disagreements(self) -> Sequence[Ints]:
        """Rows of every disagreement event: per loss, pair x a1 x a2."""

    def gaps(self) -> GapSums:
        """For Reconcile: rows and sums beyond the gap, per pair, side and coordinate."""

    def freeze(self, event: Disagreement | None) -> Region:
        """Fix the rows of an event, or all rows (None), until the region is closed."""

    def patch(self, patch: Patch) -> None:
        """Apply a patch of kind `score`."""

    def replay(self, log: Sequence[Patch]) -> Region | None:
        """Start from a log; returns the region of its last round, perhaps not calibrated yet."""

    def close(self) -> None: ...

"""Those who listen to how a run goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.patches import Patch
from redcal_spark.core.tuned import Candidate


class Listener:
    """Hears how a run goes; this one does not care."""

    def run(self, run_id: str) -> None:
        """This run is ours to work on."""

    def phase(self, name: str, rows: int | None = None) -> None:
        """A phase starts, over so many rows if that is known."""

    def advance(self, rows: int) -> None:
        """So many more rows of the phase are done."""

    def passing(self, name: str, done: int, total: int) -> None:
        """A pass over the rows that Spark keeps is through so many bytes of so many."""

    def fit(self, losses: LossFamily) -> None:
        """Patches and rounds that follow are of these losses."""

    def patch(self, patch: Patch) -> None:
        """A patch was found."""

    def round(self, first: Patch, metrics: Metrics | None) -> None:
        """The round that this patch opened is over."""

    def candidate(self, candidate: Candidate, count: int) -> None:
        """One of so many candidates of `eta: auto` was tried."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def done(self) -> None:
        """The last phase is over."""

    @contextmanager
    def during(self, name: str, rows: int | None = None) -> Iterator[None]:
        """A phase, from its start to its end."""
        self.phase(name, rows)
        try:
            yield
        finally:
            self.done()

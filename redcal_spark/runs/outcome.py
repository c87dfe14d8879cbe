"""The outcome of a run: what it did, and what follows from it for the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from redcal_spark.core.history import before_and_after
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.scan import ScanResult
from redcal_spark.model.audit import audits
from redcal_spark.model.evidence import row_counts
from redcal_spark.model.guard import Histories
from redcal_spark.model.measurements import plain_measurements
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.ledger import RunRow


@dataclass(frozen=True)
class Outcome:
    """What a run did. `row` is its row in the ledger.

    unchanged: nothing had to be done. held: another process is doing it; who, in words.
    """

    row: RunRow
    pair: ReconciledPair | None = None
    histories: Histories = field(default_factory=dict)
    unchanged: bool = False
    held: str | None = None

    @property
    def metrics(self) -> dict[str, tuple[Metrics, Metrics]]:
        """Per split, before and after."""
        if self.pair is None:
            return {}
        stages = before_and_after(self.histories, self.pair.losses, self.pair.binary)
        return {split: (both["before"], both["after"]) for split, both in stages.items()}


def counts_of(gathered: ScanResult, pair: ReconciledPair) -> dict[str, int]:
    """What a fit counted, for ledger and metrics."""
    return row_counts(gathered) | {"patches": len(pair.log), "rounds": pair.log.rounds}


def weight_counts(gathered: ScanResult) -> dict[str, int]:
    """What is counted besides where rows have weights; for the metrics alone."""
    if gathered.fit.totals.weights is None:
        return {}
    return {
        "weightless_rows": gathered.weightless,
        "fit_weight": gathered.fit.rows,
        "holdout_weight": gathered.holdout.rows,
    }


def ledger_cells(pair: ReconciledPair, histories: Histories) -> dict[str, Any]:
    """What the ledger has of a fit beside its counts; all of it follows from the input."""
    numbers = {
        split: {stage: plain_measurements(metrics) for stage, metrics in stages.items()}
        for split, stages in before_and_after(histories, pair.losses).items()
    }
    return {
        "progress": None,
        "beta": None if pair.resolved.beta is None else float(pair.resolved.beta),
        "model": json.dumps(pair.to_json() | {"log": []}),
        "metrics": json.dumps(numbers),
        "certificate": json.dumps(pair.certificate.to_json()) if pair.certificate else None,
        "audits": json.dumps(audits(pair, histories, pair.certificate)),
    }

"""Accounts: what a fit says of itself in the ledger and in the metrics; all follows from it."""

from __future__ import annotations

import json
from typing import Any

from redcal_spark.core.scan import ScanResult
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.verdict import audits
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.outcome import Outcome, summary


def counted(gathered: ScanResult, pair: ReconciledPair) -> dict[str, int]:
    """What a fit counted, for ledger and metrics."""
    return {
        "rows": gathered.rows,
        "fit_rows": gathered.fit.rows,
        "holdout_rows": gathered.holdout.rows,
        "unlabelled_rows": gathered.unlabelled,
        "bad_rows": gathered.bad,
        "patches": len(pair.log),
        "rounds": pair.log.rounds,
    }


def found(outcome: Outcome, gathered: ScanResult) -> dict[str, Any]:
    """What a fit says of itself in the ledger; all of it follows from the input."""
    pair = outcome.pair
    assert pair is not None
    return {
        **counted(gathered, pair),
        "progress": None,
        "beta": None if pair.resolved.beta is None else float(pair.resolved.beta),
        "model": json.dumps(pair.to_json() | {"log": []}),
        "metrics": json.dumps(summary(outcome)),
        "certificate": json.dumps(pair.certificate.to_json()) if pair.certificate else None,
        "audits": json.dumps(audits(pair, outcome.histories)),
    }


def metrics_run(row: RunRow, pair: ReconciledPair) -> dict[str, str]:
    """What every row of the metrics says of its run."""
    return {"run_id": row.run_id, "command": row.command, "status": pair.status}


def counts_told(counts: dict[str, int], pair: ReconciledPair) -> dict[str, int]:
    """The counts of a run, and of its certificate's verdicts."""
    if pair.certificate is None:
        return counts
    found = pair.certificate.counts.items()
    return counts | {f"checks_{name.replace(' ', '_')}": count for name, count in found}

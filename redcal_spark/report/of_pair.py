"""The report of a pair that Python holds: a run without tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from redcal_spark.core.columns import Columns
from redcal_spark.model.evaluation import Evaluation
from redcal_spark.model.evidence import Evidence
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.report.data import Report
from redcal_spark.runs.ledger import RunRow, digest


def report_of(shown: ReconciledPair | Evaluation) -> Report:
    """What the page shows of a pair, or of a pair on new rows; the fingerprint is the model's."""
    pair = shown.pair if isinstance(shown, Evaluation) else shown
    evidence = shown.measured("a report") if isinstance(shown, ReconciledPair) else shown.evidence
    config = _config(pair)
    return Report(
        row=_row(pair, evidence, config),
        config=config,
        parameters=pair.parameters,
        resolved=pair.resolved,
        losses=pair.losses,
        log=pair.log,
        certificate=shown.certificate,
        binary=pair.binary,
        n_classes=pair.n_classes,
        audits=evidence.audits,
        history=evidence.history.numbers,
        zero_calibrations=pair.zero_calibrations,
        versions={},
        tuned=pair.tuned,
    )


def _row(pair: ReconciledPair, evidence: Evidence, config: dict[str, Any]) -> RunRow:
    mark = digest(pair.to_json())
    counts: dict[str, Any] = dict(evidence.counts)
    return RunRow(
        run_id=f"python-{mark[:12]}",
        fingerprint=mark,
        config_digest=digest(config),
        command="Python",
        status=pair.status,
        started_at=evidence.measured_at,
        patches=len(pair.log),
        rounds=pair.log.rounds,
        config=json.dumps(config),
        inputs=json.dumps({"kind": "held in memory"}),
        **counts,
    )


def _config(pair: ReconciledPair) -> dict[str, Any]:
    """The arguments in the form of a configuration."""
    columns = pair.columns
    return {
        "input": {
            "table": "data given in Python",
            "id": columns.id,
            "label": columns.label,
            "models": dict(zip(columns.shown, map(_plain, columns.models), strict=True)),
            "classes": _plain(columns.classes),
            **_weight(columns),
        },
        "losses": {
            loss.name: {
                "actions": list(loss.actions),
                "costs": [list(line) for line in loss.costs],
            }
            for loss in pair.losses.losses
        },
        "reconcile": asdict(pair.parameters),
        "output": {},
    }


def _weight(columns: Columns) -> dict[str, Any]:
    if columns.weight is None:
        return {}
    return {"weight": columns.weight, "weight_unit": columns.weight_unit}


def _plain(names: str | tuple[str, ...] | None) -> Any:
    return list(names) if isinstance(names, tuple) else names

"""The audit: how much two models disagree and what that costs, before anything is changed."""

from __future__ import annotations

from typing import Any

from redcal_spark.metrics import Metrics
from redcal_spark.records import root


def audit(metrics: Metrics) -> dict[str, Any]:
    """Plain numbers, per loss: who does what, at what cost, and how well calibrated."""
    losses = []
    for place, loss in enumerate(metrics.losses.losses):
        pairs, events = metrics.totals.pairs[place], metrics.totals.events[place]
        losses.append(
            {
                "loss": loss.name,
                "actions": list(loss.actions),
                "decision_loss": [float(metrics.decision_loss(place, m)) for m in (1, 2)],
                "optimal_loss": float(metrics.optimal_loss(place)),
                "disagreement": float(metrics.disagreement(place)),
                "largest_event": float(metrics.largest_event(place)),
                "calibration_gap": [
                    root(metrics.squared_calibration_gap(place, m)) for m in (1, 2)
                ],
                "rows": pairs.tolist(),
                "event_rows": events.tolist(),
            }
        )
    return {
        "rows": metrics.rows,
        "brier": [float(metrics.brier(m)) for m in (1, 2)],
        "losses": losses,
    }

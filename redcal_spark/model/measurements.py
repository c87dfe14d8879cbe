"""The numbers of a history: what is measured at every point, per split, loss and model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics, root

# Name, type and what it is: docs/reference/outputs.md says more.
MEASURED = (
    ("split", pa.string(), "fitting or holdout rows"),
    ("step", pa.int64(), "patches so far"),
    ("round", pa.int64(), "rounds so far"),
    ("model", pa.int32(), "the model, from 1"),
    ("loss", pa.string(), "null where a run has no losses"),
    ("rows", pa.int64(), "rows of the split"),
    (
        "brier",
        pa.float64(),
        "mean Brier score, summed over classes; of one column P(1) twice the mean",
    ),
    ("brier_sum", pa.decimal128(38, 0), "its exact sum, in units of 2^-52"),
    ("decision_loss", pa.float64(), "mean cost of the decisions, in your units"),
    (
        "loss_gap",
        pa.float64(),
        "mean cost above the decisions of somebody who knows the outcome and decides on the grid",
    ),
    ("largest_event", pa.float64(), "share of rows in the largest disagreement event"),
    ("largest_event_rows", pa.int64(), "its rows"),
    ("disagreement", pa.float64(), "share of rows on which the models' actions differ"),
    ("disagreement_rows", pa.int64(), "these rows"),
    ("calibration_gap", pa.float64(), "how far the model is off for an action, at most"),
)


def history_rows(
    losses: LossFamily, histories: Mapping[str, Sequence[Point]]
) -> Iterator[dict[str, Any]]:
    """One row per split, point, loss and model."""
    for split, points in histories.items():
        for point in points:
            place = {"split": split, "step": point.steps, "round": point.rounds}
            for numbers in measurements(Metrics(point.totals, losses)):
                yield place | numbers


def measurements(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """The numbers of one point, per loss and model (per model alone without losses)."""
    for model in metrics.models:
        common = {
            "model": model,
            "rows": metrics.rows,
            "brier": float(metrics.brier(model)),
            "brier_sum": Decimal(metrics.totals.brier[model - 1]),
        }
        for place, loss in enumerate(metrics.losses.losses):
            event, apart = metrics.largest_event(place), metrics.disagreement(place)
            yield common | {
                "loss": loss.name,
                "decision_loss": float(metrics.decision_loss(place, model)),
                "loss_gap": float(metrics.loss_gap(place, model)),
                "largest_event": float(event),
                "largest_event_rows": int(event * metrics.rows),
                "disagreement": float(apart),
                "disagreement_rows": int(apart * metrics.rows),
                "calibration_gap": root(metrics.squared_calibration_gap(place, model)),
            }
        if not len(metrics.losses):
            gap = metrics.largest_gap()
            yield common | {
                "largest_event": float(gap),
                "largest_event_rows": int(gap * metrics.rows),
            }


def plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one line for JSON, where the exact sum is a text."""
    return {**numbers, "brier_sum": str(numbers["brier_sum"])}


def plain_measurements(metrics: Metrics) -> list[dict[str, Any]]:
    return [plain(numbers) for numbers in measurements(metrics)]

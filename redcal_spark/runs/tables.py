"""Records: the patch log and the history as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics, root
from redcal_spark.core.patches import FIELDS, PatchLog

PATCHES = pa.schema(
    [
        ("run_id", pa.string()),
        ("step", pa.int64()),
        ("round", pa.int64()),
        ("kind", pa.string()),
        ("model", pa.int32()),
        ("loss", pa.string()),
        ("a1", pa.int32()),
        ("a2", pa.int32()),
        ("action", pa.int32()),
        ("coordinate", pa.int32()),
        ("direction", pa.string()),
        ("rows", pa.int64()),
        ("phi", pa.list_(pa.int32())),
    ]
)

HISTORY = pa.schema(
    [
        ("run_id", pa.string()),
        ("split", pa.string()),  # fit or holdout
        ("step", pa.int64()),  # patches so far
        ("round", pa.int64()),  # rounds so far
        ("model", pa.int32()),
        ("loss", pa.string()),  # null where a run has no losses
        ("rows", pa.int64()),
        ("brier", pa.float64()),
        ("brier_sum", pa.decimal128(38, 0)),  # exact, in units of 2^-52
        ("decision_loss", pa.float64()),  # mean cost, in the user's units
        ("loss_gap", pa.float64()),  # above the actions that know y
        ("largest_event", pa.float64()),  # mass of the largest disagreement event
        ("largest_event_rows", pa.int64()),
        ("disagreement", pa.float64()),  # share of rows whose two actions differ
        ("disagreement_rows", pa.int64()),
        ("calibration_gap", pa.float64()),  # largest norm of a mean residual over the actions
    ]
)


def patches_table(run_id: str, log: PatchLog) -> pa.Table:
    rows = [{"run_id": run_id, **patch.to_json()} for patch in log]
    return pa.Table.from_pylist(rows, schema=PATCHES)


def log_of(table: pa.Table) -> PatchLog:
    """The log of one run, from its rows in any order.

    Two processes may have written the same patches: one was taken for dead and was not.
    """
    rows = table.select(list(FIELDS)).sort_by("step").to_pylist()
    return PatchLog.from_json(row for i, row in enumerate(rows) if not i or row != rows[i - 1])


def history_table(
    run_id: str, losses: LossFamily, histories: Mapping[str, Sequence[Point]]
) -> pa.Table:
    """One row per split, point, loss and model."""
    rows = []
    for split, points in histories.items():
        for point in points:
            place = {"run_id": run_id, "split": split, "step": point.steps, "round": point.rounds}
            rows += [place | found for found in measurements(Metrics(point.totals, losses))]
    return pa.Table.from_pylist(rows, schema=HISTORY)


def measurements(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """The numbers of one point, per loss and model (per model alone without losses)."""
    for model in (1, 2):
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

"""The metrics table: what a run took and what it achieved, as numbers that a dashboard can query.

One row a number, told apart by `kind`:

- count: rows, patches, jobs and so on. `counted` is the integer, `value` the same as a double.
- phase: `value` is seconds.
- pass: one pass over rows, in the order of `number`. `value` is seconds, `counted` rows, `bytes`
  those of packed rows where rows were packed.
- quality: a measure before and after (`stage`), per split. `counted` is rows where it is a share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from redcal_spark.backends.counters import Counters
from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.runs.tables import measurements

METRICS = pa.schema(
    [
        ("run_id", pa.string()),
        ("command", pa.string()),
        ("status", pa.string()),
        ("measured_at", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("number", pa.int64()),
        ("split", pa.string()),  # fit or holdout
        ("stage", pa.string()),  # before or after
        ("model", pa.int32()),
        ("loss", pa.string()),
        ("value", pa.float64()),
        ("counted", pa.int64()),
        ("bytes", pa.int64()),
    ]
)

PER_MODEL = ("decision_loss", "loss_gap", "calibration_gap")
SHARES = ("largest_event", "disagreement")


def metrics_table(
    run: Mapping[str, Any],
    counts: Mapping[str, int | None],
    taken: Mapping[str, Any],
    histories: Mapping[str, Sequence[Point]],
    losses: LossFamily,
) -> pa.Table:
    """run: run_id, command and status. taken: what it took, as `measured` or `measured_in` tell.

    Rows are in an order that does not change.
    """
    timings: Mapping[str, float] = taken["timings"]
    rows = [
        *_counts(counts),
        *_counts(taken["counters"]),
        *({"kind": "phase", "name": name, "value": value} for name, value in timings.items()),
        *_passes(taken["passes"]),
        *_quality(histories, losses),
    ]
    known = {**run, "measured_at": datetime.fromisoformat(taken["measured_at"])}
    return pa.Table.from_pylist([known | row for row in rows], schema=METRICS)


def _counts(counts: Mapping[str, int | None]) -> Iterator[dict[str, Any]]:
    for name, count in counts.items():
        if count is not None:
            yield {"kind": "count", "name": name, "value": float(count), "counted": count}


def measured(timings: Mapping[str, float], counters: Counters) -> dict[str, Any]:
    """What a run took until now, as plain data: nobody can measure it again."""
    return {
        "measured_at": datetime.now(UTC).isoformat(),
        "counters": counters.to_json(),
        "timings": dict(timings),
        "passes": [[made.name, made.seconds, made.rows, made.bytes] for made in counters.passes],
    }


def measured_in(table: pa.Table) -> dict[str, Any]:
    """The same from the rows of a run that were written already."""
    rows = table.to_pylist()
    passes = [row for row in rows if row["kind"] == "pass"]
    passes.sort(key=lambda row: int(row["number"]))
    counted = {row["name"]: row["counted"] for row in rows if row["kind"] == "count"}
    return {
        "measured_at": rows[0]["measured_at"].astimezone(UTC).isoformat(),
        "counters": {name: counted[name] for name in Counters().to_json() if name in counted},
        "timings": {row["name"]: row["value"] for row in rows if row["kind"] == "phase"},
        "passes": [[row[name] for name in ("name", "value", "counted", "bytes")] for row in passes],
    }


def _passes(passes: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for number, (name, seconds, rows, size) in enumerate(passes):
        told = {"number": number, "value": seconds, "counted": rows, "bytes": size}
        yield {"kind": "pass", "name": name} | told


def _quality(
    histories: Mapping[str, Sequence[Point]], losses: LossFamily
) -> Iterator[dict[str, Any]]:
    for split, points in histories.items():
        for stage, point in (("before", points[0]), ("after", points[-1])):
            place = {"kind": "quality", "split": split, "stage": stage}
            for number in _numbers(Metrics(point.totals, losses)):
                yield place | number


def _numbers(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """Each number once: a Brier score is of a model, a disagreement of both under a loss."""
    first = metrics.losses.losses[0].name if len(metrics.losses) else None
    for found in measurements(metrics):
        model, loss = found["model"], found.get("loss")
        if loss == first:
            yield {"name": "brier", "model": model, "value": found["brier"]}
        for name in PER_MODEL:
            if name in found:
                yield {"name": name, "model": model, "loss": loss, "value": found[name]}
        for name in SHARES:
            if name in found and model == 1:
                counted = found[f"{name}_rows"]
                yield {"name": name, "loss": loss, "value": found[name], "counted": counted}

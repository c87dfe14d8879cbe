"""The tables of a run beside its rows: patches, history and metrics, their schemas and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.backends.comments import schema_of
from redcal_spark.backends.counters import Counters
from redcal_spark.backends.store import Store
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.segment_checks import segments_of
from redcal_spark.core.history import Point, before_and_after
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.patches import FIELDS, PatchLog
from redcal_spark.core.segment_numbers import read
from redcal_spark.errors import RunError
from redcal_spark.model.measurements import MEASURED, history_rows, measurements
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs import words_of_0_1
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.segment_tables import segment_measurements, segment_quality

# The words are those of docs/reference/outputs.md.
SEGMENT = (
    ("segment", pa.string(), "the column of a segment; null: of all rows"),
    (
        "segment_kind",
        pa.string(),
        "what its value is: value, null, or other for all that are not listed",
    ),
    ("segment_value", pa.string(), "the value"),
)

PATCHES = schema_of(
    "The patch log of redcal: one row per patch",
    [
        ("run_id", pa.string(), "the run"),
        ("step", pa.int64(), "0, 1, 2 ... through the whole log"),
        ("round", pa.int64(), "the round of ReDCal or Reconcile; null: calibrated everywhere"),
        (
            "kind",
            pa.string(),
            "reconcile (first patch of a round), calibrate, or score (procedure Reconcile)",
        ),
        ("model", pa.int32(), "the model that is patched, from 1"),
        # null also in rows of releases for two models
        ("other", pa.int32(), "the model that it disagreed with; null: calibrated"),
        ("loss", pa.string(), "the loss of the disagreement, or of the calibration"),
        ("a1", pa.int32(), "action of the first of the two models in the disagreement, by index"),
        ("a2", pa.int32(), "action of the second one"),
        ("action", pa.int32(), "calibrate: rows whose best action is this one"),
        ("coordinate", pa.int32(), "score: the class"),
        (
            "direction",
            pa.string(),
            "score: > where the first of the two is above, < where it is below",
        ),
        ("rows", pa.int64(), "fitting rows that it moved"),
        ("phi", pa.list_(pa.int32()), "what is added to each class, in units of 2^-26"),
    ],
)

HISTORY = schema_of(
    "What redcal measured: one row per round, split, loss and model",
    [("run_id", pa.string(), "the run"), *MEASURED, *SEGMENT],
)

# What a run took and what it achieved, as numbers that a dashboard can query: one row a number, of
# a `kind`. count: rows, patches, jobs and so on; `counted` is the integer, `value` the same as a
# double. phase: `value` is seconds. pass: one pass over rows, in the order of `number`; `value` is
# seconds, `counted` rows, `bytes` those of packed rows where rows were packed. quality: a measure
# before and after (`stage`), per split; `counted` is rows where it is a share.
METRICS = schema_of(
    "What runs of redcal took and achieved: one row per number",
    [
        ("run_id", pa.string(), "the run"),
        ("command", pa.string(), "run, fit, apply"),
        ("status", pa.string(), "how it ended"),
        ("measured_at", pa.timestamp("us", "UTC"), "when"),
        ("kind", pa.string(), "count, phase, pass or quality"),
        ("name", pa.string(), "what is measured"),
        ("number", pa.int64(), "the place of a pass"),
        ("split", pa.string(), "of quality: fitting or holdout rows"),
        ("stage", pa.string(), "of quality: before or after"),
        ("model", pa.int32(), "the model, from 1, where it is of one"),
        ("loss", pa.string(), "where it is of one loss"),
        ("value", pa.float64(), "the number"),
        ("counted", pa.int64(), "the same as an integer, or its rows"),
        ("bytes", pa.int64(), "of packed rows"),
        *SEGMENT,
    ],
)

# Numbers of a model, of a model under a loss, and of all models under a loss.
OF_MODEL = ("brier",)
PER_MODEL = ("decision_loss", "loss_gap", "calibration_gap")
SHARES = ("largest_event", "disagreement")


# --- patches --------------------------------------------------------------------------------------


def patches_table(run_id: str, log: PatchLog) -> pa.Table:
    rows = [{"run_id": run_id, **patch.to_json()} for patch in log]
    return pa.Table.from_pylist(rows, schema=PATCHES)


def with_other(table: pa.Table) -> pa.Table:
    """Rows of runs of two models with `other`, which earlier releases did not write."""
    model, kind = table["model"], table["kind"]
    given = table["other"] if "other" in table.column_names else pa.nulls(len(table), pa.int32())
    one = pc.subtract(pa.scalar(3, pa.int32()), model)
    known = pc.if_else(pc.equal(kind, "calibrate"), pa.scalar(None, pa.int32()), one)
    other = pc.coalesce(given, known).cast(pa.int32())
    if "other" not in table.column_names:
        return table.append_column("other", other)
    return table.set_column(table.column_names.index("other"), "other", other)


def log_of(table: pa.Table, models: int) -> PatchLog:
    """The log of one run, from its rows in any order.

    Two processes may have written the same patches: one was taken for dead and was not.
    """
    if models == 2 or "other" not in table.column_names:
        table = with_other(table)
    rows = table.select(list(FIELDS)).sort_by("step").to_pylist()
    return PatchLog.from_json(row for i, row in enumerate(rows) if not i or row != rows[i - 1])


def pair_of(store: Store, patches: str, row: RunRow) -> ReconciledPair:
    """The model of a run, from ledger and patches."""
    row.check_kept()
    assert row.model is not None
    table = store.read(patches, {"run_id": row.run_id})
    model = json.loads(row.model)
    known = model.get("columns", {}).get("models", ()) if isinstance(model, dict) else ()
    log = PatchLog() if table is None else log_of(table, len(known) or 2)
    if row.status == "cut":  # the run made more than the guard kept
        log = PatchLog(log[: row.patches])
    if len(log) != (row.patches or 0):
        raise RunError(f"{patches} has {len(log)} of the {row.patches} patches of run {row.run_id}")
    others = model.get("schema_version") not in (1, 2)
    pair = ReconciledPair.from_json(model | {"log": log.to_json(others=others)})
    if row.certificate is None:
        return pair
    return replace(pair, certificate=Certificate.from_json(json.loads(row.certificate)))


# --- history --------------------------------------------------------------------------------------


def history_table(
    run_id: str,
    losses: LossFamily,
    histories: Mapping[str, Sequence[Point]],
    segments: Sequence[str],
) -> pa.Table:
    """One row per split, point, loss and model; per segment those of the first and last point."""
    rows = [{"run_id": run_id} | row for row in history_rows(losses, histories)]
    told_apart = segments_of(segments, *histories.values())
    if told_apart is None:
        return pa.Table.from_pylist(rows, schema=HISTORY)
    for split, points in histories.items():
        for point in dict.fromkeys((points[0], points[-1])):
            place = {"run_id": run_id, "split": split, "step": point.steps, "round": point.rounds}
            for one in read(point.totals, told_apart, losses):
                rows += [place | numbers for numbers in segment_measurements(one)]
    return pa.Table.from_pylist(rows, schema=HISTORY)


def history_of(store: Store, history: str, row: RunRow) -> pa.Table | None:
    """What a run measured on all rows, in the words of today; None: the table is not there."""
    table = store.read(history, {"run_id": row.run_id})
    if table is None:
        return None
    if words_of_0_1.wrote(vars(row)):
        table = words_of_0_1.split_column(table)
    if "segment" in table.column_names:
        table = table.filter(pc.is_null(table["segment"]))
    return table


# --- metrics --------------------------------------------------------------------------------------


def metrics_table(
    run: RunRow,
    pair: ReconciledPair,
    counts: Mapping[str, int],
    taken: Mapping[str, Any],
    histories: Mapping[str, Sequence[Point]],
) -> pa.Table:
    """Rows are in an order that does not change.

    taken: what the run took, by `measured` or `measured_in`. histories: none of a run that only
    applied a model, whose certificate is not its own.
    """
    timings: Mapping[str, float] = taken["timings"]
    rows = [
        *_counts(counts),
        *_counts(_verdicts(pair) if histories else {}),
        *_counts(taken["counters"]),
        *({"kind": "phase", "name": name, "value": value} for name, value in timings.items()),
        *_passes(taken["passes"]),
        *_quality(histories, pair.losses),
        *segment_quality(histories, pair),
    ]
    common = {
        "run_id": run.run_id,
        "command": run.command,
        "status": pair.status,
        "measured_at": datetime.fromisoformat(taken["measured_at"]),
    }
    return pa.Table.from_pylist([common | row for row in rows], schema=METRICS)


def _verdicts(pair: ReconciledPair) -> dict[str, int]:
    """How many checks of the certificate came to which verdict."""
    counts = {} if pair.certificate is None else pair.certificate.counts
    return {f"checks_{name.replace(' ', '_')}": count for name, count in counts.items()}


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
        taken = {"number": number, "value": seconds, "counted": rows, "bytes": size}
        yield {"kind": "pass", "name": name} | taken


def _quality(
    histories: Mapping[str, Sequence[Point]], losses: LossFamily
) -> Iterator[dict[str, Any]]:
    for split, stages in before_and_after(histories, losses).items():
        for stage, metrics in stages.items():
            place = {"kind": "quality", "split": split, "stage": stage}
            for number in _numbers(metrics):
                yield place | number


def _numbers(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """Each number once: a Brier score is of a model, a disagreement of both under a loss."""
    first = metrics.losses.losses[0].name if len(metrics.losses) else None
    for measures in measurements(metrics):
        model, loss = measures["model"], measures.get("loss")
        for name in OF_MODEL if loss == first else ():
            yield {"name": name, "model": model, "value": measures[name]}
        for name in PER_MODEL:
            if name in measures:
                yield {"name": name, "model": model, "loss": loss, "value": measures[name]}
        for name in SHARES:
            if name in measures and model == 1:
                counted = measures[f"{name}_rows"]
                yield {"name": name, "loss": loss, "value": measures[name], "counted": counted}

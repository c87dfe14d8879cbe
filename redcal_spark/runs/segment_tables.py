"""What history and metrics have of segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from redcal_spark.certificate.segment_checks import segments_of
from redcal_spark.core.history import Point, before_and_after
from redcal_spark.core.segment_numbers import SegmentMetrics, read
from redcal_spark.model.pair import ReconciledPair


def segment_measurements(one: SegmentMetrics) -> Iterator[dict[str, Any]]:
    """The numbers of one segment, per model and loss."""
    for model in range(1, one.models + 1):
        common = {
            **_segment(one),
            "model": model,
            "rows": one.rows,
            "brier": float(one.brier(model)),
            "brier_sum": Decimal(one.brier_sum(model)),
        }
        for place, loss in enumerate(one.losses.losses):
            yield common | {
                "loss": loss.name,
                "decision_loss": float(one.decision_loss(place, model)),
                "disagreement": float(one.disagreement(place)),
                "disagreement_rows": one.apart_rows(place),
            }
        if not len(one.losses):
            yield common


def _segment(one: SegmentMetrics) -> dict[str, Any]:
    known = one.segment
    return {
        "segment": known.column,
        "segment_kind": known.kind,
        "segment_value": known.text,
    }


def segment_quality(
    histories: Mapping[str, Sequence[Point]], pair: ReconciledPair
) -> Iterator[dict[str, Any]]:
    told_apart = segments_of(pair.columns.segments, *histories.values())
    if told_apart is None:
        return
    for split, stages in before_and_after(histories, pair.losses).items():
        for stage, metrics in stages.items():
            for one in read(metrics.totals, told_apart, pair.losses):
                place = {"kind": "quality", "split": split, "stage": stage, **_segment(one)}
                for number in _segment_numbers(one):
                    yield place | number


def _segment_numbers(one: SegmentMetrics) -> Iterator[dict[str, Any]]:
    models = range(1, one.models + 1)
    yield {"name": "rows", "value": float(one.rows), "counted": one.rows}
    for model in models:
        yield {"name": "brier", "model": model, "value": float(one.brier(model))}
    for place, loss in enumerate(one.losses.losses):
        apart = {"value": float(one.disagreement(place)), "counted": one.apart_rows(place)}
        yield {"name": "disagreement", "loss": loss.name, **apart}
        for model in models:
            own = {"model": model, "loss": loss.name}
            yield own | {
                "name": "decision_loss",
                "value": float(one.decision_loss(place, model)),
            }
            yield own | {
                "name": "changed_decisions",
                "value": float(one.moved(place, model)),
                "counted": one.moved_rows(place, model),
            }

"""Segments as plain data: what every value of a column looks like, and what it pays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.holdout import HoldoutRows
from redcal_spark.certificate.segment_checks import SegmentRows, segments_of
from redcal_spark.core.chosen_segments import Chosen, chosen
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.problem import Problem
from redcal_spark.core.segment_numbers import SegmentMetrics, read


def segment_lines(totals: Totals, chosen: Chosen, losses: LossFamily) -> list[dict[str, Any]]:
    """Per segment {segment, kind, value, rows, share, brier, losses}; most rows first, by column.

    kind: value, null or other; value: its text, or null. losses: per loss {loss, disagreement,
    disagreement_rows, decision_loss, decision_loss_exact, changed, changed_rows}, the last four
    per model: the mean cost, and where a model decides otherwise than at first.
    """
    return [_line(one, totals.rows) for one in read(totals, chosen, losses)]


def all_segments(totals: Totals, problem: Problem) -> list[dict[str, Any]]:
    """The same of the rows of a scan."""
    assert totals.segments is not None
    return segment_lines(
        totals, chosen(problem.columns.segments, [totals.segments]), problem.losses
    )


def segments_by_stage(
    pair: Fitted, histories: Mapping[str, Sequence[Point]], certificate: Certificate | None
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The same before and after, per split; nothing where there are no segments."""
    told_apart = segments_of(pair.columns.segments, *histories.values())
    if told_apart is None:
        return {}
    by_split: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for split, points in histories.items():
        stages = {"before": points[0].totals, "after": points[-1].totals}
        by_split[split] = {
            stage: segment_lines(totals, told_apart, pair.losses)
            for stage, totals in stages.items()
        }
    if "holdout" in by_split:
        _with_changes(by_split["holdout"]["after"], pair, histories, certificate)
    return by_split


def _line(one: SegmentMetrics, rows: int) -> dict[str, Any]:
    models = range(1, one.models + 1)
    losses = []
    for place, loss in enumerate(one.losses.losses):
        costs = [one.decision_loss(place, model) for model in models]
        losses.append(
            {
                "loss": loss.name,
                "disagreement": float(one.disagreement(place)),
                "disagreement_rows": one.apart_rows(place),
                "decision_loss": [float(cost) for cost in costs],
                "decision_loss_exact": [str(cost) for cost in costs],
                "changed": [float(one.moved(place, model)) for model in models],
                "changed_rows": [one.moved_rows(place, model) for model in models],
            }
        )
    return {
        "segment": one.segment.column,
        "kind": one.segment.kind,
        "value": one.segment.text,
        "rows": one.rows,
        "share": one.rows / rows,
        "brier": [float(one.brier(model)) for model in models],
        "losses": losses,
    }


def _with_changes(
    lines: list[dict[str, Any]],
    pair: Fitted,
    histories: Mapping[str, Sequence[Point]],
    certificate: Certificate | None,
) -> None:
    """Holdout rows after the last patch: what every segment's cost changed by, with an interval.

    In the user's units. All of these, and all other statements of the certificate, hold together.
    """
    level = None if certificate is None else certificate.level
    case = Case(pair, histories.get("fit", histories["holdout"]))
    segments = SegmentRows.of(case, *histories.values())
    if level is None or segments is None:
        return
    held = HoldoutRows(case, histories["holdout"], level)
    for line, both in zip(lines, segments.stages(held), strict=True):
        for place, loss in enumerate(line["losses"]):
            loss["change"] = list(_changes(held, segments, both, place))


def _changes(
    held: HoldoutRows,
    segments: SegmentRows,
    both: tuple[SegmentMetrics, SegmentMetrics],
    place: int,
) -> Iterator[dict[str, float]]:
    scale = both[1].losses[place].scale
    for model in segments.models:
        measured, interval = segments.rise(held, *both, place, model)
        low, high = (float(end * scale) for end in interval.ends)
        yield {"value": float(measured * scale), "low": low, "high": high}

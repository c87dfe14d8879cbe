"""History: the metrics after every round, from one replay of the log over the active rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from redcal_spark.blocks import Block
from redcal_spark.kernel import Index, Rows, Rules
from redcal_spark.metrics import Totals, measure
from redcal_spark.parallel import ordered
from redcal_spark.patches import Patch

POINTS = 200  # of a calibration everywhere, evenly spaced
ROWS_MEASURED = 10**8  # a calibration of very many rows gets fewer points


@dataclass(frozen=True, eq=False)
class Point:
    """The totals after `steps` patches and `rounds` rounds."""

    steps: int
    rounds: int
    totals: Totals


def segments(log: Sequence[Patch], rows: int) -> list[list[Patch]]:
    """The log cut at the points to measure: rounds' ends, and steps of a calibration everywhere."""
    free = sum(patch.round is None for patch in log)
    points = max(10, min(POINTS, ROWS_MEASURED // max(rows, 1)))
    every = max(1, -(-free // points))
    found: list[list[Patch]] = []
    for place, patch in enumerate(log):
        new_round = patch.round is not None and (place == 0 or log[place - 1].round != patch.round)
        spaced = patch.round is None and (place % every == 0 or log[place - 1].model != patch.model)
        if not found or new_round or spaced:
            found.append([])
        found[-1].append(patch)
    return found


def history(
    start: Totals,
    active: Sequence[Block],
    rules: Rules,
    log: Sequence[Patch],
    threads: int | None = None,
) -> list[Point]:
    """The totals before the first patch and after every segment.

    Only the rows that a segment may touch are measured, before and after it: a round's event, or
    all rows of a calibration everywhere.
    """
    parts = [Rows(block, rules) for block in active]
    points = [Point(0, 0, start)]
    totals, rounds = start, 0
    for segment in segments(log, sum(map(len, parts))):
        for change in ordered(partial(_advance, segment), parts, threads):
            totals = totals + change
        rounds += segment[0].round is not None
        points.append(Point(segment[-1].step + 1, rounds, totals))
    return points


def _advance(segment: Sequence[Patch], rows: Rows) -> Totals:
    """Apply a segment; returns what it changed."""
    index = rows.may_touch(segment[0])
    before = _measure(rows, index)
    for patch in segment:
        rows.apply(patch)
    rows.settle()
    return _measure(rows, index) - before


def _measure(rows: Rows, index: Index) -> Totals:
    known = [a.take(index, axis=1) for a in rows.actions], rows.events.take(index, axis=1)
    return measure(rows.current(index), rows.rules, known)

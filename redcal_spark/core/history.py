"""History: the metrics after every round, from one replay of the log over the active rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from redcal_spark.core.blocks import Block
from redcal_spark.core.kernel import BlockScan, Classified, Index, Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Metrics, Totals, measure
from redcal_spark.core.moves import with_moves
from redcal_spark.core.paired import NOWHERE, Paired, Pairing, Range, brier_ranges
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from redcal_spark.core.segment_numbers import SegmentTracker

POINTS = 200  # of a calibration everywhere, evenly spaced
ROWS_MEASURED = 10**8  # a calibration of very many rows gets fewer points


@dataclass(frozen=True, eq=False)
class Point:
    """The totals after `steps` patches and `rounds` rounds."""

    steps: int
    rounds: int
    totals: Totals


def before_and_after(
    histories: Mapping[str, Sequence[Point]], losses: LossFamily, binary: bool = False
) -> dict[str, dict[str, Metrics]]:
    """Per split, the metrics of the first point and of the last, by `before` and `after`."""
    return {
        split: {
            stage: Metrics(point.totals, losses, binary)
            for stage, point in (("before", points[0]), ("after", points[-1]))
        }
        for split, points in histories.items()
    }


def rounds_start(points: Sequence[Point]) -> Point:
    """Where the rounds start: after the calibration everywhere, if there was one."""
    return [point for point in points if point.rounds == 0][-1]


def segments(log: Sequence[Patch], rows: int) -> list[list[Patch]]:
    """The log cut at the points to measure: rounds' ends, and steps of a calibration everywhere.

    rows: how many it was fitted on. Holdout rows have no say, for the guard chooses among these.
    """
    free = sum(patch.round is None for patch in log)
    points = max(10, min(POINTS, ROWS_MEASURED // max(rows, 1)))
    every = max(1, -(-free // points))
    cut: list[list[Patch]] = []
    for place, patch in enumerate(log):
        new_round = patch.round is not None and (place == 0 or log[place - 1].round != patch.round)
        spaced = patch.round is None and (place % every == 0 or log[place - 1].model != patch.model)
        if not cut or new_round or spaced:
            cut.append([])
        cut[-1].append(patch)
    return cut


def history(
    start: Totals,
    scans: Iterable[BlockScan],
    rules: Rules,
    log: Sequence[Patch],
    spread: Callable[..., Iterable[list[Totals]]] = map,
    *,
    fitted: int | None = None,
    holdout: Holdout | None = None,
) -> list[Point]:
    """The totals before the first patch and after every segment.

    spread: how blocks are spread over threads, as `map` with a function and items.
    fitted: how many rows the log was fitted on, which decides where to measure: by default `start`
    is of these. holdout: the rows are none of them, and what changed is paired row by row.
    """
    cut = segments(log, start.counted if fitted is None else fitted)
    measured = Measured(cut, rules, start.optimum.shape[1], holdout)

    def replayed(scan: BlockScan) -> list[Totals]:
        return measured.changes(scan.active, scan.own_classified())

    return points(start, cut, added(spread(replayed, scans), len(cut)), holdout)


@dataclass(frozen=True)
class Holdout:
    """What must be known of holdout rows, whether or not the log touches any."""

    vectors: bool  # labels are vectors
    heaviest: int = 1  # the largest weight


class Measured:
    """A log in segments, ready to be replayed on blocks of rows."""

    def __init__(
        self, cut: Sequence[Sequence[Patch]], rules: Rules, d: int, holdout: Holdout | None
    ):
        self.cut = cut
        self.rules = rules
        self.ranges: list[Range] | None = None
        if holdout is not None:
            self._heaviest = holdout.heaviest
            ranges = brier_ranges(cut, d, rules.binary)
            self.ranges = [within.times(holdout.heaviest) for within in ranges]

    def changes(self, block: Block, classified: Classified | None = None) -> list[Totals]:
        """What every segment changed on some rows.

        Only the rows that a segment may touch are measured, before and after it: a round's event,
        or all rows of a calibration everywhere.
        """
        rows = Rows(block, self.rules, classified)
        tracker = None
        if block.s is not None:
            heaviest = None if self.ranges is None else self._heaviest
            tracker = SegmentTracker(block, rows, heaviest)
        if self.ranges is None:
            return [_advance(segment, rows, tracker) for segment in self.cut]
        pairing = Pairing(block, rows, self._heaviest)
        cut = zip(self.cut, self.ranges, strict=True)
        changes = [_advance(segment, rows, tracker, pairing, within) for segment, within in cut]
        return changes and [*changes[:-1], with_moves(changes[-1], pairing.first, rows)]


def added(blocks: Iterable[Sequence[Totals]], length: int) -> list[Totals | None]:
    """Changes of many blocks, summed segment by segment."""
    total: list[Totals | None] = [None] * length
    for block in blocks:
        for i, change in enumerate(block):
            known = total[i]
            total[i] = change if known is None else known + change
    return total


def points(
    start: Totals,
    cut: Sequence[Sequence[Patch]],
    summed: Sequence[Totals | None],
    holdout: Holdout | None = None,
) -> list[Point]:
    if holdout is not None:
        nothing = Paired.nothing(holdout.vectors, len(start.pairs), len(start.brier))
        start = replace(start, paired=nothing)
    measured = [Point(0, 0, start)]
    for segment, change in zip(cut, summed, strict=True):
        last = measured[-1]
        totals = last.totals if change is None else last.totals + change
        rounds = last.rounds + (segment[0].round is not None)
        measured.append(Point(segment[-1].step + 1, rounds, totals))
    return measured


def _advance(
    segment: Sequence[Patch],
    rows: Rows,
    tracker: SegmentTracker | None,
    pairing: Pairing | None = None,
    within: Range = NOWHERE,
) -> Totals:
    """Apply a segment; returns what it changed."""
    index, model = rows.may_touch(segment[0]), segment[0].model
    before = _measure(rows, index, model, tracker)

    def act() -> None:
        for patch in segment:
            rows.apply(patch)
        rows.settle()

    if pairing is None:
        act()
        return _measure(rows, index, model, tracker) - before
    paired = pairing.change(segment, within, rows, index, act)
    return replace(_measure(rows, index, model, tracker) - before, paired=paired)


def _measure(rows: Rows, index: Index, model: int, tracker: SegmentTracker | None) -> Totals:
    """model: that is patched: what segments have of the others stays as it is."""
    known = [a.take(index, axis=1) for a in rows.actions], rows.events.take(index, axis=2)
    totals = measure(rows.current(index), rows.rules, known)
    if tracker is None:
        return totals
    return replace(totals, segments=tracker.sums(rows, index, model))

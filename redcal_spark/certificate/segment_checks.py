"""Whether some segment pays: the change of every segment's loss on holdout rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.holdout import UNCHANGED, HoldoutRows, of_holdout
from redcal_spark.certificate.intervals import Interval
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.segment_numbers import SegmentMetrics, read
from redcal_spark.core.segments import Chosen, Segment, chosen
from redcal_spark.core.weights import Weights


def segments_of(names: Sequence[str], *histories: Sequence[Point]) -> Chosen | None:
    """Which values are told apart: by all rows of all splits together."""
    first = [points[0].totals.segments for points in histories if points]
    parts = [part for part in first if part is not None]
    return chosen(names, parts) if parts else None


def added_up(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Contradictions: of every column the sums of all values are those of all rows."""
    losses, models = pair.losses, pair.columns.n_models
    for point in history:
        totals = point.totals
        if totals.segments is None:
            yield f"after {point.steps} patches there are no sums of segments"
            continue
        whole = Metrics(totals, losses)
        for column, known in zip(pair.columns.segments, totals.segments.sums, strict=True):
            sums = [sum(numbers) for numbers in zip(*known.values(), strict=True)]
            one = SegmentMetrics(Segment(column, "value"), sums, losses, models)
            same = one.rows == totals.rows and one.counted == totals.counted
            same = same and all(one.brier(i) == whole.brier(i) for i in whole.models)
            same = same and all(
                one.apart_rows(place) == int(totals.apart[place])
                and all(
                    one.decision_loss(place, i) == whole.decision_loss(place, i)
                    for i in whole.models
                )
                for place in range(len(losses))
            )
            if not same:
                yield f"after {point.steps} patches the segments of {column!r} do not add up"


@dataclass(frozen=True)
class SegmentRows:
    """The segments of a run. Each of them has an interval per loss and model."""

    case: Case
    chosen: Chosen

    @classmethod
    def of(cls, case: Case, *histories: Sequence[Point]) -> SegmentRows | None:
        found = segments_of(case.pair.columns.segments, *histories)
        return None if found is None else cls(case, found)

    @property
    def models(self) -> range:
        return range(1, self.case.pair.columns.n_models + 1)

    @property
    def statements(self) -> int:
        return len(list(self.chosen)) * len(self.case.pair.losses) * len(self.models)

    @property
    def bound(self) -> Fraction:
        """The margin of cost below which a disagreement does not matter; else nothing."""
        return self.case.alpha if self.case.given.reconciles_decisions else Fraction(0)

    def checks(self, held: HoldoutRows) -> Iterator[Check]:
        """Per column, loss and model: by how much the loss of some segment rose at most."""
        metrics = read(held.points[-1].totals, self.chosen, self.case.pair.losses)
        limit = "alpha" if self.bound else "nothing"
        for column in self.case.pair.columns.segments:
            own = [one for one in metrics if one.segment.column == column]
            for place, loss in enumerate(self.case.pair.losses.losses):
                for model in self.models:
                    rises = [self.rise(held, one, place, model) for one in own]
                    worst = rises.index(max(rises, key=lambda rise: rise[0]))
                    low, high = (max(r[1].ends[end] for r in rises) for end in (0, 1))
                    first = rises[worst][1]
                    yield of_holdout(
                        "segment_loss",
                        f"no segment of {column!r} has a decision loss that rose by more than "
                        f"{limit}",
                        rises[worst][0],
                        "<=",
                        self.bound,
                        uncovered=None if self.case.steps[model - 1] else UNCHANGED,
                        undecided=held.undecided,
                        why=f"most in {own[worst].segment}",
                        loss=loss.name,
                        model=model,
                        interval=Interval(low, high, first.confidence, first.method),
                        scale=loss.scale,
                    )

    def rise(
        self, held: HoldoutRows, one: SegmentMetrics, place: int, model: int
    ) -> tuple[Fraction, Interval]:
        """What a segment's loss changed by, and its interval: anything, of fewer than 2 rows."""
        within, sums = held.loss_within(place), one.moments(place, model)
        measured = sums.total * within.unit / one.rows
        if one.counted < 2:
            most = within.length / 2 / held.heaviest
            return measured, Interval(-most, most, 1 - held.level.delta, "fewer than 2 rows")
        weights = None
        if held.weights is not None:
            weights = Weights(one.counted, one.squares, held.heaviest)
        return measured, held.level.mean(sums, within, one.rows, weights)

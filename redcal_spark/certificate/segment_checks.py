"""Whether some segment pays: the change of every segment's loss on holdout rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from redcal_spark.certificate.case import Case
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.holdout import UNCHANGED, HoldoutRows, of_holdout
from redcal_spark.certificate.intervals import Interval
from redcal_spark.core.chosen_segments import Chosen, chosen
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.history import Point
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.segment_numbers import SegmentMetrics, all_rows, read
from redcal_spark.core.weights import Weights

FEW = "a segment has fewer than 2 holdout rows"


def segments_of(names: Sequence[str], *histories: Sequence[Point]) -> Chosen | None:
    """Which values are told apart: by all rows of all splits together."""
    first = [points[0].totals.segments for points in histories if points]
    parts = [part for part in first if part is not None]
    return chosen(names, parts) if parts else None


def added_up(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Contradictions: of every column the sums of all values are those of all rows."""
    losses = pair.losses
    for point in history:
        totals = point.totals
        if totals.segments is None:
            yield f"after {point.steps} patches there are no sums of segments"
            continue
        whole = Metrics(totals, losses)
        for number, column in enumerate(pair.columns.segments):
            one = all_rows(totals.segments, pair.rules, number)
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
        chosen = segments_of(case.pair.columns.segments, *histories)
        return None if chosen is None else cls(case, chosen)

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
        stages = self.stages(held)
        limit = "alpha" if self.bound else "nothing"
        for column in self.case.pair.columns.segments:
            own = [both for both in stages if both[1].segment.column == column]
            silent = sum(one.column == column for one in self.chosen) > len(own)
            few = silent or any(new.counted < 2 for _, new in own)
            for place, loss in enumerate(self.case.pair.losses.losses):
                for model in self.models:
                    rises = [self.rise(held, *both, place, model) for both in own]
                    worst = rises.index(max(rises, key=lambda rise: rise[0]))
                    ends = [rise[1].ends for rise in rises]
                    ends += [self.unknown(held, place).ends] if silent else []
                    low, high = (max(each) for each in zip(*ends, strict=True))
                    first = rises[worst][1]
                    yield of_holdout(
                        "segment_loss",
                        f"no segment of {column!r} has a decision loss that rose by more than "
                        f"{limit}",
                        rises[worst][0],
                        "<=",
                        self.bound,
                        uncovered=None if self.case.steps[model - 1] else UNCHANGED,
                        undecided=held.undecided or (FEW if few and high <= self.bound else None),
                        why=f"most in {own[worst][1].segment}",
                        loss=loss.name,
                        model=model,
                        interval=Interval(low, high, first.confidence, first.method),
                        scale=loss.scale,
                    )

    def stages(self, held: HoldoutRows) -> list[tuple[SegmentMetrics, SegmentMetrics]]:
        """The segments that have holdout rows, before the first and after the last patch."""
        first, last = (
            read(held.points[place].totals, self.chosen, self.case.pair.losses) for place in (0, -1)
        )
        return list(zip(first, last, strict=True))

    def rise(
        self, held: HoldoutRows, old: SegmentMetrics, new: SegmentMetrics, place: int, model: int
    ) -> tuple[Fraction, Interval]:
        """What a segment's loss changed by, exactly, and its interval, in units of the rescaled
        loss.
        """
        change = new.decision_loss(place, model) - old.decision_loss(place, model)
        measured = change / (new.losses[place].scale or 1)
        if new.counted < 2:
            return measured, self.unknown(held, place)
        weights = None
        if held.weights is not None:
            weights = Weights(new.counted, new.squares, held.heaviest)
        sums = new.moments(place, model)
        interval = held.level.mean(sums, held.loss_within(place), new.rows, weights)
        return measured, held.off_the_grid(interval, place)

    def unknown(self, held: HoldoutRows, place: int) -> Interval:
        """Of fewer than 2 rows: anything."""
        most = held.loss_within(place).length / 2 / held.heaviest
        anything = Interval(-most, most, 1 - held.level.delta, "fewer than 2 rows")
        return held.off_the_grid(anything, place)

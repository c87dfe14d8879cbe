"""What rows that were not fitted say of a run, all of it together at one level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from redcal_spark.certificate.case import Case, change
from redcal_spark.certificate.check import Check, Measure, SplitName, When
from redcal_spark.certificate.exact_numbers import at_least
from redcal_spark.certificate.intervals import Interval, Level
from redcal_spark.core.history import Point, rounds_start
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.paired import NOWHERE, Moments, Paired, Range, brier_ranges, loss_range
from redcal_spark.core.weights import Weights

FEW = "fewer than 2 holdout rows say nothing"
UNPAIRED = "row by row, nothing was compared"
UNCHANGED = "no patch changes this model"

of_holdout = partial(Check.of, split="holdout")


def statements(case: Case) -> int:
    """How many intervals there are on holdout rows: of every event, loss and Brier score.

    Two of every loss where a calibration everywhere came before the rounds: from the models that
    were given, and from the calibrated ones. For Reconcile every coordinate's gap besides.
    """
    losses, many = case.pair.losses.losses, len(case.models)
    pairs = many * (many - 1) // 2
    intervals = pairs * sum(loss.n_actions * (loss.n_actions - 1) for loss in losses)
    intervals += len(losses) * many + many
    if case.calibrated_first:
        intervals += len(losses) * many
    if case.given.reconciles_scores:
        intervals += pairs * (1 if case.pair.binary else case.d)
    return intervals


@dataclass(frozen=True)
class HoldoutRows:
    """The holdout rows of a run: their points, and at what level they speak."""

    case: Case
    points: Sequence[Point]
    level: Level

    @property
    def rows(self) -> int:
        """With weights, their sum."""
        return self.points[-1].totals.rows

    @property
    def weights(self) -> Weights | None:
        return self.points[-1].totals.weights

    @property
    def heaviest(self) -> int:
        return self.points[-1].totals.heaviest

    @property
    def paired(self) -> Paired | None:
        return self.points[-1].totals.paired

    @property
    def start(self) -> Point:
        return rounds_start(self.points)

    @property
    def undecided(self) -> str | None:
        return FEW if self.few else None

    @property
    def few(self) -> bool:
        return self.points[-1].totals.counted < 2

    @property
    def undone(self) -> str | None:
        return UNPAIRED if self.paired is None else None

    def brier_within(self, model: int) -> Range:
        """What a row's Brier score under a model can have changed by, times its weight."""
        pair = self.case.pair
        own = [patch for patch in pair.log if patch.model == model]
        within = brier_ranges([own], pair.n_classes, pair.binary)[0] if own else NOWHERE
        return within.times(self.heaviest)

    def loss_within(self, place: int) -> Range:
        """What a row's quantised loss can have changed by, times its weight."""
        vectors = self.paired is not None and self.paired.vectors
        return loss_range(self.case.pair.losses[place], vectors).times(self.heaviest)

    def fall(self, place: int, model: int) -> Interval | None:
        """By how much a loss fell, in the user's units, which the grid rounds a little."""
        paired = self.paired
        if paired is None:
            return None
        rise = self.mean(paired.losses[model - 1][place], self.loss_within(place))
        if rise is None:
            return None
        rise = self.in_units(rise, place)
        return Interval(-rise.high, -rise.low, rise.confidence, rise.method)

    def in_units(self, rise: Interval, place: int) -> Interval:
        """The change of a quantised loss in the user's units."""
        wide, scale = self.off_the_grid(rise, place), self.case.pair.losses[place].scale
        return Interval(scale * wide.low, scale * wide.high, wide.confidence, wide.method)

    def off_the_grid(self, rise: Interval, place: int) -> Interval:
        """For the change of a quantised loss that of the user's own costs, rescaled as it is."""
        loss = self.case.pair.losses[place]
        vectors = self.paired is not None and self.paired.vectors
        more = loss.grid_error * (loss.n_classes if vectors else 1)
        return Interval(rise.low - more, rise.high + more, rise.confidence, rise.method)

    @property
    def nothing(self) -> Interval:
        """Where no patch acted, not one row changed."""
        return Interval(Fraction(0), Fraction(0), 1 - self.level.delta, "nothing changed")

    def share(self, hits: int) -> Interval | None:
        return None if self.few else self.level.share(hits, self.rows, self.weights)

    def mean(self, sums: Moments | None, within: Range) -> Interval | None:
        if sums is None or self.few:
            return None
        return self.level.mean(sums, within, self.rows, self.weights)


def holdout(held: HoldoutRows) -> Iterator[Check]:
    """What is promised of new rows, and whether the losses fell."""
    yield from _agreement(held)
    for place in range(len(held.case.pair.losses)):
        if held.case.given.reconciles_decisions:
            yield from _rises(held, place)
        yield from _falls(held, place)
    yield from _brier(held)


def _agreement(held: HoldoutRows) -> Iterator[Check]:
    """How much of new rows is still in an event: each event has its share of delta."""
    case, last = held.case, held.points[-1].totals
    if case.given.reconciles_scores:
        hits = int(last.gaps.max(initial=0))
        yield of_holdout(
            "largest_gap",
            "in no class do the scores differ by more than alpha on a mass above 2 eta",
            Fraction(hits, held.rows),
            "<=",
            2 * case.eta,
            uncovered="the paper promises nothing of Reconcile on new rows",
            interval=held.share(hits),
        )
    if not case.given.reconciles_decisions:
        return
    for place, loss in enumerate(case.pair.losses.losses):
        hits = int(last.events[place].max())
        yield of_holdout(
            "largest_event",
            "no disagreement event has a mass above 2 eta",
            Fraction(hits, held.rows),
            "<=",
            2 * case.eta,
            uncovered=case.not_ended,
            undecided=held.undecided,
            loss=loss.name,
            interval=held.share(hits),
        )


def _rises(held: HoldoutRows, place: int) -> Iterator[Check]:
    """The theorem's third part: the rounds raised no loss by more than twice the fitting bound."""
    case, loss = held.case, held.case.pair.losses[place]
    for model in case.models:
        moved = bool(case.rounds[model - 1])
        interval: Interval | None = held.nothing  # of no row, whichever
        if moved:
            sums = None if held.paired is None else held.paired.rounds[model - 1][place]
            interval = held.mean(sums, held.loss_within(place))
        yield of_holdout(
            "decision_loss",
            "the rounds raised the decision loss by at most twice the bound of the fitting rows",
            change(case, place, model, held.start.totals, held.points[-1].totals),
            "<=",
            case.loss_bound(loss, model, times=2),
            uncovered=case.may_raise(loss, model),
            undecided=held.undecided if moved else None,
            undone=held.undone if moved else None,
            loss=loss.name,
            model=model,
            interval=interval,
            scale=loss.scale,
        )


def _falls(held: HoldoutRows, place: int) -> Iterator[Check]:
    """What people want to know: by how much the loss of each model fell at least, and of all."""
    case, loss = held.case, held.case.pair.losses[place]
    falls: list[Fraction] = []
    intervals: list[Interval | None] = []
    for model in case.models:
        first, last = (
            Metrics(point.totals, case.pair.losses).decision_loss(place, model)
            for point in (held.points[0], held.points[-1])
        )
        falls.append(first - last)
        intervals.append(held.fall(place, model))
        yield of_holdout(
            "loss_fell",
            "the decision loss fell",
            first - last,
            ">",
            Fraction(0),
            uncovered=None if case.steps[model - 1] else UNCHANGED,
            undecided=held.undecided,
            undone=held.undone,
            why=_by(intervals[-1]),
            loss=loss.name,
            model=model,
            interval=intervals[-1],
        )
    known = [interval for interval in intervals if interval is not None]
    together = None
    if len(known) == len(intervals):
        low, high = min(x.low for x in known), min(x.high for x in known)
        together = Interval(low, high, known[0].confidence, known[0].method)
    both = "both" if len(intervals) == 2 else "all"
    yield of_holdout(
        f"{both}_losses_fell",
        f"the decision loss of {both} models fell, together",
        min(falls),
        ">",
        Fraction(0),
        uncovered=None if all(case.steps) else "no patch changes one of the models",
        undecided=held.undecided,
        undone=held.undone,
        why=_by(together),
        loss=loss.name,
        interval=together,
    )


def _by(interval: Interval | None) -> str:
    return "" if interval is None or interval.low <= 0 else f"by at least {at_least(interval.low)}"


def _brier(held: HoldoutRows) -> Iterator[Check]:
    """The theorem's second part on new rows, where it has one: else whether the score fell."""
    case = held.case
    first, last = held.points[0], held.points[-1]
    proved = case.given.reconciles_decisions and case.coarse is None
    for model in case.models:
        sums = None if held.paired is None else held.paired.brier[model - 1]
        steps = case.steps[model - 1]
        yield of_holdout(
            "brier_decrease",
            f"the {case.brier_words} fell"
            + (" by a quarter of min(beta^2, eta alpha^2 / 4d) for every patch" if proved else ""),
            case.brier(first, model) - case.brier(last, model),
            ">=" if proved else ">",
            steps * case.g / 4 if proved else Fraction(0),
            uncovered=None if steps else UNCHANGED,
            undecided=held.undecided,
            undone=held.undone,
            model=model,
            interval=held.mean(sums, held.brier_within(model)),
            scale=case.brier_scale,
        )


# --- what is shown besides ------------------------------------------------------------------------


def measures(case: Case, split: SplitName, points: Sequence[Point]) -> Iterator[Measure]:
    """Before and after."""
    losses = case.pair.losses
    whens: tuple[tuple[When, Point], ...] = (("before", points[0]), ("after", points[-1]))
    for when, point in whens:
        metrics = Metrics(point.totals, losses)
        for model in case.models:
            yield Measure("brier", split, when, metrics.brier(model), model=model)
        for place, loss in enumerate(losses.losses):
            for model in case.models:
                cost = metrics.decision_loss(place, model)
                yield Measure("decision_loss", split, when, cost, loss.name, model)
            apart = metrics.disagreement(place)
            yield Measure("disagreement", split, when, apart, loss.name)
            in_events = Fraction(int(metrics.totals.in_event[place]), metrics.rows)
            yield Measure("in_some_event", split, when, in_events, loss.name)

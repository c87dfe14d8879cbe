"""Judging: what the finite-sample theorem asks for, and what rows that were not fitted say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import ceil, isqrt

import numpy as np

from redcal_spark.checks import Check, Measure, SplitName, When
from redcal_spark.fixed_point import ONE
from redcal_spark.guarantees import MODELS, Case, change
from redcal_spark.history import Point
from redcal_spark.intervals import Interval, binomial, bounded_mean
from redcal_spark.losses import Loss
from redcal_spark.metrics import Metrics, Totals

# --- how many rows theory asks for ----------------------------------------------------------------


@dataclass(frozen=True)
class RowsNeeded:
    """From how many rows on the finite-sample theorem holds, by its parts."""

    ln_s: Decimal
    masses: int
    losses: int
    brier: int


def rows_needed(
    *,
    alpha: Fraction,
    eta: Fraction,
    beta: Fraction,
    classes: int,
    losses: int,
    actions: int,
    delta: Fraction,
) -> RowsNeeded:
    """The n of the paper's finite-sample theorem (thm: sample_reconcile), its Omega() filled in.

    From the theorem at the end of its proof, with d classes, |L| losses of at most K actions and
    probability 1 - delta; S is the set of pairs that can come out, g = min(beta^2, eta alpha^2 /
    4d):
        ln|S| = (2d / g + 1) ln(4 |L|^2 K^3 (ceil(sqrt(d / 2g)) + 1)^d)
        masses <= 2 eta:  sqrt(2 ln(6 K |S| |L| / delta) / 2n) <= eta
        losses <= 2 T beta sqrt(d) K:  sqrt(3d ln(6 d K |S| |L| / delta) / 2n) <= beta
        Brier scores, for T = 1:  sqrt(d ln(6 d |S| / delta) / 2n) <= g / 2
    Only ln|S| is ever computed: |S| has millions of digits.
    """
    d = classes
    gain = min(beta**2, eta * alpha**2 / (4 * d))
    grid = isqrt(ceil(d / (2 * gain)) - 1) + 1
    with localcontext(Context(prec=60)):

        def ln(x: Fraction | int) -> Decimal:
            return (Decimal(x.numerator) / Decimal(x.denominator)).ln()

        each = ln(4) + 2 * ln(losses) + 3 * ln(actions) + d * ln(grid + 1)
        longest = 2 * d / gain + 1
        ln_s = Decimal(longest.numerator) / Decimal(longest.denominator) * each

        def whole(factor: Fraction, inside: Fraction) -> int:
            n = (ln_s + ln(inside)) * factor.numerator / factor.denominator
            return ceil(n)

        return RowsNeeded(
            ln_s,
            masses=whole(1 / eta**2, 6 * actions * losses / delta),
            losses=whole(3 * d / (2 * beta**2), 6 * d * actions * losses / delta),
            brier=whole(2 * d / gain**2, 6 * d / delta),
        )


def enough_rows(case: Case, confidence: Fraction) -> Iterator[Check]:
    """Whether the theorem speaks of new rows at all, and from how many fitting rows on it would."""
    losses = case.pair.losses
    needed = rows_needed(
        alpha=case.alpha,
        eta=case.eta,
        beta=case.beta,
        classes=case.d,
        losses=len(losses),
        actions=max(loss.n_actions for loss in losses.losses),
        delta=1 - confidence,
    )
    rows = Fraction(case.pair.rows)
    for name, promise, bound in (
        ("rows_for_masses", "event masses stay below 2 eta", needed.masses),
        ("rows_for_losses", "losses rise by at most 2 T beta sqrt(d) K", needed.losses),
        ("rows_for_brier", "Brier scores fall by half of T min(beta^2, ...)", needed.brier),
    ):
        few = rows < bound
        yield Check.of(
            name,
            f"enough rows that on new rows too {promise}, with probability {float(confidence):g}",
            rows,
            ">=",
            Fraction(bound),
            uncovered="fewer rows than the finite-sample theorem asks: judged rows must tell"
            if few
            else None,
        )


# --- the judged rows ------------------------------------------------------------------------------


def judged(case: Case, points: Sequence[Point], confidence: Fraction) -> Iterator[Check]:
    """The finite-sample theorem's promises, measured on rows that were not fitted."""
    first, last = points[0].totals, points[-1].totals
    losses = case.pair.losses
    if not case.reconciles_decisions:
        if not case.alone:
            hits = int(last.gaps.max(initial=0))
            yield Check.of(
                "largest_gap",
                "in no class do the scores differ by more than alpha on a mass above 2 eta",
                Fraction(hits, last.rows),
                "<=",
                2 * case.eta,
                split="judge",
                uncovered="the paper promises nothing of Reconcile on new rows",
                interval=binomial(hits, last.rows, confidence, len(last.gaps)),
            )
        return
    for place, loss in enumerate(losses.losses):
        hits, k = int(last.events[place].max()), loss.n_actions
        yield Check.of(
            "largest_event",
            "no disagreement event has a mass above 2 eta",
            Fraction(hits, last.rows),
            "<=",
            2 * case.eta,
            split="judge",
            uncovered=case.not_ended,
            loss=loss.name,
            interval=binomial(hits, last.rows, confidence, k * (k - 1)),
        )
    for model in MODELS:
        start = [point for point in points if point.rounds == 0][-1].totals
        for place, loss in enumerate(losses.losses):
            rise = change(case, place, model, start, last)
            size = _largest_label(first, case)
            yield Check.of(
                "decision_loss",
                "the rounds raised the decision loss by at most 2 T beta sqrt(d) K (rescaled)",
                rise,
                "<=",
                case.loss_bound(loss, model, times=2),
                split="judge",
                uncovered=case.may_raise(loss),
                loss=loss.name,
                model=model,
                interval=bounded_mean(rise, last.rows, -size, size, confidence),
            )
        fall = case.brier(points[0], model) - case.brier(points[-1], model)
        d = Fraction(case.d)
        yield Check.of(
            "brier_decrease",
            "the Brier score fell by half of min(beta^2, eta alpha^2 / 4d) for every patch",
            fall,
            ">=",
            case.steps[model - 1] * case.patch_gain,
            split="judge",
            uncovered=case.coarse,
            model=model,
            interval=bounded_mean(fall, last.rows, -d, d, confidence),
        )


def _largest_label(totals: Totals, case: Case) -> Fraction:
    """The largest sum that a label can have: 1, or d if labels are vectors that do not sum to 1."""
    by_class = totals.optimum[case.pair.losses.cells(0)].sum(axis=0)
    total = sum(by_class.tolist())  # of vectors it may be more than an int64 holds
    return Fraction(1 if total == totals.rows * ONE else case.d)


# --- what is told besides -------------------------------------------------------------------------


def measures(
    case: Case, split: SplitName, points: Sequence[Point], confidence: Fraction
) -> Iterator[Measure]:
    """Before and after. Judged rows have intervals; those fitted on are no sample of new ones."""
    losses = case.pair.losses
    whens: tuple[tuple[When, Point], ...] = (("before", points[0]), ("after", points[-1]))
    for when, point in whens:
        totals, metrics = point.totals, Metrics(point.totals, losses)
        n = totals.rows

        def share(rows: int, n: int = n) -> Interval | None:
            return binomial(rows, n, confidence) if split == "judge" else None

        def mean(value: Fraction, low: Fraction, high: Fraction, n: int = n) -> Interval | None:
            return bounded_mean(value, n, low, high, confidence) if split == "judge" else None

        for model in MODELS:
            brier = metrics.brier(model)
            interval = mean(brier, Fraction(0), Fraction(case.d))
            yield Measure("brier", split, when, brier, model=model, interval=interval)
        for place, loss in enumerate(losses.losses):
            low, high = _cost_range(loss, _largest_label(totals, case))
            for model in MODELS:
                cost = metrics.decision_loss(place, model)
                interval = mean(cost, low, high)
                yield Measure("decision_loss", split, when, cost, loss.name, model, interval)
            pairs, events = totals.pairs[place], totals.events[place]
            for name, rows in (
                ("disagreement", int(pairs.sum() - np.trace(pairs))),
                ("in_some_event", int(events.sum())),
            ):
                yield Measure(name, split, when, Fraction(rows, n), loss.name, interval=share(rows))


def _cost_range(loss: Loss, largest_label: Fraction) -> tuple[Fraction, Fraction]:
    """The least and the largest cost of a row, in the user's units."""
    if largest_label == 1:
        costs = [cost for row in loss.exact_costs for cost in row]
        return min(costs), max(costs)
    lows = [sum((min(c, Fraction(0)) for c in row), Fraction(0)) for row in loss.exact_costs]
    highs = [sum((max(c, Fraction(0)) for c in row), Fraction(0)) for row in loss.exact_costs]
    return min(lows), max(highs)

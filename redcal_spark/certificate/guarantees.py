"""Guarantees: what the paper promises of a run, as checks with exact numbers.

The paper's theorem on ReDCal (its label: thm:reconcile) speaks of unrounded patches; with rounding
half of its Brier decrease is left (lem: sample_num_iter), and twice its rounds. Reconcile's theorem
is that of Roth et al., as the paper quotes it. Where the paper's proof gives more than it says, or
less, the bound here is what the proof gives. The finite-sample theorem is in `sample_size`.

The letters are those of `case`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import pairwise

from redcal_spark.certificate.case import Case, change
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.exact_numbers import Root
from redcal_spark.certificate.history_checks import (
    largest_event,
    largest_norm,
    mean_square,
    segments,
)


def fitted(case: Case) -> Iterator[Check]:
    """What is promised of the fitting rows."""
    yield from _agreement(case)
    yield from _calibration(case)
    yield from _brier(case)
    yield from _counts(case)
    yield from _losses(case)


def _agreement(case: Case) -> Iterator[Check]:
    """The theorem's fourth part, on the rows that were fitted."""
    last, pair = case.points[-1].totals, case.pair
    if case.given.reconciles_decisions:
        for loss, events in zip(pair.losses.losses, last.events, strict=True):
            a1, a2, (one, two) = largest_event(events, pair.rules.pairs)
            yield Check.of(
                "largest_event",
                "no disagreement event has a mass of eta or more",
                Fraction(int(events.max()), last.rows),
                "<",
                case.eta,
                uncovered=case.not_ended,
                why=f"{case.called(one)} {loss.actions[a1]!r}, "
                f"{case.called(two)} {loss.actions[a2]!r}"
                if events.max()
                else "",
                loss=loss.name,
            )
    elif case.given.reconciles_scores:
        yield Check.of(
            "largest_gap",
            "in no class do the scores differ by more than alpha on a mass of eta or more",
            Fraction(int(last.gaps.max(initial=0)), last.rows),
            "<",
            case.eta,
            uncovered=case.not_ended,
        )


def _calibration(case: Case) -> Iterator[Check]:
    """Decision Calibration everywhere: alone at its end, before ReDCal where the rounds start."""
    pair = case.pair
    if case.given.calibrates_only:
        point, uncovered, when = case.points[-1], case.not_ended, ""
    elif pair.parameters.calibrates_everywhere:
        point, when = case.start, " before the first round"
        uncovered = case.not_ended if not pair.log.rounds and pair.status != "stalled" else None
    else:
        return
    if uncovered is None and pair.zero_calibrations:
        uncovered = f"{pair.zero_calibrations} calibrations ended on a patch that rounds to nothing"
    for place, loss in enumerate(pair.losses.losses):
        for model in case.models:
            residuals = point.totals.residuals(model)[pair.losses.cells(place)]
            action, square = largest_norm(residuals)
            yield Check.of(
                "calibration_gap",
                f"the mean residual of every action has a norm of at most beta{when}",
                Root(mean_square(square, point.totals.rows)),
                "<=",
                case.beta,
                uncovered=uncovered,
                why=f"largest for action {loss.actions[action]!r}" if square else "",
                loss=loss.name,
                model=model,
            )


def _brier(case: Case) -> Iterator[Check]:
    """The theorem's second part, and what every patch does, from point to point."""
    words = case.brier_words
    parts = list(zip(pairwise(case.points), segments(case.pair.log, case.points), strict=True))
    for model in case.models:
        of_model = partial(Check.of, model=model, scale=case.brier_scale)
        falls = [
            ((case.brier(one, model) - case.brier(two, model)) / len(part), part)
            for (one, two), part in parts
            if part[0].model == model
        ]
        if falls:
            least, part = min(falls, key=lambda fall: fall[0])
            where = f"least from patch {part[0].step} to {part[-1].step}"
            yield of_model(
                "brier_falls",
                f"between any two points of the history the patched model's {words} fell",
                least,
                ">",
                Fraction(0),
                why=where,
            )
            yield of_model(
                "brier_per_patch",
                "between any two points it fell by more than this for every patch",
                least,
                ">",
                case.patch_gain,
                uncovered=case.too_coarse,
                why=where,
            )
        if not case.given.calibrates_only:
            yield of_model(
                "brier_decrease",
                f"the rounds lowered the {words} by {case.half}T alpha^2 eta / 8d at least"
                if case.given.reconciles_decisions
                else f"the rounds lowered the {words} by {case.half}T eta alpha^2 / 16 at least",
                case.brier(case.start, model) - case.brier(case.points[-1], model),
                ">=",
                case.rounds[model - 1] * case.round_gain,
                uncovered=case.coarse,
                why=f"T = {case.rounds[model - 1]}",
            )


def _counts(case: Case) -> Iterator[Check]:
    """How many rounds and patches there can be, by the Brier scores before the first patch."""
    pair = case.pair
    together = sum((case.brier(case.points[0], model) for model in case.models), Fraction(0))
    if not case.given.calibrates_only:
        yield Check.of(
            "rounds",
            f"at most 8 d {case.brier_sum_words} / (alpha^2 eta) rounds, B before the first patch"
            if case.given.reconciles_decisions
            else f"at most 16 {case.brier_sum_words} / (eta alpha^2) rounds",
            Fraction(pair.log.rounds),
            "<=",
            together / case.round_gain,
            uncovered=case.coarse,
        )
    if not case.given.reconciles_scores:
        coarse = case.too_coarse
        yield Check.of(
            "steps",
            f"at most {case.brier_sum_words} / G patches, B before the first, G what each gains at "
            "least",
            Fraction(len(pair.log)),
            "<=",
            Fraction(0) if coarse else together / case.patch_gain,
            uncovered=coarse,
        )


def _losses(case: Case) -> Iterator[Check]:
    """The theorem's third part: on the rescaled loss as it is quantised, where it is exact."""
    pair, last = case.pair, case.points[-1].totals
    for place, loss in enumerate(pair.losses.losses):
        for model in case.models:
            of_loss = partial(Check.of, loss=loss.name, model=model, scale=loss.scale)
            whole = change(case, place, model, case.points[0].totals, last)
            if not case.given.reconciles_decisions:
                yield of_loss(
                    "decision_loss",
                    "the decision loss did not rise",
                    whole,
                    "<=",
                    Fraction(0),
                    uncovered="Decision Calibration promises losses that are foreseen, not lower"
                    if case.given.calibrates_only
                    else "Reconcile promises nothing about decisions",
                )
                continue
            calibrated = case.calibrated_first
            yield of_loss(
                "decision_loss",
                "the decision loss rose by at most T beta max_b sum_a |l_a - l_b|"
                + (", counted from the calibrated models" if calibrated else ""),
                change(case, place, model, case.start.totals, last),
                "<=",
                case.loss_bound(loss, model),
                uncovered=case.may_raise(loss, model),
                why=f"T = {case.rounds[model - 1]}",
            )
            if calibrated:
                yield of_loss(
                    "decision_loss_from_input",
                    "the same, counted from the models that were given",
                    whole,
                    "<=",
                    case.loss_bound(loss, model),
                    uncovered="the calibration everywhere comes without a bound on losses",
                )

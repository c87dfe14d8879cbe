"""Whether the paired differences of holdout rows and the other sums there can belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redcal_spark.certificate.history_checks import segments
from redcal_spark.certificate.sum_checks import cost_change
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS
from redcal_spark.core.history import Point, rounds_start
from redcal_spark.core.losses import Loss
from redcal_spark.core.metrics import Totals
from redcal_spark.core.paired import NOWHERE, Moments, Range, brier_ranges, loss_range


def paired(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Contradictions: what rows changed by, each rounded down, adds up to what the sums did."""
    first = history[0].totals
    start = rounds_start(history).totals
    parts = segments(pair.log, history)
    ranges = [
        within.times(first.heaviest) for within in brier_ranges(parts, pair.n_classes, pair.binary)
    ]
    within = [NOWHERE] * pair.columns.n_models
    for place, point in enumerate(history):
        if place:
            within[parts[place - 1][0].model - 1] = ranges[place - 1]
        where, early = f"after {point.steps} patches", point.totals if point.rounds == 0 else start
        for model in range(1, pair.columns.n_models + 1):
            if not _losses_add_up(pair, model - 1, first, early, point.totals):
                yield f"{where} the rows' losses of model {model} do not add up to the change"
            if not _brier_adds_up(model - 1, first, point.totals, within[model - 1]):
                yield f"{where} the rows' Brier scores of model {model} do not add up to the change"


def _losses_add_up(pair: Fitted, i: int, first: Totals, early: Totals, now: Totals) -> bool:
    moments = now.paired
    if moments is None:
        return True

    def fits(place: int, loss: Loss, since: Totals, known: Moments) -> bool:
        shift = loss_range(loss, moments.vectors).times(now.heaviest).shift
        rounded = moments.vectors or shift > BITS  # the changes of classes are whole units, mostly
        moved = cost_change(pair.losses, place, i + 1, since, now)
        return _adds_up(known, moved, shift, now.counted, now.counted if rounded else 0)

    return all(
        fits(place, loss, since, known[i][place])
        for place, loss in enumerate(pair.losses.losses)
        for since, known in ((first, moments.losses), (early, moments.rounds))
    )


def _brier_adds_up(i: int, first: Totals, now: Totals, within: Range) -> bool:
    if now.paired is None:
        return True
    shift = within.shift - BITS if within.reach else 0
    moved, rows = first.brier[i] - now.brier[i], now.counted
    return _adds_up(now.paired.brier[i], moved, shift, rows, rows)


def _adds_up(sums: Moments, moved: int, shift: int, rows: int, rounding: int) -> bool:
    """Units are 2^shift of what `moved` is in; so many rows were rounded, by less than one each."""
    rest = moved - (sums.total << shift)
    fits = 0 <= rest < max(1, rounding << shift)
    return fits and sums.total**2 <= rows * sums.squares <= rows * rows << 2 * BITS

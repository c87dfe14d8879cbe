"""Checks of a history: whether a log and the sums at the points of its history can belong together.

Each function returns contradictions in words; none is what a right run gives. They look at exact
sums only, so that they cannot find everything: replaying the log on the rows can, see `replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from redcal_spark.certificate.sum_checks import SLACK
from redcal_spark.core.events import Pair
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import BITS, ONE, Ints
from redcal_spark.core.history import Point, rounds_start
from redcal_spark.core.kernel import Rules
from redcal_spark.core.metrics import OF_SOME, Totals
from redcal_spark.core.patches import Patch, full_phi


def segments(log: Sequence[Patch], points: Sequence[Point]) -> list[Sequence[Patch]]:
    """The patches between consecutive points."""
    return [log[one.steps : two.steps] for one, two in pairwise(points)]


# --- the points -----------------------------------------------------------------------------------


def points(pair: Fitted, history: Sequence[Point], rows: int | None) -> Iterator[str]:
    """The points are of this log: from its start to its end, cut where rounds and models change."""
    if not history:
        yield "there are no points"
        return
    first, last = history[0], history[-1]
    if (first.steps, first.rounds) != (0, 0):
        yield f"the first point is after {first.steps} patches"
    if last.steps != len(pair.log):
        yield f"the last point is after {last.steps} of {len(pair.log)} patches"
    for one, two in pairwise(history):
        if not one.steps < two.steps <= len(pair.log):
            yield f"a point after {two.steps} patches follows one after {one.steps}"
    opened = list(accumulate((patch.kind != "calibrate" for patch in pair.log), initial=0))
    for point in history:
        rounds = opened[min(point.steps, len(pair.log))]
        if point.rounds != rounds:
            yield f"after {point.steps} patches the point says {point.rounds} rounds, not {rounds}"
        if not _shaped(point.totals, pair.rules, pair.n_classes):
            yield f"the sums after {point.steps} patches are not of these losses and classes"
        if point.totals.rows != (history[0].totals.rows if rows is None else rows):
            yield f"after {point.steps} patches there are {point.totals.rows} rows"
    for part in segments(pair.log, history):
        if len({(patch.model, patch.round) for patch in part}) > 1:
            yield f"the points skip an end of a round between patch {part[0].step} and the next"


def _shaped(totals: Totals, rules: Rules, d: int) -> bool:
    """What only some points have is no part of it."""
    ours, expected = (
        {n: array.shape for n, array in one.to_arrays().items() if n.split(".")[0] not in OF_SOME}
        for one in (totals, Totals.none(rules, d))
    )
    return totals.rows > 0 and ours == expected


# --- from point to point --------------------------------------------------------------------------


def untouched(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Patches of one model change no sum of another; nothing changes how many rows there are."""
    for (one, two), part in zip(pairwise(history), segments(pair.log, history), strict=True):
        own, where = part[0].model, f"patches {part[0].step} to {part[-1].step}"
        before, after = one.totals, two.totals
        for i in range(pair.columns.n_models):
            same = i + 1 == own or (
                before.brier[i] == after.brier[i]
                and np.array_equal(before.labels[i], after.labels[i])
                and np.array_equal(before.scores[i], after.scores[i])
                and all(
                    np.array_equal(before.taken(place, i + 1), after.taken(place, i + 1))
                    for place in range(len(pair.losses))
                )
            )
            if not same:
                yield f"{where} are of model {own}, but the sums of model {i + 1} changed"
        others = [place for place, models in enumerate(pair.rules.pairs) if own not in models]
        for name in ("pairs", "events"):
            both = zip(getattr(before, name), getattr(after, name), strict=True)
            if not all(np.array_equal(a[others], b[others]) for a, b in both):
                yield f"{where} are of model {own}, but the {name} of others changed"
        if not np.array_equal(before.optimum, after.optimum):
            yield f"the optimum changed within {where}"


def effects(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Score and Brier sums of the fitting rows change by what the patches can do.

    A patch moves the score sums by rows * phi, or by less where scores are clipped. phi is the mean
    residual up to half a step, so that a patch lowers the Brier sum by rows * (|phi|^2 - step
    |phi|_1) at least, and if it is alone and nothing is clipped by rows * (|phi|^2 + step |phi|_1)
    at most.
    """
    step, binary = pair.resolved.step, pair.binary
    for (one, two), part in zip(pairwise(history), segments(pair.log, history), strict=True):
        where = f"patches {part[0].step} to {part[-1].step}"
        i = part[0].model - 1
        up, down = [0] * pair.n_classes, [0] * pair.n_classes
        least = most = 0
        for patch in part:
            phi = full_phi(patch, pair.n_classes, binary)
            for j, x in enumerate(phi):
                up[j] += max(0, patch.rows * x)
                down[j] += min(0, patch.rows * x)
            square, size = sum(x * x for x in phi), sum(map(abs, phi))
            least += patch.rows * (square - step * size)
            most += patch.rows * (square + step * size)
        clipped = True
        if len(pair.losses):
            cells = pair.losses.cells(0)
            moved = (two.totals.scores[i] - one.totals.scores[i])[cells].sum(axis=0).tolist()
            if not all(a <= x <= b for a, x, b in zip(down, moved, up, strict=True)):
                yield f"{where} moved the scores by what they cannot"
            clipped = len(part) > 1 or moved != [a + b for a, b in zip(down, up, strict=True)]
        fall = one.totals.brier[i] - two.totals.brier[i]
        if fall < least or (not clipped and fall > most):
            yield f"{where} changed the Brier sum by what they cannot"
        touched = part[0].rows if part[0].kind == "reconcile" else sum(p.rows for p in part)
        for place in range(len(pair.losses)):
            change = np.abs(two.totals.pairs[place] - one.totals.pairs[place])
            if change.sum(axis=(1, 2)).max() > 2 * touched:
                yield f"{where} changed the actions of more rows than they touch"


def events(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """Every round took the largest event there was, with all its rows; ties: the first."""
    eta, n, many = pair.resolved.eta, pair.rows, pair.columns.n_models > 2
    for point, part in zip(history, segments(pair.log, history), strict=False):
        first = part[0]
        where = f"round {first.round}"
        if first.kind == "score":
            assert first.coordinate is not None and eta is not None and first.pair is not None
            place = pair.rules.pairs.index(first.pair)
            apart = int(point.totals.gaps[place, first.coordinate])
            if apart < eta * n or first.rows > apart:
                yield f"{where}: {first.rows} rows, where {apart} are apart"
        elif first.kind == "reconcile":
            best: tuple[Any, ...] = ()
            rows = -1
            for loss, counts in zip(pair.losses.losses, point.totals.events, strict=True):
                if int(counts.max()) > rows:
                    rows = int(counts.max())
                    a1, a2, models = largest_event(counts, pair.rules.pairs)
                    best = (loss.name, a1, a2, *(models if many else ()))
            taken = (first.loss, first.a1, first.a2, *((first.pair or ()) if many else ()))
            if taken != best:
                yield f"{where} is of {taken}; the largest was {best}"
            elif first.rows != rows:
                yield f"{where} is of {first.rows} rows, but its event had {rows}"


def largest_event(counts: Ints, pairs: Sequence[Pair]) -> tuple[int, int, Pair]:
    """The first event of a loss with most rows, by its actions and then its models."""
    most = counts.max()
    a1, a2, place = min((int(a), int(b), int(p)) for p, a, b in np.argwhere(counts == most))
    return a1, a2, pairs[place]


def calibrations(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """After a point, a calibration everywhere took the largest residual, and its rounded mean."""
    losses, step = pair.losses, pair.resolved.step
    for point, part in zip(history, segments(pair.log, history), strict=False):
        patch = part[0]
        if patch.kind != "calibrate" or patch.round is not None:
            continue
        assert patch.loss is not None and patch.action is not None and pair.resolved.beta
        where, residuals = f"patch {patch.step}", point.totals.residuals(patch.model)
        place = losses.place(patch.loss)
        cell = losses.cells(place).start + patch.action
        largest, norm = largest_norm(residuals)
        if largest != cell:
            there = losses[int(losses.cell_loss[largest])].name, int(losses.cell_action[largest])
            yield f"{where} is of {(patch.loss, patch.action)}; the largest gap was at {there}"
        elif norm <= (pair.resolved.beta * pair.rows * ONE) ** 2:
            yield f"{where}: the gap was not above beta"
        rows = int(point.totals.taken(place, patch.model)[patch.action])
        if patch.rows != rows:
            yield f"{where} is of {patch.rows} rows, but {rows} took its action"
        elif rows and rounded_mean(residuals[cell], rows, step) != patch.phi:
            yield f"{where}: phi is not the mean residual"
    end = _calibrated(pair, history)
    if end is not None:
        for model in range(1, pair.columns.n_models + 1):
            counts = np.concatenate([end.totals.taken(p, model) for p in range(len(losses))])
            if not is_calibrated(pair, end.totals.residuals(model), counts):
                yield f"model {model} was left uncalibrated"


def _calibrated(pair: Fitted, history: Sequence[Point]) -> Point | None:
    """The point at which all models are calibrated everywhere, if there must be one."""
    done = pair.status == "converged"
    if pair.parameters.calibrates_only:
        return history[-1] if done else None
    if history[-1].rounds or done or pair.status == "stalled":
        return rounds_start(history)
    return None


def is_calibrated(pair: Fitted, residuals: Ints, counts: Ints) -> bool:
    """No residual sum is above beta, or the patch of the largest would round to nothing."""
    assert pair.resolved.beta is not None
    cell, norm = largest_norm(residuals)
    if norm <= (pair.resolved.beta * pair.rows * ONE) ** 2:
        return True
    phi = rounded_mean(residuals[cell], int(counts[cell]), pair.resolved.step)
    return pair.zero_calibrations > 0 and not any(phi)


def rounded_mean(sums: Ints, rows: int, step: int) -> tuple[int, ...]:
    """On the patch grid, half to even: with fractions, as the specification has it."""
    return tuple(round(Fraction(x, rows * step)) * step for x in sums.tolist())


def largest_norm(residuals: Ints) -> tuple[int, int]:
    """The first line of largest squared norm, and that norm; float64 only narrows the choice."""
    near = (residuals.astype(np.float64) ** 2).sum(axis=1)
    close = np.flatnonzero(near >= near.max() * (1 - SLACK)).tolist()
    norms = [sum(x * x for x in residuals[line].tolist()) for line in close]
    return close[norms.index(max(norms))], max(norms)


def status(pair: Fitted, last: Totals) -> Iterator[str]:
    """How the run says it ended is how it stands."""
    given, n = pair.parameters, pair.rows
    steps_left = len(pair.log) < given.max_steps
    if pair.status == "capped" and steps_left and pair.log.rounds < given.max_rounds:
        yield "capped, but neither max_rounds nor max_steps is reached"
    if pair.resolved.eta is None or given.calibrates_only:
        return
    counts = (last.gaps,) if given.reconciles_scores else last.events
    largest = max(int(x.max(initial=0)) for x in counts)
    if largest >= pair.resolved.eta * n:
        if pair.status == "converged":
            yield f"converged, but {largest} of {n} rows are an event of mass eta"
    elif pair.status == "stalled" or (pair.status == "capped" and steps_left):
        yield f"{pair.status}, but nothing was left to do"


# --- against a replay -----------------------------------------------------------------------------


def replay(history: Sequence[Point], replayed: Totals | Sequence[Point]) -> Iterator[str]:
    """The same sums as another way to them gave: at the end, or at all points of the other way."""
    if isinstance(replayed, Totals):
        replayed = [Point(history[-1].steps, history[-1].rounds, replayed)]
    ours = {point.steps: point.totals for point in history}
    if not replayed or replayed[-1].steps != history[-1].steps:
        yield "the replay does not reach the end of the log"
    for point in replayed:
        if (known := ours.get(point.steps)) is not None:
            for name in differences(known, point.totals):
                yield f"after {point.steps} patches a replay gives other {name}"


def differences(one: Totals, two: Totals) -> list[str]:
    """The names of the sums in which two totals differ."""
    names = [name for name in ("rows", "brier") if getattr(one, name) != getattr(two, name)]
    for name in (field.name for field in fields(Totals)):
        if name in ("rows", "brier", *OF_SOME):
            continue
        a, b = getattr(one, name), getattr(two, name)
        if len(a) != len(b) or not all(map(np.array_equal, a, b)):
            names.append(name)
    if one.paired is not None and two.paired is not None and one.paired != two.paired:
        names.append("paired differences")
    if one.segments is not None and two.segments is not None:
        # what a model decided at first is not known of rows that were written
        cells = len(one.pairs) * len(one.brier)
        ours, theirs = (
            [{code: list(x[: len(x) - 3 * cells]) for code, x in c.items()} for c in s.sums]
            for s in (one.segments, two.segments)
        )
        if ours != theirs:
            names.append("sums of segments")
    return names


def mean_square(square: int, rows: int) -> Fraction:
    """A squared norm of residual sums as that of the mean residual."""
    return Fraction(square, (rows << BITS) ** 2)

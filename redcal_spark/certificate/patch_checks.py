"""The log against the rows themselves: every patch once more, from the rows it acts on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from redcal_spark.certificate.history_checks import is_calibrated, rounded_mean
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import BlockScan, Index
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from redcal_spark.core.sums import label_sums, residuals, score_sums


def recheck(pair: Fitted, scans: Iterable[BlockScan]) -> Iterator[str]:
    """Contradictions between a log and the active fitting rows.

    Every patch acts on as many rows as it says and is their rounded mean residual; a round patches
    the model that is more wrong, and ends calibrated to beta. Sums at a round's ends cannot tell
    these: they say nothing of an event by itself. It costs about as much as a history.
    """
    held = [Rows(scan.active, pair.rules, scan.own_classified()) for scan in scans]
    opened: Patch | None = None
    for patch in pair.log:
        if patch.kind == "reconcile":
            yield from _calibrated(pair, held, opened)
            opened = patch
        places = [rows.acted_on(patch) for rows in held]
        yield from _right(pair, patch, held, places)
        for rows in held:
            rows.apply(patch)
    if pair.status != "capped" or len(pair.log) < pair.parameters.max_steps:
        yield from _calibrated(pair, held, opened)


def _right(pair: Fitted, patch: Patch, held: list[Rows], places: list[Index]) -> Iterator[str]:
    both_sides = zip(held, places, strict=True)
    step, count = pair.resolved.step, sum(rows.weight_of(index) for rows, index in both_sides)
    if count != patch.rows:
        yield f"patch {patch.step} says {patch.rows} rows, but acts on {count}"
    own = _residual(held, places, patch.model, pair.n_classes)
    if patch.coordinate is not None:
        own = own[patch.coordinate : patch.coordinate + 1]
    if count and rounded_mean(own, count, step) != patch.phi:
        yield f"patch {patch.step}: phi is not the mean residual of its rows"
    if patch.kind == "reconcile":
        event = patch.event(pair.losses)
        assert isinstance(event, Disagreement)
        costs = pair.losses[event.loss].quantised
        contrast = (costs[event.a1] - costs[event.a2]).tolist()
        both = [_residual(held, places, model, pair.n_classes) for model in event.pair]
        off = [abs(sum(r * c for r, c in zip(one.tolist(), contrast, strict=True))) for one in both]
        if patch.model != (event.pair[0] if off[0] >= off[1] else event.pair[1]):
            yield f"patch {patch.step}: the other model was more wrong"


def _residual(held: list[Rows], places: list[Index], model: int, d: int) -> Ints:
    """The sum of y - f over rows of all blocks."""
    total: Ints = np.zeros(d, np.int64)
    for rows, index in zip(held, places, strict=True):
        assert rows.y is not None
        some = None if rows.w is None else rows.w.take(index)
        total += label_sums(rows.y.take(index, axis=0), d, some)
        total -= score_sums(rows.f[model - 1], index, rows.w)
    return total


def _calibrated(pair: Fitted, held: list[Rows], opened: Patch | None) -> Iterator[str]:
    """The round's model is calibrated within its event; to beta, if that is what was asked for."""
    if opened is None or pair.parameters.adaptive_beta:
        return
    sums: Ints = np.zeros((pair.losses.n_cells, pair.n_classes), np.int64)
    counts: Ints = np.zeros(pair.losses.n_cells, np.int64)
    for rows in held:
        if rows.frozen is not None:
            within = residuals(rows.take(rows.frozen), opened.model)
            sums, counts = sums + within.sums, counts + within.counts
    if not is_calibrated(pair, sums, counts):
        yield f"round {opened.round} does not end calibrated to beta"

"""Whether the sums of a point can be those of any rows: each by itself, and one with another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from redcal_spark.core.events import Pair
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import ONE, Ints
from redcal_spark.core.history import Point
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.metrics import Totals

SLACK = 1e-9  # of float64 norms: what they exclude is excluded


def sums(pair: Fitted, history: Sequence[Point]) -> Iterator[str]:
    """The sums of a point agree with each other, and labels are the same at all points."""
    losses, d, models = pair.losses, pair.n_classes, range(1, pair.columns.n_models + 1)
    labels: Ints | None = None
    for point in history:
        totals, where = point.totals, f"after {point.steps} patches"
        n = totals.rows
        for model in models:
            if not 0 <= totals.brier[model - 1] <= n * d * ONE * ONE:
                yield f"{where} the Brier sum of model {model} is impossible"
        if totals.gaps.min(initial=0) < 0 or totals.gaps.max(initial=0) > n:
            yield f"{where} more rows are apart than there are"
        scores: list[Ints | None] = [None for _ in models]
        for place, loss in enumerate(losses.losses):
            pairs, events, cells = totals.pairs[place], totals.events[place], losses.cells(place)
            here = f"{where}, loss {loss.name!r}:"
            if (pairs.sum(axis=(1, 2)) != n).any() or pairs.min() < 0:
                yield f"{here} the pairs of actions are not those of {n} rows"
            if not _fit_together(totals, place, pair.rules.pairs):
                yield f"{here} the pairs of actions do not fit together"
            if events.min() < 0 or (events > pairs).any() or np.trace(events, 0, 1, 2).any():
                yield f"{here} more rows are in an event than take its actions"
            for whose, cell_sums in (
                *((f"model {i}", totals.labels[i - 1][cells]) for i in models),
                ("the optimum", totals.optimum[cells]),
            ):
                total = cell_sums.sum(axis=0)
                labels = total if labels is None else labels
                if (total != labels).any():
                    yield f"{here} the label sums of {whose} are not those of the rows"
            for model in models:
                y, f = totals.labels[model - 1][cells], totals.scores[model - 1][cells]
                most = totals.taken(place, model)[:, None] * ONE
                if (np.minimum(y, f) < 0).any() or (np.maximum(y, f) > most).any():
                    yield f"{here} sums of model {model} are impossible for so many rows"
                total, known = f.sum(axis=0), scores[model - 1]
                scores[model - 1] = total if known is None else known
                if known is not None and (total != known).any():
                    yield f"{here} the score sums of model {model} differ between losses"
                if _least_brier(y - f, most) * (1 - SLACK) > totals.brier[model - 1]:
                    yield f"{here} the Brier sum of model {model} is too small for its residuals"
    for point in (history[0], history[-1]):
        for place, loss in enumerate(losses.losses):
            cells, totals = losses.cells(place), point.totals
            best = quantised_cost(totals.optimum[cells], loss)
            if any(quantised_cost(y[cells], loss) < best for y in totals.labels):
                yield f"loss {loss.name!r}: a model does better than the optimum"


def _fit_together(totals: Totals, loss: int, pairs: Sequence[Pair]) -> bool:
    """A model takes its actions on as many rows in every pair; all pairs have part of the rows."""
    counts, events = totals.pairs[loss], totals.events[loss]
    apart = counts.sum(axis=(1, 2)) - np.trace(counts, 0, 1, 2)
    return all(
        np.array_equal(counts[place].sum(axis=1), totals.taken(loss, i))
        and np.array_equal(counts[place].sum(axis=0), totals.taken(loss, j))
        for place, (i, j) in enumerate(pairs)
    ) and all(
        parts.max() <= whole <= parts.sum()
        for parts, whole in (
            (apart, totals.apart[loss]),
            (events.sum(axis=(1, 2)), totals.in_event[loss]),
        )
    )


def _least_brier(residuals: Ints, most: Ints) -> float:
    """The least Brier sum that rows with these residual sums can have (they would be all alike)."""
    rows = most[:, 0].astype(np.float64) / ONE
    squares = (residuals.astype(np.float64) ** 2).sum(axis=1)
    return float((squares[rows > 0] / rows[rows > 0]).sum())


def quantised_cost(label_sums: Ints, loss: Loss) -> int:
    """Label sums times the quantised costs, in units of 2^-26 2^-G: exact, without overflow."""
    high, low = label_sums >> 32, label_sums & (1 << 32) - 1
    top, rest = loss.quantised >> 13, loss.quantised & (1 << 13) - 1
    total = 0
    for sums, shift in ((high, 32), (low, 0)):
        for costs, more in ((top, 13), (rest, 0)):  # below 2^45 each, 2^14 of them in a line
            total += sum((sums * costs).sum(axis=1).tolist()) << shift + more
    return total


def cost_change(losses: LossFamily, place: int, model: int, before: Totals, after: Totals) -> int:
    """What the quantised cost of a model's actions changed by, in the same units."""
    moved = (after.labels[model - 1] - before.labels[model - 1])[losses.cells(place)]
    return quantised_cost(moved, losses[place])

"""Moves: which decisions a log changed, as exact sums over rows that merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from redcal_spark.core.fixed_point import BITS, Ints
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Totals, pair_counts, pair_label_sums
from redcal_spark.core.responses import Actions
from redcal_spark.core.rows import Rows


def with_moves(change: Totals, first: Sequence[Actions], rows: Rows) -> Totals:
    """The last change of a log, with what all of it moved. first: the actions before it."""
    assert rows.y is not None
    losses, d = rows.rules.losses, rows.f[0].shape[1]
    counts: list[Ints] = []
    labels: list[Ints] = []
    for before, after, touched in zip(first, rows.actions, rows.touched, strict=True):
        index = np.flatnonzero(touched)
        both = [actions.take(index, axis=1) for actions in (before, after)]
        w = None if rows.w is None else rows.w.take(index)
        # a row before and after are as two models: one pair of them
        counts += [count[0] for count in pair_counts(both, losses, w)[0]]
        sums = pair_label_sums(both, rows.y[index], d, losses, w)
        labels += [x[0] if x.size else np.zeros((0, 0, d), np.int64) for x in sums]
    either = np.logical_or.reduce(rows.touched)
    w = np.ones(len(rows), np.int64) if rows.w is None else rows.w
    many = np.array([w[t].sum() for t in (*rows.touched, either)], np.int64)
    return replace(change, touched=(many,), moves=tuple(counts), move_labels=tuple(labels))


def moves_json(totals: Totals, losses: LossFamily) -> Mapping[str, Any] | None:
    """Plain data; None where nobody counted.

    touched: rows that a patch acted on, per model; touched_either. losses: per loss, every move
    {model, before, after, rows, cost_exact}; actions by index. rows: touched rows with this action
    before and this one after, also where it stayed. cost_exact: what the move cost all of them
    together, after minus before, by their labels in the user's units; null for a loss that is too
    large.
    """
    if not totals.touched:
        return None
    *touched, either = totals.touched[0].tolist()
    return {
        "touched": touched,
        "touched_either": either,
        "losses": [_moves(totals, losses, place) for place in range(len(losses))],
    }


def _moves(totals: Totals, losses: LossFamily, place: int) -> list[dict[str, Any]]:
    loss, moves = losses[place], []
    costs, unit = loss.whole_costs
    for model in range(1, len(totals.moves) // len(losses) + 1):
        own = (model - 1) * len(losses) + place
        counts, sums = totals.moves[own].tolist(), totals.move_labels[own].tolist()
        for before, line in enumerate(counts):
            for after, rows in enumerate(line):
                if rows:
                    cost = None
                    if sums:
                        steps = zip(costs[before], costs[after], sums[before][after], strict=True)
                        total = sum((now - was) * y for was, now, y in steps)
                        cost = str(Fraction(total, unit << BITS))
                    where = {"model": model, "before": before, "after": after}
                    moves.append(where | {"rows": rows, "cost_exact": cost})
    return moves

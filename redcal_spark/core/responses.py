"""Best responses: what every action scores on a row, and which one is the cheapest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from redcal_spark.core.buffers import Buffers
from redcal_spark.core.fixed_point import Floats, Ints, join, split

Scores = npt.NDArray[Any]  # float64 (centred) or int64: comparable within a row, exact either way
Actions = npt.NDArray[Any]  # the smallest unsigned type that holds the action indices


@dataclass(frozen=True, eq=False)
class LossGroup:
    """Losses with equal K, stacked action by action, so that one product scores them all."""

    index: npt.NDArray[np.intp]  # places of these losses in the family
    n_actions: int
    weights: Ints  # (K * losses, d)
    bits: int

    @cached_property
    def centred(self) -> Floats:
        """Shifting all costs alike moves all scores of a row alike: gaps stay, products shrink."""
        return self.weights.astype(np.float64) - 2.0 ** (self.bits - 1)

    @cached_property
    def _centred_and_sum(self) -> Floats:
        return np.vstack([self.centred, np.ones(self.weights.shape[1])])

    @cached_property
    def halves(self) -> tuple[Floats, Floats]:
        return split(self.weights)

    def scores(self, f: Floats, buffers: Buffers) -> Scores:
        """Scores of rows f (n x d, grid values) as (K, losses, n): exact, shifted alike per row.

        One float64 product is exact while |score| stays below 2^52, so that gaps stay below 2^53:
        that holds for rows that sum to about 1, whatever is in them. Their sums come out of the
        same product, as its last line. Other rows take the long way. They lie in the buffers.
        """
        shape = (self.n_actions, len(self.index), len(f))
        if len(f) == 0:
            return np.empty(shape)
        memory = buffers.array("scores", (len(self.weights) + 1, len(f)), np.float64)
        product = np.dot(self._centred_and_sum, f.T, out=memory)
        if float(product[-1].max()) <= 2.0 ** (53 - self.bits):
            return product[:-1].reshape(shape)
        high, low = self.halves
        return join(np.dot(high, f.T), np.dot(low, f.T)).reshape(shape)


def cheapest(scores: Scores, action_type: npt.DTypeLike) -> Actions:
    """The cheapest action along the first axis, the lowest index on ties."""
    if scores[0].size <= 1_024:  # numpy's argmin is quicker while call overhead counts
        actions: Actions = scores.argmin(axis=0).astype(action_type)
        return actions
    return best_response(scores, action_type)[0]


def best_response(scores: Scores, action_type: npt.DTypeLike) -> tuple[Actions, Scores]:
    """The cheapest action, the lowest index on ties, and its score, along the first axis.

    The best score's holders get K, K - 1, ..., 1, and the largest of these is the first holder.
    Five passes over whole arrays, five times quicker than numpy's argmin on a chunk; a loop over
    actions makes many short calls, whose lock two threads would pass to and fro.
    """
    k = len(scores)
    best = np.minimum.reduce(scores, axis=0)
    rank = np.arange(k, 0, -1, dtype=action_type).reshape(k, *(1 for _ in best.shape))
    highest = np.maximum.reduce(np.equal(scores, best) * rank, axis=0)
    return np.subtract(highest.dtype.type(k), highest, out=highest), best

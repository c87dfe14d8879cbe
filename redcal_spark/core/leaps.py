"""Many calibrations in one step, up to the one that gives a row other actions.

While a row keeps its actions it is known beforehand which calibrations of a round act on it. Each
is a shift clipped to the box, and so are several at once: min(max(x + shift, low), high).
The states after each come out of one expression, and one product says how long the actions stayed:
up to there the states are what patch after patch would have given, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from redcal_spark.core.fixed_point import ONE, Floats


@dataclass(frozen=True, eq=False)
class Leap:
    """The calibrations that act on rows of given actions, all at once.

    places: of these calibrations in their round.
    shift, low, high: per class and calibration, from the scores before the first one.
    gaps: what other actions cost more than the given ones, by scores. least: of these gaps, at
    which the given ones are chosen: a lower action wins ties.
    rise: of the sum of a row's scores, at most.
    """

    places: tuple[int, ...]
    shift: Floats
    low: Floats
    high: Floats
    gaps: Floats
    least: Floats
    rise: float

    @classmethod
    def of(cls, phis: Mapping[int, Floats], chosen: Sequence[tuple[Floats, int]]) -> Leap:
        """phis: by their places in the round. chosen: per loss its costs, and the action."""
        states, rise = [], 0.0
        shift, low, high = np.zeros((3, len(chosen[0][0])))
        high += ONE
        for phi in phis.values():
            shift, low, high = shift + phi, np.clip(low + phi, 0, ONE), np.clip(high + phi, 0, ONE)
            states.append((shift, low, high))
            rise += float(np.maximum(phi, 0).sum())
        box = np.ascontiguousarray(np.array(states).transpose(1, 2, 0))
        gaps = [(costs - costs[:, [action]]).T for costs, action in chosen]
        least = [np.arange(costs.shape[1]) < action for costs, action in chosen]
        stacked = np.concatenate(least).astype(np.float64)[:, None]
        return cls(tuple(phis), box[0], box[1], box[2], np.concatenate(gaps), stacked, rise)

    def size(self, rows: int) -> int:
        """How many numbers it looks at."""
        return rows * len(self.places) * int(max(self.gaps.shape))

    def __call__(self, rows: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
        """Rows as they are after the calibration that gave them other actions, or after all.

        And the place of that calibration among these; as many as there are if actions stayed.
        """
        states = rows.T[:, :, None] + self.shift[:, None]
        np.maximum(states, self.low[:, None], out=states)
        np.minimum(states, self.high[:, None], out=states)
        gaps = self.gaps.dot(states.reshape(rows.shape[1], -1))
        stay = np.logical_and.reduce(gaps >= self.least, axis=0).reshape(len(rows), -1)
        first = stay.argmin(axis=1)
        lines = np.arange(len(rows))
        stayed = stay[lines, first]
        first[stayed] = len(self.places) - 1
        new = states[:, lines, first].T
        first[stayed] += 1
        return new, first

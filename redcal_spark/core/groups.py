"""Groups of stored rows: by event, so that an event's rows can be had without the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redcal_spark.core.additive import Additive
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import Index
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.responses import Actions
from redcal_spark.core.weights import counted

COUNTS_AT_MOST = 1 << 20  # numbers of the table groups x events: 8 MB


@dataclass(frozen=True, eq=False)
class Groups(Additive):
    """How many rows every group has (rows), and how many of them are in every event (counts).

    What is held counts a row once, whatever its weight; what decides counts it as often as it says.
    """

    rows: Ints
    counts: Ints  # group x event, the events of all losses one after another

    @classmethod
    def none(cls, losses: LossFamily) -> Groups:
        grouping = Grouping(losses)
        shape = (grouping.n_groups, grouping.n_events)
        return cls(np.zeros(shape[0], np.int64), np.zeros(shape, np.int64))


class Grouping:
    """A row's group is that of its event under the first loss that has one.

    Where there are very many events, neighbours share a group: any partition of the rows will do,
    and the finer it is, the less must be fetched.
    """

    def __init__(self, losses: LossFamily):
        sizes = [loss.n_actions**2 for loss in losses.losses]
        self.losses = losses
        self.offsets: list[int] = np.cumsum([0, *sizes]).tolist()
        self.n_events = self.offsets[-1]
        self.n_groups = max(1, min(self.n_events, COUNTS_AT_MOST // max(1, self.n_events)))

    def of(self, events: Actions) -> Index:
        """The group of every row, each of which is in some event. events: loss x row."""
        numbers = np.zeros(events.shape[1], np.intp)
        for loss in reversed(range(len(events))):  # so that the first loss has the last word
            hit = np.flatnonzero(events[loss] != self.losses.no_event)
            numbers[hit] = events[loss].take(hit) + np.intp(self.offsets[loss])
        if self.n_groups < self.n_events:
            numbers = numbers * self.n_groups // self.n_events
        return numbers

    def count(self, groups: Index, events: Actions, into: Groups, w: Ints | None = None) -> None:
        """Add rows to what is known of the groups, in place: in an event, each counts w times."""
        into.rows[:] += np.bincount(groups, minlength=self.n_groups)
        for loss, codes in enumerate(events):
            hit = np.flatnonzero(codes != self.losses.no_event)
            places = groups.take(hit) * self.n_events + codes.take(hit) + self.offsets[loss]
            if w is None:
                some, times = np.unique(places, return_counts=True)
            else:
                some, there = np.unique(places, return_inverse=True)
                times = counted(there, len(some), w.take(hit))
            into.counts.reshape(-1)[some] += times

    def number(self, loss: int, a1: int, a2: int) -> int:
        """The place of an event among all."""
        return self.offsets[loss] + a1 * self.losses[loss].n_actions + a2

    def by_loss(self, counts: Ints) -> list[Ints]:
        """Counts of all events, as one a1 x a2 array per loss."""
        return [
            counts[start : start + loss.n_actions**2].reshape(loss.n_actions, -1)
            for start, loss in zip(self.offsets, self.losses.losses, strict=False)
        ]

"""Groups of stored rows: by event, so that an event's rows can be had without the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redcal_spark.core.additive import Additive
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import Events, Index, Rules
from redcal_spark.core.weights import counted

COUNTS_AT_MOST = 1 << 20  # numbers of the table groups x events: 8 MB


@dataclass(frozen=True, eq=False)
class Groups(Additive):
    """How many rows every group has (rows), and how many of them are in every event (counts).

    What is held counts a row once, whatever its weight; what decides counts it as often as it says.
    """

    rows: Ints
    counts: Ints  # group x event, the events of all losses and pairs one after another

    @classmethod
    def none(cls, rules: Rules) -> Groups:
        grouping = Grouping(rules)
        shape = (grouping.n_groups, grouping.n_events)
        return cls(np.zeros(shape[0], np.int64), np.zeros(shape, np.int64))


class Grouping:
    """A row's group is that of its event under the first loss, and of the first pair, that has one.

    Where there are very many events, neighbours share a group: any partition of the rows will do,
    and the finer it is, the less must be fetched.
    """

    def __init__(self, rules: Rules):
        self.losses, self.pairs = rules.losses, rules.pairs
        sizes = [loss.n_actions**2 for loss in self.losses.losses for _ in self.pairs]
        self.offsets: list[int] = np.cumsum([0, *sizes]).tolist()  # of every loss and pair
        self.n_events = self.offsets[-1]
        self.n_groups = max(1, min(self.n_events, COUNTS_AT_MOST // max(1, self.n_events)))

    def of(self, events: Events) -> Index:
        """The group of every row, each of which is in some event."""
        lines = _lines(events)
        numbers = np.zeros(lines.shape[1], np.intp)
        for line in reversed(range(len(lines))):  # so that the first one has the last word
            hit = np.flatnonzero(lines[line] != self.losses.no_event)
            numbers[hit] = lines[line].take(hit) + np.intp(self.offsets[line])
        if self.n_groups < self.n_events:
            numbers = numbers * self.n_groups // self.n_events
        return numbers

    def count(self, groups: Index, events: Events, into: Groups, w: Ints | None = None) -> None:
        """Add rows to what is known of the groups, in place: in an event, each counts w times."""
        into.rows[:] += np.bincount(groups, minlength=self.n_groups)
        for line, codes in enumerate(_lines(events)):
            hit = np.flatnonzero(codes != self.losses.no_event)
            places = groups.take(hit) * self.n_events + codes.take(hit) + self.offsets[line]
            if w is None:
                some, times = np.unique(places, return_counts=True)
            else:
                some, there = np.unique(places, return_inverse=True)
                times = counted(there, len(some), w.take(hit))
            into.counts.reshape(-1)[some] += times

    def number(self, event: Disagreement) -> int:
        """The place of an event among all."""
        line = event.loss * len(self.pairs) + self.pairs.index(event.pair)
        return self.offsets[line] + event.a1 * self.losses[event.loss].n_actions + event.a2

    def by_loss(self, counts: Ints) -> list[Ints]:
        """Counts of all events, as one pair x a1 x a2 array per loss."""
        pairs = len(self.pairs)
        return [
            counts[start : start + pairs * loss.n_actions**2].reshape(pairs, loss.n_actions, -1)
            for start, loss in zip(self.offsets[::pairs], self.losses.losses, strict=False)
        ]


def _lines(events: Events) -> Events:
    """Of every loss and pair, one after another; there may be no rows."""
    return events.reshape(events.shape[0] * events.shape[1], events.shape[2])

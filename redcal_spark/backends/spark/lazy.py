"""Lazy handover: the rows of an event come to the driver when the event is first chosen.

A row that no patch has touched is as it was written, and so are its events. So the counts of the
written groups stand until a group is taken over, and from then on the driver counts its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from redcal_spark.backends.counters import Counters
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.local.region import LocalRegion
from redcal_spark.backends.spark.written import Written
from redcal_spark.backends.threads import give_back, ordered
from redcal_spark.core.blocks import Block
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.groups import Grouping
from redcal_spark.core.kernel import BlockScan, Rules, scan
from redcal_spark.core.metrics import Totals
from redcal_spark.core.packing import unpack_block

log = logging.getLogger(__name__)

PART = 65_536  # rows that the driver keeps in one piece


@dataclass(frozen=True)
class Room:
    """What the driver may hold, and what is worth holding.

    rows: so many at most. large: rows of the smallest event that a round may choose. weight: of a
    row, on average.
    """

    rows: int
    large: int
    threads: int | None = None
    weight: float = 1.0


class LazyEngine:
    """The groups that were taken over, in memory, and the counts of those that were not."""

    def __init__(
        self,
        written: Written,
        rules: Rules,
        rows: int,
        room: Room,
        totals: Totals | None = None,
        counters: Counters | None = None,
    ):
        groups = written.manifest.groups(rules)
        self._written, self._rules, self._threads = written, rules, room.threads
        self._most, self._large = room.rows, room.large
        self._counters = counters or Counters()
        self._grouping = Grouping(rules)
        self._rows, self._counts = groups.rows, groups.counts  # of what was not taken over yet
        self._left: Ints = self._counts.sum(axis=0)
        self.held = LocalEngine((), rows, rules, room.threads, totals)

    def disagreements(self) -> list[Ints]:
        left = self._grouping.by_loss(self._left)
        return [a + b for a, b in zip(left, self.held.disagreements(), strict=True)]

    def freeze(self, event: Disagreement) -> LocalRegion | None:
        """The event's rows, all at the driver; None if they are too many."""
        wanted = np.flatnonzero(self._counts[:, self._grouping.number(event)])
        if len(wanted) and not self._take(wanted):
            return None
        give_back()
        return self.held.freeze(event)

    def _take(self, wanted: Ints) -> bool:
        """Take groups over, whole, and with them those that will be wanted for certain."""
        rows = int(self._rows[wanted].sum())
        if self.held.held_rows + rows > self._most:
            self.held.compact()
            give_back()
        if self.held.held_rows + rows > self._most:
            return False
        room = self._most // 2 - self.held.held_rows - rows
        wanted = np.concatenate([wanted, self._certain(wanted, room)])
        with self._counters.timed("collect") as made:
            groups, pool = wanted.tolist(), self.held.pool  # more threads would keep more memory
            blocks = blocks_at_driver(self._written, "fit", groups, self._threads, pool)
            made.rows = sum(block.rows for block in blocks)
            made.bytes = sum(block.nbytes for block in blocks)
        log.info("handing over: %s rows of chosen events go to the driver", f"{made.rows:,}")
        self.held.add(scans_of(blocks, self._rules, self._threads, pool))
        self._left -= self._counts[wanted].sum(axis=0)
        self._counts[wanted] = 0
        self._rows[wanted] = 0
        return True

    def _certain(self, wanted: Ints, room: int) -> Ints:
        """Groups of events that are large enough to be chosen: the largest, while there is room."""
        largest = self._counts.max(axis=1)
        largest[wanted] = 0
        order = np.argsort(-largest, kind="stable")
        order = order[largest[order] >= self._large]
        return np.compress(np.cumsum(self._rows[order]) <= room, order)

    def close(self) -> None:
        self.held.close()


def blocks_at_driver(
    written: Written,
    kind: str,
    groups: Sequence[int] | None,
    threads: int | None,
    pool: ThreadPoolExecutor | None = None,
) -> list[Block]:
    """Blocks of our own, of some size each. Damage is noticed."""
    blocks = ordered(unpack_block, written.fetch(kind, groups), threads, pool)
    return list(ordered(copied, joined(blocks), threads, pool))


def joined(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Small blocks in lists, each of enough rows for one piece of work."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if sum(each.rows for each in waiting) >= PART:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def copied(blocks: Sequence[Block]) -> Block:
    """One block that may be changed."""
    whole = Block.concat(blocks)
    return whole if len(blocks) > 1 else whole.take(np.arange(whole.rows))


def scans_of(
    blocks: Sequence[Block],
    rules: Rules,
    threads: int | None,
    pool: ThreadPoolExecutor | None = None,
) -> list[BlockScan]:
    return list(ordered(partial(scan, rules=rules, everywhere=True), blocks, threads, pool))

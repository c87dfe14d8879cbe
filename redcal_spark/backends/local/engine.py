"""The embedded engine: active rows in memory, statistics kept up to date patch by patch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from redcal_spark.backends.local.region import LocalRegion
from redcal_spark.backends.threads import blas, cores, give_back, ordered
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import BlockScan, Index, Rules, classify, event_counts, no_events
from redcal_spark.core.metrics import Totals
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from redcal_spark.core.sums import GapSums, gap_sums

T = TypeVar("T")
R = TypeVar("R")
WORTH_A_THREAD = 16_384  # rows of a region: handing over fewer takes longer than patching them
_Place = tuple[Rows, Index]  # a part of the engine, and some of its rows


class LocalEngine:
    """Keeps the active rows of scanned blocks in memory and patches copies of them.

    rows: all fitting rows, also those that the scan dropped; with weights, their sum.
    own: nobody else will look at the scans, so that no copies are needed.
    totals: of all rows before the first patch, to be kept up to date for those who watch.
    """

    def __init__(
        self,
        scans: Sequence[BlockScan],
        rows: int,
        rules: Rules,
        threads: int | None = None,
        totals: Totals | None = None,
        own: bool = False,
    ):
        self.totals = totals
        self.rules = rules
        self.rows = rows
        self._threads = threads
        self.pool = ThreadPoolExecutor(cores(threads))
        self._parts = self._rows_of(scans, own)
        self._counts: list[Ints] = []
        self._count()
        self._gaps: GapSums | None = None
        self._buffers: list[Buffers] = []  # for the pieces of one event after the other
        self._blas = blas().limit(limits=1, user_api="blas")

    def _rows_of(self, scans: Sequence[BlockScan], own: bool) -> list[Rows]:
        wanted = bool(len(self.rules.losses))  # Reconcile looks at scores alone

        def rows_of(scan: BlockScan) -> Rows:
            known = scan.classified if own else scan.own_classified()
            return Rows(scan.active, self.rules, known if wanted else None, own=own)

        return list(self._each(rows_of, [s for s in scans if s.active.rows]))

    def add(self, scans: Sequence[BlockScan]) -> None:
        """More active rows, our own from now on, that no patch so far was for."""
        self._parts += self._rows_of(scans, own=True)
        for scan in scans:
            self._add(scan.counts)

    @property
    def models(self) -> int:
        return self.rules.models

    @property
    def held_rows(self) -> int:
        return sum(map(len, self._parts))

    @property
    def _held_weight(self) -> int:
        return sum(part.weight for part in self._parts)

    def disagreements(self) -> Sequence[Ints]:
        return self._counts

    def freeze(self, event: Disagreement | None) -> LocalRegion:
        if event is None:
            return self._region(self._parts, self._settle)
        pair = self.rules.pairs.index(event.pair)
        rows = int(self._counts[event.loss][pair, event.a1, event.a2])
        return self._gathered(rows, lambda part: part.in_event(event))

    def replay(self, log: Sequence[Patch]) -> LocalRegion | None:
        if not log:
            return None

        def go(part: Rows) -> None:
            for patch in log:
                part.apply(patch)

        list(self._each(go, self._parts))
        self._gaps = None
        last = log[-1]
        if last.kind == "score":
            return None
        if last.round is None:
            self._settle()
            return None
        # the round's events are still those of its start: closing the region lets them follow
        self._count()

        def frozen(part: Rows) -> Index:
            assert part.frozen is not None
            return part.frozen

        return self._gathered(sum(len(frozen(part)) for part in self._parts), frozen)

    def gaps(self) -> GapSums:
        if self._gaps is None:
            coordinates = range(*self.rules.coordinates.indices(self._n_classes()))
            self._gaps = self._gap_sums(coordinates)
        return self._gaps

    def patch(self, patch: Patch) -> None:
        """A score patch changes one coordinate: only its sums are taken anew."""
        for part in self._parts:
            part.apply(patch)
        known, j = self.gaps(), patch.coordinate
        assert j is not None
        new = self._gap_sums([j])
        fresh = new.to_arrays()
        for name, old in known.to_arrays().items():
            old[..., j] = fresh[name][..., j]

    def close(self) -> None:
        self._parts, self._buffers = [], []
        self.pool.shutdown()
        self._blas.restore_original_limits()

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        return ordered(work, items, self._threads, self.pool)

    def _gathered(self, rows: int, find: Callable[[Rows], Index]) -> LocalRegion:
        """Rows of an event, so many all in all, copied to a piece of memory per thread.

        One event at a time: the next one is gathered in the same memory.
        """
        groups = self._groups(rows)
        while len(self._buffers) < len(groups):
            self._buffers.append(Buffers())

        def gathered(item: tuple[Buffers, list[Rows]]) -> tuple[Rows, list[_Place]]:
            places = [(part, find(part)) for part in item[1]]
            return Rows.gathered(places, item[0]), places

        made = list(self._each(gathered, list(zip(self._buffers, groups, strict=False))))

        def put_back() -> None:
            for changes in self._each(_put_back, made):
                self._add(changes)
            made.clear()  # who still has the region must not keep rows that are dropped now

        return self._region([piece for piece, _ in made], put_back)

    def _region(self, pieces: Sequence[Rows], settle: Callable[[], None]) -> LocalRegion:
        return LocalRegion(pieces, self._each, settle, self._closed, self.totals is not None)

    def _closed(self, change: Totals | None) -> None:
        if self.totals is not None and change is not None:
            self.totals += change
        # a row is in at most one event of a loss and a pair: so many are active at most
        if 2 * sum(int(c.sum()) for c in self._counts) < self._held_weight:
            self.compact()

    def _groups(self, rows: int) -> list[list[Rows]]:
        """The parts, a group per thread, of about as many rows each, if an event has so many."""
        n = max(1, min(cores(self._threads), rows // WORTH_A_THREAD))
        ends = np.cumsum([len(part) for part in self._parts])
        shares = [int(ends[-1]) * i // n for i in range(1, n)]
        bounds = [0, *np.searchsorted(ends, shares).tolist(), len(self._parts)]
        return [self._parts[a:b] for a, b in pairwise(bounds) if a < b]

    def _n_classes(self) -> int:
        return self._parts[0].f[0].shape[1] if self._parts else 0

    def _gap_sums(self, coordinates: Iterable[int]) -> GapSums:
        wanted = list(coordinates)
        empty = GapSums.none(len(self.rules.pairs), self._n_classes())
        sums = self._each(lambda part: gap_sums(part.current(), self.rules, wanted), self._parts)
        return sum(sums, empty)

    def _settle(self) -> None:
        list(self._each(Rows.settle, self._parts))
        self._count()

    def _count(self) -> None:
        self._counts = no_events(self.rules)
        for part in self._parts:  # one after the other: of many losses they are large
            self._add(event_counts(part.events, self.rules.losses, part.w))

    def _add(self, counts: Sequence[Ints]) -> None:
        for count, more in zip(self._counts, counts, strict=True):
            count += more

    def compact(self) -> None:
        """Drop rows outside every event: only between rounds."""
        waiting, self._parts = self._parts[::-1], []
        while waiting:  # one after the other: memory has not room for all of them twice
            part = waiting.pop()
            kept = part.active()
            if len(kept):
                self._parts.append(part.take(kept))
        give_back()


def _put_back(gathered: tuple[Rows, list[_Place]]) -> list[Ints]:
    """Let the events of a piece follow its scores; how many rows more each of them has."""
    piece, places = gathered
    before = event_counts(piece.events, piece.rules.losses, piece.w)
    _, piece.events = classify(piece.current(), piece.rules)
    after = event_counts(piece.events, piece.rules.losses, piece.w)
    models = [model for model, touched in enumerate(piece.touched, 1) if touched.any()]
    start = 0
    for part, rows in places:
        part.put(rows, piece, slice(start, start + len(rows)), models)
        part.release()
        start += len(rows)
    return [new - old for new, old in zip(after, before, strict=True)]

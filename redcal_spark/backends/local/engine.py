"""The embedded engine: active rows in memory, statistics kept up to date patch by patch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from redcal_spark.backends.threads import blas, cores, ordered
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.events import Disagreement
from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import BlockScan, Index, Rules, classify, event_counts
from redcal_spark.core.metrics import Totals, brier_sum, pair_counts
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from redcal_spark.core.sums import (
    GapSums,
    Residuals,
    Sums,
    gap_sums,
    patch_residuals,
    residuals,
    sums,
)

T = TypeVar("T")
R = TypeVar("R")
WORTH_A_THREAD = 16_384  # rows of a region: handing over fewer takes longer than patching them
_Place = tuple[Rows, Index]  # a part of the engine, and some of its rows
_OfModel = tuple[int, Ints, Ints]


class LocalEngine:
    """Keeps the active rows of scanned blocks in memory and patches copies of them.

    rows: all fitting rows, also those that the scan dropped.
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
        wanted = bool(len(rules.losses))  # Reconcile looks at scores alone

        def rows_of(scan: BlockScan) -> Rows:
            known = scan.classified if own else scan.own_classified()
            return Rows(scan.active, rules, known if wanted else None, own=own)

        self._pool = ThreadPoolExecutor(cores(threads))
        self._parts = list(self._each(rows_of, [s for s in scans if s.active.rows]))
        self._counts: list[Ints] = []
        self._count()
        self._gaps: GapSums | None = None
        self._rooms: list[Buffers] = []  # for the pieces of one event after the other
        self._blas = blas().limit(limits=1, user_api="blas")

    def disagreements(self) -> Sequence[Ints]:
        return self._counts

    def freeze(self, event: Disagreement | None) -> LocalRegion:
        if event is None:
            return LocalRegion(self)
        rows = int(self._counts[event.loss][event.a1, event.a2])
        return LocalRegion(self, rows, lambda part: part.in_event(event))

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

        return LocalRegion(self, sum(len(frozen(part)) for part in self._parts), frozen)

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
            old[:, j] = fresh[name][:, j]

    def close(self) -> None:
        self._parts, self._rooms = [], []
        self._pool.shutdown()
        self._blas.restore_original_limits()

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        return ordered(work, items, self._threads, self._pool)

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
        wanted, shape = list(coordinates), (2, self._n_classes())
        empty = GapSums(*(np.zeros(shape, np.int64) for _ in range(4)))
        found = self._each(lambda part: gap_sums(part.current(), self.rules, wanted), self._parts)
        return sum(found, empty)

    def _settle(self) -> None:
        list(self._each(Rows.settle, self._parts))
        self._count()

    def _count(self) -> None:
        zero = [np.zeros((x.n_actions, x.n_actions), np.int64) for x in self.rules.losses.losses]
        found = [event_counts(part.events, self.rules.losses) for part in self._parts]
        self._counts = [sum(c, start) for start, *c in zip(zero, *found, strict=True)]

    def _compact(self) -> None:
        """Drop rows outside every event once they are half of what is held."""
        held = sum(map(len, self._parts))
        if 2 * sum(int(c.sum()) for c in self._counts) < held:
            kept = [part.take(part.active()) for part in self._parts]
            self._parts = [part for part in kept if len(part)]


class LocalRegion:
    """Rows of an event gathered into a piece of memory per thread, or all rows where they are.

    One at a time: the next event is gathered in the same memory.
    """

    def __init__(
        self, engine: LocalEngine, rows: int = 0, find: Callable[[Rows], Index] | None = None
    ):
        """rows: of the event, all in all; find: those in a part. None: everywhere."""
        self._engine = engine
        self._each = engine._each
        self._known: tuple[int, Residuals] | None = None
        self._places: list[list[_Place]] | None = None  # where the rows of each piece are from
        if find is None:
            self._pieces = engine._parts
        else:
            groups = engine._groups(rows)
            while len(engine._rooms) < len(groups):
                engine._rooms.append(Buffers())

            def gathered(item: tuple[Buffers, list[Rows]]) -> tuple[list[_Place], Rows]:
                places = [(part, find(part)) for part in item[1]]
                return places, Rows.gathered(places, item[0])

            found = list(self._each(gathered, list(zip(engine._rooms, groups, strict=False))))
            self._places = [places for places, _ in found]
            self._pieces = [piece for _, piece in found]
        self._before = self._counts() if engine.totals is not None else []
        self._models_before: dict[int, _OfModel] = {}

    def sums(self) -> Sums:
        return _total(list(self._each(lambda piece: sums(piece.current()), self._pieces)))

    def residuals(self, model: int) -> Residuals:
        if self._known is None or self._known[0] != model:
            found = self._each(lambda piece: residuals(piece, model), self._pieces)
            self._known = model, _total(list(found))
        return self._known[1]

    def patch(self, patch: Patch) -> None:
        if self._engine.totals is not None and patch.model not in self._models_before:
            self._models_before[patch.model] = self._of_model(patch.model)
        if patch.kind == "calibrate" and self._known and self._known[0] == patch.model:
            patch_residuals(self._pieces, patch, self._known[1], self._each)
            return
        self._known = None

        def shift(piece: Rows) -> None:
            whole = patch.kind == "reconcile"
            rows = np.arange(len(piece)) if whole else piece.acted_on(patch)
            piece.shift(patch.model, rows, patch.shift)

        list(self._each(shift, self._pieces))

    def _counts(self) -> list[Ints]:
        """Of the rows here, whose events are up to date: pairs of actions per loss, then events."""
        losses = self._engine.rules.losses

        def counted(piece: Rows) -> list[Ints]:
            return pair_counts(piece.actions, losses) + event_counts(piece.events, losses)

        found = self._each(counted, self._pieces)
        return [np.sum(counts, axis=0) for counts in zip(*found, strict=True)]

    def _of_model(self, model: int) -> _OfModel:
        """What patches of a model change beside: squared errors, label and score sums per cell."""
        known = self.residuals(model)

        def squares(piece: Rows) -> int:
            assert piece.y is not None
            return brier_sum(piece.f[model - 1], piece.y)

        return sum(self._each(squares, self._pieces)), known.labels.copy(), known.scores.copy()

    def _change(self, totals: Totals) -> Totals:
        """What was done to the totals. A model that was not patched need not be looked at."""
        counts = [new - old for new, old in zip(self._counts(), self._before, strict=True)]
        n, zero = len(totals.pairs), np.zeros_like(totals.optimum)
        brier, labels, scores = [0, 0], [zero, zero], [zero, zero]
        for model, before in self._models_before.items():
            after, i = self._of_model(model), model - 1
            brier[i], labels[i], scores[i] = (
                after[0] - before[0],
                after[1] - before[1],
                after[2] - before[2],
            )
        return Totals(
            0, (brier[0], brier[1]), tuple(counts[:n]), tuple(counts[n:]),
            (labels[0], labels[1]), (scores[0], scores[1]), zero, np.zeros_like(totals.gaps),
        )  # fmt: skip

    def close(self) -> None:
        engine = self._engine
        if self._places is None:
            engine._settle()
        else:
            pairs = list(zip(self._pieces, self._places, strict=True))
            for changes in self._each(self._put_back, pairs):
                for count, change in zip(engine._counts, changes, strict=True):
                    count += change
        if engine.totals is not None and self._pieces:
            engine.totals += self._change(engine.totals)
        engine._compact()

    def _put_back(self, gathered: tuple[Rows, list[_Place]]) -> list[Ints]:
        """Let the events of a piece follow its scores; how many rows more each of them has."""
        (piece, places), rules = gathered, self._engine.rules
        before = event_counts(piece.events, rules.losses)
        _, piece.events = classify(piece.current(), rules)
        after = event_counts(piece.events, rules.losses)
        models = [model for model in (1, 2) if piece.touched[model - 1].any()]
        start = 0
        for part, rows in places:
            part.put(rows, piece, slice(start, start + len(rows)), models)
            part.release()
            start += len(rows)
        return [new - old for new, old in zip(after, before, strict=True)]


def _total(found: Sequence[T]) -> T:
    first, *others = found
    for other in others:
        first = first + other  # type: ignore[operator]
    return first

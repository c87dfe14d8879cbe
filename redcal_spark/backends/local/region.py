"""A region in memory: rows that stay fixed while their scores are patched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from redcal_spark.core.fixed_point import Ints
from redcal_spark.core.kernel import event_counts
from redcal_spark.core.metrics import OF_SOME, Totals, brier_sum, event_rows, pair_counts
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from redcal_spark.core.sums import Residuals, Sums, patch_residuals, residuals, sums

# Sums that no patch changes, and those that a fit whose rows are watched has not.
STAY = {"rows", "optimum", "gaps", *OF_SOME}


class LocalRegion:
    """Rows in pieces, one for each thread that works on them.

    spread: how pieces are spread over threads, as `map` with a function and items.
    settle: lets events follow the scores again. closed: is told what changed in the totals of the
    rows, if someone watches them.
    """

    def __init__(
        self,
        pieces: Sequence[Rows],
        spread: Callable[..., Iterator[Any]],
        settle: Callable[[], None],
        closed: Callable[[Totals | None], None],
        watched: bool,
    ):
        self._pieces, self._spread = pieces, spread
        self._settle, self._closed = settle, closed
        self._known: tuple[int, Residuals] | None = None
        self._watched = watched and bool(pieces)
        self._counts_before = self._counts() if self._watched else []
        self._models_before: dict[int, list[Any]] = {}

    def sums(self) -> Sums:
        parts: Iterator[Sums] = self._spread(lambda piece: sums(piece.current()), self._pieces)
        return reduce(add, parts)

    def residuals(self, model: int) -> Residuals:
        if self._known is None or self._known[0] != model:
            parts = self._spread(lambda piece: residuals(piece, model), self._pieces)
            self._known = model, reduce(add, parts)
        return self._known[1]

    def patch(self, patch: Patch) -> None:
        if self._watched and patch.model not in self._models_before:
            self._models_before[patch.model] = self._of_model(patch.model)
        if patch.kind == "calibrate" and self._known and self._known[0] == patch.model:
            patch_residuals(self._pieces, patch, self._known[1], self._spread)
            return
        self._known = None

        def shift(piece: Rows) -> None:
            whole = patch.kind == "reconcile"
            rows = np.arange(len(piece)) if whole else piece.acted_on(patch)
            piece.shift(patch.model, rows, patch.shift)

        list(self._spread(shift, self._pieces))

    def close(self) -> None:
        self._settle()
        self._closed(self._change() if self._watched else None)

    # --- for those who watch --------------------------------------------------------------------

    def _counts(self) -> list[Ints]:
        """Of the rows here, whose events are up to date: as in the totals, one after another."""

        def counted(piece: Rows) -> list[Ints]:
            losses, w = piece.rules.losses, piece.w
            pairs, apart = pair_counts(piece.actions, losses, w)
            events = event_counts(piece.events, losses, w)
            return [apart, event_rows(piece.events, events, losses, w), *pairs, *events]

        counts = self._spread(counted, self._pieces)
        return [np.sum(parts, axis=0) for parts in zip(*counts, strict=True)]

    def _of_model(self, model: int) -> list[Any]:
        """What patches of a model change beside: squared errors, label and score sums per cell."""
        known = self.residuals(model)

        def squared(piece: Rows) -> int:
            assert piece.y is not None
            return brier_sum(piece.f[model - 1], piece.y, piece.w)

        squares = self._spread(squared, self._pieces)
        return [sum(squares), known.labels.copy(), known.scores.copy()]

    def _change(self) -> Totals:
        """What was done to the totals. A model that was not patched need not be looked at."""
        nothing = Totals.none(self._pieces[0].rules, self._pieces[0].f[0].shape[1])
        models: list[list[Any]] = [[0, sums, sums] for sums in nothing.labels]
        for model, before in self._models_before.items():
            after = self._of_model(model)
            models[model - 1] = [new - old for new, old in zip(after, before, strict=True)]
        brier, labels, scores = zip(*models, strict=True)
        both = zip(self._counts(), self._counts_before, strict=True)
        apart, in_event, *counts = (new - old for new, old in both)
        n = len(nothing.pairs)
        changed: dict[str, Any] = {
            "brier": brier,
            "labels": labels,
            "scores": scores,
            "pairs": tuple(counts[:n]),
            "events": tuple(counts[n:]),
            "apart": apart,
            "in_event": in_event,
        }
        missing = {field.name for field in fields(Totals)} - changed.keys() - STAY
        assert not missing, f"how patches change {missing} must be said here, or in STAY"
        return replace(nothing, **changed)

"""The folds of `eta: auto`: two halves of the fitting rows, by a hash that every engine computes.

A row's code is 2 * level + fold. fold: the lowest bit of its hash; level: how many of the highest
bits are 0, so that the rows with a hash below 2^(64 - k) are those of level k and above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from redcal_spark.core.additive import Array
from redcal_spark.core.blocks import Block, Codes
from redcal_spark.core.cells import Hashes
from redcal_spark.core.columns import Layout
from redcal_spark.core.fixed_point import Ints, Mask
from redcal_spark.core.kernel import BlockScan, Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.responses import Actions
from redcal_spark.core.splits import hash_bytes, hash_column
from redcal_spark.core.sums import DecisionSums, cell_label_sums
from redcal_spark.core.weights import squares_by, squares_of, summed
from redcal_spark.errors import InputError
from redcal_spark.settings import setting

SALT = "tune"
FOLDS = (0, 1)
CODES = 2 * 65  # levels are 0 to 64


def fold_codes(batch: pa.RecordBatch, layout: Layout, block: Block) -> Codes:
    """The code of every row: by its id, or by all that is known of it where it has none."""
    id = layout.columns.id
    return codes_of(row_hashes(block) if id is None else hash_column(batch.column(id), id, SALT))


def check_id(schema: pa.Schema, id: str | None, where: str) -> None:
    """Refuse an id that cannot be hashed, before any row is read."""
    if id is None or id not in schema.names:
        return
    try:
        hash_column(pa.array([], schema.field(id).type), id, SALT)
    except InputError as err:
        raise InputError(
            f"{where}: {setting('eta', 'auto')} folds rows by their id. {err}, or give "
            f"{setting('eta')} a number"
        ) from err


def row_hashes(block: Block) -> Hashes:
    """The text hash over the little-endian int32 of scores and label: equal rows stay together."""
    assert block.y is not None
    label = block.y if block.y.ndim == 2 else block.y[:, None]
    numbers = (*block.f, label)
    row = np.concatenate([np.ascontiguousarray(n, "<i4") for n in numbers], axis=1)
    return hash_bytes(row.view(np.uint8), SALT)


def codes_of(hashes: Hashes) -> Codes:
    length, left = np.zeros(len(hashes), np.uint8), hashes.copy()
    for bits in (32, 16, 8, 4, 2, 1):  # a logarithm would round
        long = left >> np.uint64(bits) > 0
        length += np.where(long, bits, 0).astype(np.uint8)
        left = np.where(long, left >> np.uint64(bits), left)
    length += left.astype(np.uint8)
    codes: Codes = (64 - length) * 2 + (hashes & np.uint64(1)).astype(np.uint8)
    return codes.astype(np.uint8)


def chosen(codes: Codes, fold: int, level: int) -> Mask:
    """Which rows are of a fold, and of a level or above."""
    return np.asarray((codes & 1 == fold) & (codes >= 2 * level))


@dataclass(frozen=True, eq=False)
class Folds:
    """Fitting rows by their code: how many, how many of them are active, whatever their weights.

    labels: of the rows that are not active, by code: model x cell x class. They stay as they are,
    so that these sums are all that is needed of them.
    weights, squares: the sums of the weights, and of their squares in two parts; None where every
    row counts once.
    """

    rows: Ints
    active: Ints
    labels: dict[int, Ints] = field(default_factory=dict)
    weights: Ints | None = None
    squares: Ints | None = None

    @classmethod
    def of(cls, block: Block, actions: list[Actions], kept: BlockScan, losses: LossFamily) -> Folds:
        """actions: of the whole block. kept: its active rows."""
        active = kept.active
        assert block.fold is not None and active.fold is not None
        rows = np.bincount(block.fold, minlength=CODES)
        moving = np.bincount(active.fold, minlength=CODES)
        labels = {
            code: _label_sums(block, actions, code, losses)
            - _label_sums(active, kept.classified[0], code, losses)
            for code in np.flatnonzero(rows > moving).tolist()
        }
        counts = rows.astype(np.int64), moving.astype(np.int64)
        w = block.w
        if w is None:
            return cls(*counts, labels)
        heavy = summed(block.fold, np.ones(len(w), np.int64), CODES, w)
        return cls(*counts, labels, heavy, squares_by(block.fold, w, CODES))

    def __add__(self, other: Folds) -> Folds:
        labels = dict(self.labels)
        for code, more in other.labels.items():
            labels[code] = labels[code] + more if code in labels else more
        rows, active = self.rows + other.rows, self.active + other.active
        if self.weights is None or other.weights is None:
            return Folds(rows, active, labels)
        assert self.squares is not None and other.squares is not None
        heavy, squares = self.weights + other.weights, self.squares + other.squares
        return Folds(rows, active, labels, heavy, squares)

    def level(self, most: int) -> int:
        """The least that leaves at most so many active rows."""
        left = self.active.reshape(-1, len(FOLDS)).sum(axis=1)[::-1].cumsum()[::-1]
        return int(np.count_nonzero(left > most))  # from level to level fewer are left

    def used(self, counts: Ints, fold: int, level: int) -> int:
        """Of `rows`, `active` or `weights`: those of a fold, from a level on."""
        return int(counts.reshape(-1, len(FOLDS))[level:, fold].sum())

    def totals(self, whole: Totals, fold: int, level: int) -> Totals:
        """What a fit asks of the totals of a fold, from a level on: rows and weights."""
        rows = self.used(self.rows, fold, level)
        if self.weights is None or self.squares is None or whole.weights is None:
            return replace(whole, rows=rows)
        squares = squares_of([self.used(part, fold, level) for part in self.squares])
        weights = replace(whole.weights, rows=rows, squares=squares)
        return replace(whole, rows=self.used(self.weights, fold, level), weights=weights)

    def resting(self, fold: int, level: int, d: int, rules: Rules) -> DecisionSums:
        """Of the rows that are not active, of a fold, from a level on."""
        total = DecisionSums.none(rules, d)
        for code, labels in self.labels.items():
            if code & 1 == fold and code >= 2 * level:
                total += DecisionSums(tuple(labels))
        return total

    def to_arrays(self, prefix: str) -> dict[str, Array]:
        arrays = {f"{prefix}rows": self.rows, f"{prefix}active": self.active}
        if self.weights is not None and self.squares is not None:
            arrays |= {f"{prefix}weights": self.weights, f"{prefix}squares": self.squares}
        return arrays | {f"{prefix}labels.{code}": sums for code, sums in self.labels.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str) -> Folds:
        start = f"{prefix}labels."
        labels = {int(n.removeprefix(start)): a for n, a in arrays.items() if n.startswith(start)}
        weights, squares = (arrays.get(f"{prefix}{name}") for name in ("weights", "squares"))
        return cls(arrays[f"{prefix}rows"], arrays[f"{prefix}active"], labels, weights, squares)


def of_fold(scan: BlockScan, fold: int, level: int) -> BlockScan:
    """The active rows of a fold, from a level on."""
    assert scan.active.fold is not None
    index = np.flatnonzero(chosen(scan.active.fold, fold, level))
    actions, events = scan.classified
    known = [a.take(index, axis=1) for a in actions], events.take(index, axis=2)
    return BlockScan([], scan.active.take(index), known)


def _label_sums(block: Block, actions: list[Actions], code: int, losses: LossFamily) -> Ints:
    assert block.fold is not None and block.y is not None
    index = np.flatnonzero(block.fold == code)
    y, w = block.y.take(index, axis=0), None if block.w is None else block.w.take(index)
    d = block.n_classes
    return np.stack([cell_label_sums(a.take(index, axis=1), y, d, losses, w) for a in actions])

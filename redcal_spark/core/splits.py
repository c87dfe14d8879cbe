"""Rows to fit and rows to hold out: by a column, or by a hash of the id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.arrow import empty_batch
from redcal_spark.core.cells import Hashes, mix
from redcal_spark.core.columns import is_text
from redcal_spark.core.fixed_point import Mask, exact
from redcal_spark.errors import InputError, UsageError

SPLITS = {"fit": "fitted", "holdout": "holdout"}  # as people call their rows
FNV_PRIME = np.uint64(0x100000001B3)


@dataclass(frozen=True)
class ColumnSplit:
    """Rows whose column holds `fit` are fitted, those with `holdout` held out, others neither."""

    column: str
    fit: Any
    holdout: Any

    @property
    def rule(self) -> str:
        """What it goes by, for people."""
        return (
            f"rows with {self.fit!r} in column {self.column!r} are fitted, those with "
            f"{self.holdout!r} held out"
        )

    def masks(self, batch: pa.RecordBatch) -> tuple[Mask, Mask]:
        column = batch.column(self.column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return self._equal(column, self.fit), self._equal(column, self.holdout)

    def _equal(self, column: pa.Array, value: Any) -> Mask:
        try:
            same = pc.equal(column, pa.scalar(value, column.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as err:
            raise InputError(
                f"split column {self.column!r} has type {column.type} and cannot hold {value!r}"
            ) from err
        return np.asarray(same.fill_null(False).to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class HashSplit:
    """A fraction of rows, chosen by a hash of the id, is held out; the others are fitted."""

    id: str
    fraction: float
    salt: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise UsageError(f"fraction: must be in [0, 1], got {self.fraction!r}")

    @property
    def column(self) -> str:
        return self.id

    @property
    def rule(self) -> str:
        """What it goes by, for people."""
        return f"rows with the same {self.id!r} stay together: do its values tell rows apart?"

    def masks(self, batch: pa.RecordBatch) -> tuple[Mask, Mask]:
        hashes = hash_column(batch.column(self.id), self.id, self.salt)
        bound = int(exact(self.fraction) * 2**64 // 1)
        # 2^64 itself, of the fraction 1, is above every hash and no uint64
        holdout = hashes < np.uint64(bound) if bound < 2**64 else np.ones(len(hashes), np.bool_)
        return ~holdout, holdout


@dataclass(frozen=True)
class HoldoutOnly:
    """Every row is held out: nothing is fitted, a model is looked at. column: any that is read."""

    column: str
    rule = "every row is held out"

    def masks(self, batch: pa.RecordBatch) -> tuple[Mask, Mask]:
        return np.zeros(batch.num_rows, np.bool_), np.ones(batch.num_rows, np.bool_)


Split = ColumnSplit | HashSplit | HoldoutOnly


def check_split(split: Split, schema: pa.Schema, where: str) -> None:
    """Refuse a table that cannot be split so."""
    if split.column not in schema.names:
        raise InputError(
            f"column {split.column!r} not found in {where}; it has: {', '.join(schema.names)}"
        )
    split.masks(empty_batch(pa.schema([schema.field(split.column)])))


def hash_column(column: pa.Array, name: str, salt: str) -> Hashes:
    """64-bit hashes of integers or text (nulls hash as 0 or as empty text), to the bit as
    docs/reference/split.md says, for good: rows that were held out must stay so."""
    seed = _seed(salt)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        whole = column.cast(pa.int64(), safe=False).fill_null(0)
        return mix(whole.to_numpy(zero_copy_only=False).view(np.uint64) ^ seed)
    if not (pa.types.is_null(column.type) or is_text(column.type)):
        raise InputError(
            f"id column {name!r} has type {column.type}; a split by hash needs integers or text: "
            "cast it to text"
        )
    text = column.cast(pa.large_string()).fill_null("")
    if not len(text):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    buffer = text.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    hashes = np.full(len(text), seed, np.uint64)
    alive = np.flatnonzero(lengths > 0)
    place = 0
    while len(alive):  # FNV-1a over the bytes of all rows at once
        byte = data[offsets[alive] + place].astype(np.uint64)
        hashes[alive] = (hashes[alive] ^ byte) * FNV_PRIME
        place += 1
        alive = alive[lengths[alive] > place]
    return mix(hashes ^ lengths.astype(np.uint64))


def hash_bytes(rows: npt.NDArray[np.uint8], salt: str) -> Hashes:
    """The same hash of texts that are all as long: a row of bytes each."""
    hashes = np.full(len(rows), _seed(salt), np.uint64)
    for place in range(rows.shape[1]):
        hashes ^= rows[:, place]
        hashes *= FNV_PRIME
    return mix(hashes ^ np.uint64(rows.shape[1]))


def _seed(salt: str) -> np.uint64:
    digest = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))

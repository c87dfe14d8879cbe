"""Two tables compared as multisets of rows, wherever they are, in any order.

Every row falls into a bucket by its key: its id, or all of it where there is none. Per bucket the
hashes of whole rows are added up: of single cells they would not show two rows of one id that
exchange one. Equal sums: equal rows. Of buckets that differ the rows are fetched, and `differences`
says which cells are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redcal_spark.core.arrow import Batches
from redcal_spark.core.cells import Hashes, cell_hashes, combined, mix

BITS = 7  # of a key that choose its bucket
BUCKETS = 1 << BITS
LEVELS = 64 // BITS
ROWS = 2**20  # at a time, at most: sums of halves of hashes stay exact in float64
FETCHED = 20_000  # rows of buckets that differ, about

Sums = npt.NDArray[np.uint64]  # buckets x 2: how many rows, and the sum of their hashes


@dataclass(frozen=True)
class Keyed:
    """Which columns are compared, and what rows are told apart by; none: by all of them.

    path: only rows whose keys begin so, BITS a number. Columns that a table has not are null.
    """

    columns: tuple[str, ...]
    id: str | None = None
    path: tuple[int, ...] = ()

    def below(self, bucket: int) -> Keyed:
        return Keyed(self.columns, self.id, (*self.path, bucket))

    def hashes(self, batch: pa.RecordBatch) -> tuple[Hashes, Hashes, Sums]:
        """The keys of the rows that are meant, the hashes of the rows, and where they are."""
        cells = [cell_hashes(_column(batch, name)) for name in self.columns]
        rows = combined(cells) if cells else np.zeros(batch.num_rows, np.uint64)
        keys = rows if self.id is None else mix(cell_hashes(batch.column(self.id)))
        if not self.path:
            return keys, rows, np.arange(len(keys), dtype=np.uint64)
        first = 0
        for bucket in self.path:
            first = (first << BITS) | bucket
        shift = np.uint64(64 - BITS * len(self.path))
        chosen = np.flatnonzero(keys >> shift == np.uint64(first))
        return keys[chosen], rows[chosen], chosen.astype(np.uint64)

    def bucket(self, keys: Hashes) -> npt.NDArray[np.intp]:
        shift = np.uint64(64 - BITS * (len(self.path) + 1))
        return ((keys >> shift) & np.uint64(BUCKETS - 1)).astype(np.intp)


def nothing() -> Sums:
    return np.zeros((BUCKETS, 2), np.uint64)


def sums(keyed: Keyed, batches: Batches) -> Sums:
    """They add up, modulo 2^64."""
    total = nothing()
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            keys, rows, _ = keyed.hashes(batch.slice(start, ROWS))
            bucket = keyed.bucket(keys)
            total[:, 0] += np.bincount(bucket, minlength=BUCKETS).astype(np.uint64)
            total[:, 1] += _added(bucket, mix(rows))
    return total


def _added(bucket: npt.NDArray[np.intp], hashes: Hashes) -> Sums:
    low = np.bincount(bucket, (hashes & np.uint64(2**32 - 1)).astype(np.float64), BUCKETS)
    high = np.bincount(bucket, (hashes >> np.uint64(32)).astype(np.float64), BUCKETS)
    return np.asarray(low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32)))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    place = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if place < 0 else batch.column(place)


@dataclass(frozen=True)
class SumTask:
    """The sums of a share of the rows, as one row; for threads and for Spark's workers.

    names: of the columns, where they travel without.
    """

    keyed: Keyed
    names: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total = sums(self.keyed, (_named(batch, self.names) for batch in batches))
        yield pa.record_batch([pa.array([total.tobytes()], pa.binary())], names=["sums"])


@dataclass(frozen=True)
class FetchTask:
    """The rows of some buckets, as they are."""

    keyed: Keyed
    buckets: frozenset[int]
    names: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        wanted = np.isin(np.arange(BUCKETS), list(self.buckets))
        for batch in batches:
            keys, _, place = self.keyed.hashes(_named(batch, self.names))
            chosen = place[wanted[self.keyed.bucket(keys)]]
            if len(chosen):
                yield batch.take(pa.array(chosen))


CompareTask = SumTask | FetchTask


def _named(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    return batch.rename_columns(list(names)) if names else batch


def unpacked(batches: Batches) -> Sums:
    """All that `SumTask` gave, added up."""
    total = nothing()
    for batch in batches:
        for cell in batch.column(0):
            total += np.frombuffer(cell.as_buffer(), np.uint64).reshape(total.shape)
    return total


@dataclass(frozen=True)
class BucketGap:
    """Where two tables differ: some buckets below a path, and whether there are others."""

    keyed: Keyed
    buckets: frozenset[int]
    more: bool

    @property
    def too_wide(self) -> bool:
        """A single bucket with more rows than should be fetched: look into it first."""
        return not self.buckets


def gap(keyed: Keyed, expected: Sums, written: Sums) -> BucketGap | None:
    """The first buckets that differ; None if none do.

    If the first has too many rows to fetch, no buckets and the path to look into.
    """
    apart = np.flatnonzero((expected != written).any(axis=1))
    if not len(apart):
        return None
    rows = np.maximum(expected[apart, 0], written[apart, 0])
    if rows[0] > FETCHED and len(keyed.path) < LEVELS - 1:
        return BucketGap(keyed.below(int(apart[0])), frozenset(), len(apart) > 1)
    some = max(1, int(np.searchsorted(np.cumsum(rows), np.uint64(FETCHED), side="right")))
    return BucketGap(keyed, frozenset(apart[:some].tolist()), some < len(apart))

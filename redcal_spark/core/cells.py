"""Cells as 64-bit hashes: equal values have equal ones, whatever Arrow type holds them.

For comparing tables column by column without holding them: sums of hashes do not depend on the
order of rows, add up over workers, and are equal for other values by a chance of 2^-64. They are
no seals: who means to can find values that collide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.core.columns import is_text

Hashes = npt.NDArray[np.uint64]

NULL = np.uint64(0x6A09E667F3BCC909)
KINDS = ("bool", "integer", "fraction", "decimal", "date", "zoned", "moment", "text", "bytes")
SALT = {name: np.uint64((k + 1) * 0x9E3779B97F4A7C15 % 2**64) for k, name in enumerate(KINDS)}
TEXT_BYTES = 2**21  # of texts at a time: every byte takes 24 more while it is hashed
LONG = 2**16  # bytes from which on a text is hashed by itself
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def mix(x: Any) -> Hashes:
    """splitmix64's finaliser: every bit of the input moves every bit of the output."""
    x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = x ^ (x >> np.uint64(31))
    return mixed


def salt(place: int) -> Hashes:
    """Tells equal values at different places apart."""
    return mix(np.full(1, place + 1, np.uint64))


def cell_hashes(column: Any) -> Hashes:
    """One hash a row."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of no chunks, or of too many bytes for one
            parts = [cell_hashes(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL)
    hashes = _known(column)
    if not column.null_count:
        return hashes
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, hashes, NULL)


def combined(parts: Sequence[Hashes]) -> Hashes:
    """One hash of several, in their order."""
    total = np.zeros(len(parts[0]) if parts else 0, np.uint64)
    for place, part in enumerate(parts):
        total += mix(part ^ salt(place))
    return mix(total)


def _known(column: pa.Array) -> Hashes:
    """Of values; what stands for null makes no difference."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _numbers(column.cast(pa.int8()), "bool")
    if pa.types.is_uint64(kind):  # as Delta keeps it
        column, kind = column.cast(pa.decimal128(20, 0)), pa.decimal128(20, 0)
    if pa.types.is_integer(kind):
        return _numbers(column, "integer")
    if pa.types.is_floating(kind):
        return _fractions(column)
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_timestamp(kind):
        ticks = _ticks(column)
        # Delta keeps microseconds, and delta-rs cuts off what is below: towards 0, before 1970 too
        cut = (ticks + 999 * (ticks < 0)) // 1_000
        units = cut if kind.unit == "ns" else ticks * MICROS[kind.unit]
        return mix(units.view(np.uint64) ^ SALT["moment" if kind.tz is None else "zoned"])
    if pa.types.is_date(kind):
        return _numbers(column.cast(pa.date32()).cast(pa.int32()), "date")
    if pa.types.is_temporal(kind):
        return mix(_ticks(column).view(np.uint64))
    if pa.types.is_struct(kind):
        fields = column.flatten()
        if not fields:
            return np.zeros(len(column), np.uint64)
        return combined([cell_hashes(field) for field in fields])
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        return _lists(pa.ListArray.from_arrays(column.offsets, entries), ordered=False)
    if pa.types.is_nested(kind):
        return _lists(column)
    if is_text(kind):
        return _texts(column.cast(pa.large_string()), "text")
    if not pa.types.is_fixed_size_binary(kind):
        return _texts(column.cast(pa.large_binary()), "bytes")
    return _texts(column.cast(pa.binary()).cast(pa.large_binary()), "bytes")


def _numbers(column: pa.Array, kind: str) -> Hashes:
    whole = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return mix(whole.view(np.uint64) ^ SALT[kind])


def _ticks(column: pa.Array) -> npt.NDArray[np.int64]:
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    ticks = column.view(width).cast(pa.int64()).fill_null(0)
    return np.asarray(ticks.to_numpy(zero_copy_only=False), np.int64)


def _fractions(column: pa.Array) -> Hashes:
    """By their bits, but all that is not a number is one."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    values = np.array(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    values[np.isnan(values)] = np.nan
    return mix(values.view(np.uint64) ^ SALT["fraction"])


def _decimals(column: pa.Array) -> Hashes:
    kind = column.type
    if not pa.types.is_decimal128(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
    column = pa.concat_arrays([column])  # a slice has the buffers of the whole
    words = np.frombuffer(column.buffers()[1], np.uint64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    scale = np.uint64(kind.scale % 2**64)
    return mix(words[:, 0] ^ mix(words[:, 1] ^ SALT["decimal"] ^ scale))


def _lists(column: pa.Array, ordered: bool = True) -> Hashes:
    """Of the elements with their places, and of how many there are."""
    lengths = np.asarray(
        pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64
    )
    elements = cell_hashes(column.flatten())
    ends = np.cumsum(lengths)
    if ordered:
        place = np.arange(len(elements)) - np.repeat(ends - lengths, lengths)
        elements = elements ^ mix(place.astype(np.uint64))
    return _summed(mix(elements), ends, lengths)


def _summed(parts: Hashes, ends: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    """Sums over stretches that follow each other, modulo 2^64."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)])
    return mix((total[ends] - total[ends - lengths]) ^ mix(lengths.astype(np.uint64)))


def _texts(column: pa.Array, kind: str) -> Hashes:
    if not len(column):
        return np.zeros(0, np.uint64)
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[column.offset : column.offset + len(column) + 1]
    if offsets[-1] - offsets[0] > TEXT_BYTES and len(column) > 1:
        half = len(column) // 2
        return np.concatenate([_texts(column[:half], kind), _texts(column[half:], kind)])
    data = np.zeros(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    lengths = np.diff(offsets)
    long = np.flatnonzero(lengths > LONG)
    if len(long) == len(column):
        cells = (data[a:b] for a, b in pairwise(offsets.tolist()))
        digests = [hashlib.blake2b(cell.tobytes(), digest_size=8).digest() for cell in cells]
        return mix(np.frombuffer(b"".join(digests), np.uint64) ^ SALT[kind])
    if len(long):
        hashes = np.zeros(len(column), np.uint64)
        short = np.flatnonzero(lengths <= LONG)
        for chosen in (long, short):
            hashes[chosen] = _texts(column.take(pa.array(chosen)), kind)
        return hashes
    signs = data[offsets[0] : offsets[-1]].astype(np.uint64)
    place = np.arange(len(signs)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    parts = mix(signs | (place.astype(np.uint64) << np.uint64(8)))
    return mix(_summed(parts, offsets[1:] - offsets[0], lengths) ^ SALT[kind])

"""Splits: one hash for every platform and type, and the right share of rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark import Reconciler
from redcal_spark.core.splits import ColumnSplit, HashSplit, hash_column
from redcal_spark.errors import InputError, UsageError
from tests.helpers import gather, refused
from tests.problems import ZERO_ONE

MASK = 2**64 - 1


def seed_of(salt: str) -> int:
    return int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=8).digest(), "little")


def mix(x: int) -> int:
    """The finaliser of splitmix64, in Python integers."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def plain_hash(value: int | str | None, salt: str = "") -> int:
    """FNV-1a over the bytes of text, or the integer itself; then mixed."""
    seed = seed_of(salt)
    if isinstance(value, int):
        return mix((value & MASK) ^ seed)
    data = (value or "").encode()
    state = seed
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return mix(state ^ len(data))


INTEGERS = [0, 1, 2, 41, -1, -(2**63), 2**63 - 1, 10**12]
TEXTS = ["", "a", "b", "ab", "case-17", "naïve", "雪", "x" * 300, "a\0"]


def test_the_finaliser_is_splitmix64() -> None:
    # The first outputs of splitmix64 from the state 0, as published with the generator.
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


@pytest.mark.parametrize("salt", ["", "2024", "ü"])
def test_hashes_are_those_of_plain_python(salt: str) -> None:
    found = hash_column(pa.array(INTEGERS, pa.int64()), "id", salt)
    assert found.tolist() == [plain_hash(x, salt) for x in INTEGERS]
    found = hash_column(pa.array([*TEXTS, None]), "id", salt)
    assert found.tolist() == [plain_hash(x, salt) for x in [*TEXTS, None]]


def test_a_few_pinned_values() -> None:
    """So that a change of both implementations would show: rows must never change sides."""
    integers = [0x49DF6BF9D4874F40, 0x22B0DD3637A60107, 0x523988D68E1F17E2]
    texts = [0x49DF6BF9D4874F40, 0x63D0C5C07E2C6441, 0x264D084C12545A84]
    assert hash_column(pa.array([0, 1, -1]), "id", "").tolist() == integers
    assert hash_column(pa.array(["", "a", "case-17"]), "id", "").tolist() == texts


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()], ids=str
)
def test_every_width_of_integers_hashes_alike(kind: pa.DataType) -> None:
    values = [0, 1, 2, 41, 100]
    expected = [plain_hash(x) for x in values]
    column = pa.array(values, kind)
    assert hash_column(column, "id", "").tolist() == expected
    assert hash_column(column.dictionary_encode(), "id", "").tolist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_every_kind_of_text_hashes_alike(kind: pa.DataType) -> None:
    column = pa.array([*TEXTS, None, *TEXTS], kind)
    expected = [plain_hash(x) for x in [*TEXTS, None, *TEXTS]]
    assert hash_column(column, "id", "").tolist() == expected
    assert hash_column(column.dictionary_encode(), "id", "").tolist() == expected
    for start in range(0, len(column), 4):  # slices share buffers with an offset
        part = column.slice(start, 5)
        assert hash_column(part, "id", "").tolist() == expected[start : start + 5]
    assert hash_column(column.slice(0, 0), "id", "").tolist() == []


def test_chunk_boundaries_do_not_matter() -> None:
    split = HashSplit("id", 0.3)
    table = pa.table({"id": [f"case-{i}" for i in range(500)]})
    whole = split.masks(table.to_batches()[0])[1]
    parts = [split.masks(batch)[1] for batch in table.to_batches(max_chunksize=7)]
    assert np.concatenate(parts).tolist() == whole.tolist()


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("text", [False, True])
def test_about_the_right_fraction_is_held_out(fraction: float, text: bool) -> None:
    n = 40_000
    ids: Any = [f"id{i}" for i in range(n)] if text else list(range(n))
    batch = pa.RecordBatch.from_pydict({"id": ids})
    fit, holdout = HashSplit("id", fraction).masks(batch)
    assert np.array_equal(fit, ~holdout)
    spread = 5 * (fraction * (1 - fraction) / n) ** 0.5
    assert abs(holdout.mean() - fraction) < spread
    other = HashSplit("id", fraction, "another salt").masks(batch)[1]
    both = fraction**2
    assert abs((holdout & other).mean() - both) < 5 * (both * (1 - both) / n) ** 0.5


def test_nothing_and_everything_can_be_held_out() -> None:
    """2^64 is no uint64: the fraction 1 used to overflow."""
    batch = pa.RecordBatch.from_pydict({"id": list(range(50))})
    for fraction, all_of_them in ((0.0, False), (1.0, True), (1, True)):
        fit, holdout = HashSplit("id", fraction).masks(batch)
        assert set(holdout.tolist()) == {all_of_them}
        assert set(fit.tolist()) == {not all_of_them}


@pytest.mark.parametrize("fraction", [-0.1, 1.0000001, float("nan"), float("inf")])
def test_fractions_that_are_none(fraction: float) -> None:
    told = refused(UsageError, lambda: HashSplit("id", fraction))
    assert told == f"fraction: must be in [0, 1], got {fraction!r}"


def test_the_bound_is_exact() -> None:
    ids = list(range(200))
    holdout = HashSplit("id", 0.1).masks(pa.RecordBatch.from_pydict({"id": ids}))[1]
    assert holdout.tolist() == [10 * plain_hash(i) < 2**64 for i in ids]


def test_ids_that_cannot_be_hashed() -> None:
    assert refused(InputError, lambda: hash_column(pa.array([0.5]), "case", "")) == (
        "id column 'case' has type double; a split by hash needs integers or text: cast it to text"
    )


@pytest.mark.parametrize("encode", [False, True])
def test_a_split_column(encode: bool) -> None:
    column = pa.array(["train", "test", None, "other", "train"])
    batch = pa.RecordBatch.from_pydict({"part": column.dictionary_encode() if encode else column})
    fit, holdout = ColumnSplit("part", "train", "test").masks(batch)
    assert fit.tolist() == [True, False, False, False, True]
    assert holdout.tolist() == [False, True, False, False, False]


def test_a_split_column_of_another_type() -> None:
    batch = pa.RecordBatch.from_pydict({"part": [1, 2]})
    assert refused(InputError, lambda: ColumnSplit("part", "train", 2).masks(batch)) == (
        "split column 'part' has type int64 and cannot hold 'train'"
    )


def test_what_is_gathered_for_each_side() -> None:
    model = Reconciler(losses=ZERO_ONE, alpha=0.1, eta=0.1, on_bad_rows="skip")
    table = pa.table(
        {
            "model_1": [0.1, 0.2, 0.3, 0.4, 7.0, 0.5],
            "model_2": [0.9] * 6,
            "label": [0, 1, None, 1, 1, 0],
            "part": ["fit", "holdout", "fit", "none", "fit", "holdout"],
        }
    )
    split = ColumnSplit("part", "fit", "holdout")
    found, _ = gather(model, table.to_batches(), table.schema, split)
    assert (found.fit.rows, found.holdout.rows, found.unused) == (1, 2, 1)
    assert (found.rows, found.bad, found.unlabelled) == (6, 1, 1)

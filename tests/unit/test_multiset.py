"""Tables compared as multisets: hashes of cells, sums, and what differs, against plain Python."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark.core import multiset
from redcal_spark.core.cells import cell_hashes
from redcal_spark.core.differences import Difference, differences
from redcal_spark.core.multiset import FetchTask, Keyed, SumTask, gap, sums, unpacked

MOMENT = datetime(2020, 1, 2, 3, 4, 5, 6, UTC)
MAP = pa.map_(pa.string(), pa.int32())
NAN = float("nan")

# One column in the types that two stores may give it.
SAME: dict[str, list[pa.Array]] = {
    "text": [
        pa.array(["a", None, "", "bcd"], kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    + [pa.array(["a", None, "", "bcd"]).dictionary_encode()],
    "slices": [pa.array(["x", "a", None, "bcd"])[1:], pa.array(["a", None, "bcd"])],
    "bytes": [pa.array([b"ab", None], kind) for kind in (pa.binary(), pa.binary(2))],
    "integers": [pa.array([1, None, 3], kind) for kind in (pa.uint8(), pa.int16(), pa.int64())],
    "large": [
        pa.array([1, None, 2**63 + 5], pa.uint64()),
        pa.array([Decimal(1), None, Decimal(2**63 + 5)], pa.decimal128(20, 0)),
        pa.array([None, Decimal(1), None, Decimal(2**63 + 5)], pa.decimal128(38, 0))[1:],
    ],
    "fractions": [pa.array([0.5, None, NAN], kind) for kind in (pa.float32(), pa.float64())],
    "lists": [
        pa.array([[1.0, 2.0], None, [3.0, None]], kind)
        for kind in (
            pa.list_(pa.float64()),
            pa.large_list(pa.float64()),
            pa.list_(pa.float64(), 2),
        )
    ],
    "moments": [
        pa.array([MOMENT, None], pa.timestamp(unit, zone))
        for unit, zone in (("us", "UTC"), ("ns", "Europe/Berlin"))
    ],
    "maps": [
        pa.array([[("a", 1), ("b", 2)], None, []], MAP),
        pa.array([[("b", 2), ("a", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
    ],
    "structs": [
        pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", kind), ("b", pa.string())]))
        for kind in (pa.int32(), pa.int64())
    ],
}


@pytest.mark.parametrize("name", SAME)
def test_how_arrow_holds_a_value_makes_no_difference(name: str) -> None:
    first, *others = (cell_hashes(column).tolist() for column in SAME[name])
    assert all(other == first for other in others)
    assert len(set(first)) == len(first)


@pytest.mark.parametrize(
    "values",
    [
        ["ab", "ba", "a", "b", "", None, "\0", "\0\0"],
        [0.0, -0.0, 1.0, None, NAN, float(np.nextafter(1.0, 2.0))],
        [[1, 2], [2, 1], [1], [], None, [1, None], [1, 2, 0]],
        [{"a": 1, "b": None}, {"a": None, "b": 1}, None, {"a": None, "b": None}],
        ["x" * 70_000, "x" * 70_001, "y" + "x" * 69_999, "x"],
    ],
)
def test_other_values_have_other_hashes(values: list[Any]) -> None:
    assert len(set(cell_hashes(pa.array(values)).tolist())) == len(values)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    kinds = (pa.int64(), pa.string(), pa.list_(pa.float64()))
    names = ("id", "text", "scores")
    return pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})


def some(count: int, seed: int) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    return [(i, rng.choice("abc"), [rng.random(), rng.random()]) for i in range(count)]


@pytest.mark.parametrize("id", ["id", None])
def test_sums_do_not_depend_on_order_or_batches(id: str | None) -> None:
    rows = some(500, 1)
    keyed = Keyed(("id", "text", "scores"), id)
    whole = sums(keyed, table(rows).to_batches())
    random.Random(2).shuffle(rows)
    parts = [SumTask(keyed)(table(rows[a : a + 7]).to_batches()) for a in range(0, 500, 7)]
    assert (unpacked([batch for part in parts for batch in part]) == whole).all()
    assert gap(keyed, whole, whole) is None
    assert int(whole[:, 0].sum()) == 500


@pytest.mark.parametrize("id", ["id", None])
@pytest.mark.parametrize("what", ["cell", "swapped", "removed", "doubled"])
def test_what_differs_is_found_however_deep(
    monkeypatch: pytest.MonkeyPatch, id: str | None, what: str
) -> None:
    monkeypatch.setattr(multiset, "FETCHED", 3)  # so that buckets are looked into
    rows = some(3_000, 3)
    other = list(rows)
    if what == "cell":
        other[77] = (77, "z", rows[77][2])
    elif what == "swapped":  # the columns have the same values, on other rows
        other[77], other[78] = (77, *rows[78][1:]), (78, *rows[77][1:])
    elif what == "removed":
        del other[77]
    else:
        other.append(other[77])
    keyed = Keyed(("id", "text", "scores"), id)
    levels = 0
    while True:
        found = gap(keyed, *(sums(keyed, table(t).to_batches()) for t in (rows, other)))
        assert found is not None
        if not found.too_wide:
            break
        keyed, levels = found.keyed, levels + 1
    assert levels > 0
    task = FetchTask(keyed, found.buckets)
    fetched = [list(task(table(t).to_batches())) for t in (rows, other)]
    there = {row["id"] for side in fetched for batch in side for row in batch.to_pylist()}
    assert there & {77, 78}
    assert len(there) < 20


@pytest.mark.parametrize("key", [7, None])
def test_rows_of_one_id_that_exchange_a_cell(key: int | None) -> None:
    """Every column has the same values under that id as before."""
    rows = [(key, "a", [0.5]), (key, "b", [0.5]), (key, "a", [0.25]), (8, "c", [1.0])]
    other = [(key, "a", [0.25]), (key, "b", [0.5]), (key, "a", [0.5]), (8, "c", [1.0])]
    keyed = Keyed(("id", "text", "scores"), "id")
    first = sums(keyed, table(rows).to_batches())
    assert gap(keyed, first, sums(keyed, table(other).to_batches())) is None  # in another order
    other = [(key, "b", [0.25]), (key, "a", [0.5]), (key, "a", [0.5]), (8, "c", [1.0])]
    assert gap(keyed, first, sums(keyed, table(other).to_batches())) is not None


def test_differences_are_those_of_a_plain_comparison() -> None:
    rows = some(40, 5)
    other = list(rows)
    other[3] = (3, "z", rows[3][2])
    other[10] = (99, *rows[10][1:])
    other[20] = (20, rows[20][1], [rows[20][2][0], -0.0])
    del other[30]
    other.append(rows[5])
    other.append((1_000, "new", [0.1]))
    random.Random(6).shuffle(other)
    found = differences(table(rows), table(other), ["id", "text", "scores"], ["id"])
    assert {(one.problem, one.row["id"], one.column) for one in found} == {
        ("changed", 3, "text"),
        ("changed", 10, "id"),
        ("changed", 20, "scores"),
        ("missing", 30, None),
        ("repeated", 5, None),
        ("extra", 1_000, None),
    }
    [cell] = [one for one in found if one.column == "text"]
    assert str(cell) == f"column 'text', row id = 3: is 'z', must be {rows[3][1]!r}"


def test_very_many_changes_are_still_told_by_their_rows() -> None:
    rows = some(1_000, 7)
    other = [(i, "z", scores) for i, _, scores in rows]
    found = differences(table(rows), table(other), ["id", "text", "scores"], ["id"])
    assert len(found) == 1_000
    assert {(one.problem, one.column) for one in found} == {("changed", "text")}
    assert isinstance(found[0], Difference)


def test_values_that_change_places_within_a_bucket_are_seen() -> None:
    keyed = Keyed(("id", "text", "scores"), "id")
    rows = some(300, 8)
    [batch] = table(rows).to_batches()
    buckets = keyed.bucket(keyed.hashes(batch)[0]).tolist()
    one, two = next(
        (i, j)
        for i in range(300)
        for j in range(i)
        if buckets[i] == buckets[j] and rows[i][1] != rows[j][1]
    )
    other = list(rows)
    other[one] = (rows[one][0], rows[two][1], rows[one][2])
    other[two] = (rows[two][0], rows[one][1], rows[two][2])
    assert gap(keyed, *(sums(keyed, table(t).to_batches()) for t in (rows, other))) is not None

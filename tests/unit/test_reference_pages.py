"""The pages in docs/reference: their code is taken from them and run against the package."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark.errors import InputError
from redcal_spark.splits import HashSplit, hash_column
from tests.helpers import DRAWN, refused

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def code_of(page: str) -> tuple[str, dict[str, Any]]:
    """The one block of Python of a page, and what it defines."""
    [code] = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    return code, names


def imported(code: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


# --- split.md -------------------------------------------------------------------------------------

IDS: dict[str, tuple[list[Any], pa.DataType]] = {
    "tinyint": ([0, 1, -1, 127, -128], pa.int8()),
    "int": ([0, 7, -7, 2**31 - 1, -(2**31)], pa.int32()),
    "bigint": ([0, 7, -7, 2**63 - 1, -(2**63), 123456789], pa.int64()),
    "unsigned": ([0, 7, 2**63, 2**64 - 1], pa.uint64()),
    "text": (["", "7", "-7", "a", "A", " a", "é", "e\u0301", "日本", "🜁", "x" * 999], pa.string()),
    "large text": (["", "case-1", "ß"], pa.large_string()),
    "view": (["", "case-1", "longer than twelve bytes"], pa.string_view()),
    "category": (["u", "v", "u"], pa.dictionary(pa.int8(), pa.string())),
    "category of numbers": ([7, -7, 7], pa.dictionary(pa.int8(), pa.int64())),
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("salt", ["", "tune", "Größe"])
def test_the_hash_of_every_type(kind: str, salt: str) -> None:
    _, page = code_of("split.md")
    values, type_ = IDS[kind]
    found = hash_column(pa.array(values, type_), "id", salt).tolist()
    assert found == [page["split_hash"](value, salt) for value in values]


def test_the_hash_never_changes() -> None:
    """As the first release had them: rows that it held out must stay so."""
    _, page = code_of("split.md")
    for value, salt, known in (
        (0, "", 0x49DF6BF9D4874F40),
        (-1, "", 0x523988D68E1F17E2),
        ("case-1", "", 0xABBDB2E258034374),
        ("日本", "x", 0x0CB4DE66FF13A050),
    ):
        assert page["split_hash"](value, salt) == known, (value, salt)


ids = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1) | st.lists(
    st.text(st.characters(exclude_categories=["Cs"])), min_size=1
)


@DRAWN
@given(ids, st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
def test_the_rows_that_are_held_out(values: list[Any], fraction: float, salt: str) -> None:
    _, page = code_of("split.md")
    fit, holdout = HashSplit("id", fraction, salt).masks(pa.record_batch({"id": pa.array(values)}))
    expected = [page["is_holdout"](value, fraction, salt) for value in values]
    assert holdout.tolist() == expected
    assert (~fit).tolist() == expected


@pytest.mark.parametrize("fraction", [0.1, 0.5, 1 / 3, 1e-5, 0.0, 1.0])
def test_many_rows_by_the_decimal_that_was_written(fraction: float) -> None:
    _, page = code_of("split.md")
    values = list(range(-20_000, 20_000))
    batch = pa.record_batch({"id": pa.array(values)})
    _, holdout = HashSplit("id", fraction).masks(batch)
    assert holdout.tolist() == [page["is_holdout"](value, fraction) for value in values]
    assert abs(sum(holdout.tolist()) / 40_000 - fraction) < 0.01  # 4 standard errors


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.decimal128(10, 2), pa.float64(), pa.date32(), pa.timestamp("us", "UTC")),
        *(pa.bool_(), pa.binary()),
    ],
)
def test_other_types_are_refused_as_the_page_says(type_: pa.DataType) -> None:
    schema = pa.schema([("id", type_)])
    told = refused(InputError, lambda: HashSplit("id", 0.5).check(schema, "the data"))
    assert told == (
        f"id column 'id' has type {type_}; a split by hash needs integers or text: cast it to text"
    )


def test_the_reference_of_the_split_needs_the_standard_library_alone() -> None:
    code, _ = code_of("split.md")
    assert imported(code) == {"hashlib", "fractions"}

"""What Spark would refuse only after the fit is seen before it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from redcal_spark.errors import UsageError
from redcal_spark.store.spark_targets import check_names, is_mapped
from redcal_spark.store.targets import Existing, Target, check_append_only

PLAIN = pa.schema([("case", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.struct([("a b", pa.int64())]), "'c.a b'"),
        (pa.list_(pa.struct([("x", pa.struct([("y,z", pa.int64())]))])), "'c.element.x.y,z'"),
        (pa.map_(pa.string(), pa.struct([("(v)", pa.int64())])), "'c.value.(v)'"),
        (pa.map_(pa.struct([("k=", pa.int64())]), pa.string()), "'c.key.k='"),
    ],
)
def test_odd_names_inside_columns(kind: pa.DataType, named: str) -> None:
    schema = pa.schema([("c", kind)])
    with pytest.raises(UsageError, match="columnMapping") as told:
        check_names(Target(table="t"), schema, None)
    assert named in str(told.value)
    mapped = Existing(schema, any_name=True)
    check_names(Target(table="t"), schema, mapped)


def test_dots_and_quotes_are_not_odd() -> None:
    check_names(Target(table="t"), pa.schema([('a."b', pa.struct([("c.d", pa.int64())]))]), None)


def test_a_mapping_that_was_switched_off_is_none() -> None:
    assert is_mapped({"delta.columnMapping.mode": "id"})
    assert not is_mapped({"delta.columnMapping.mode": "none"})
    assert not is_mapped({})


def test_a_table_that_takes_new_rows_only() -> None:
    old = Existing(PLAIN, append_only=True)
    for mode in ("merge", "overwrite"):
        with pytest.raises(UsageError, match=r"delta\.appendOnly.*output\.mode: append"):
            check_append_only(Target(table="t", mode=mode), old)
    check_append_only(Target(table="t", mode="append"), old)
    check_append_only(Target(table="t"), None)

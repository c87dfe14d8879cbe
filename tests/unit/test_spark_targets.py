"""What Spark would refuse only after the fit is seen before it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from redcal_spark.backends.location import Location
from redcal_spark.backends.spark.tables import check_collations
from redcal_spark.backends.spark.targets import check_names, check_numbered, is_mapped
from redcal_spark.backends.target import Existing, Target, check_append_only
from redcal_spark.errors import InputError, UsageError
from tests.delta_logs import column, write_log

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


def test_an_identity_column_that_takes_no_values(tmp_path: Path) -> None:
    told = {"delta.identity.start": 1, "delta.identity.step": 1}
    table = str(tmp_path / "t")
    for explicit in (False, True):
        number = column("no", "long", **told, **{"delta.identity.allowExplicitInsert": explicit})
        write_log(table, [column("case", "long"), number], writers=6)
        if explicit:
            check_numbered(Target(table=table), Location(table))
        else:
            with pytest.raises(UsageError, match=r"'no'.*IDENTITY.*name another table"):
                check_numbered(Target(table=table), Location(table))
    check_numbered(
        Target(table="t"), Location(str(tmp_path / "none"))
    )  # what cannot be seen is left to Spark


@pytest.mark.parametrize(
    "kind",
    [
        StringType("UTF8_LCASE"),
        ArrayType(StringType("UTF8_LCASE")),
        MapType(StringType(), StringType("UTF8_LCASE")),
        MapType(StringType("UTF8_LCASE"), StringType()),
        StructType([StructField("x", StringType("UTF8_LCASE"))]),
    ],
)
def test_texts_with_a_collation(kind: DataType) -> None:
    with pytest.raises(InputError, match=r"t: column 'c' has type .*collate UTF8_LCASE.*cast it"):
        check_collations("t", StructType([StructField("c", kind)]))


def test_texts_without_one() -> None:
    named = StructType([StructField("x collate y", StringType("UTF8_BINARY"))])
    check_collations("t", StructType([StructField("c", StringType()), StructField("d", named)]))

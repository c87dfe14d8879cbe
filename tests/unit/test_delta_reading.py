"""Delta tables as others write them: the local engine reads them right, or refuses them by name."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.delta_protocol import UnsupportedTable
from redcal_spark.backends.local import files
from redcal_spark.backends.local.delta_columns import StoredColumns
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target
from redcal_spark.errors import InputError, RedcalError, RunError, UsageError
from tests.delta_logs import (
    array_of,
    column,
    deletion_vector,
    file_of,
    map_of,
    mapped,
    struct_of,
    write_log,
)
from tests.helpers import repeated

STORE = DeltaRsStore()
COMMIT = Commit("run-1", "print-1")
BY_NAME = {"delta.columnMapping.mode": "name"}
BY_ID = {"delta.columnMapping.mode": "id"}
PLAIN = [column("id", "long"), column("y", "long")]
ROWS = pa.table({"id": [1, 2, 3], "y": [0, 1, 0]})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "cores", lambda: 1)  # what is read in pieces depends on it


def rows_of(name: str) -> list[dict[str, Any]]:
    """All rows, by every way of reading them."""
    opened = STORE.open(name)
    found = pa.Table.from_batches(opened.batches(), opened.schema)
    found.validate(full=True)
    in_pieces = [item for piece in opened.pieces(opened.schema.names) for item in piece]
    assert pa.Table.from_batches([batch for _, batch in in_pieces], opened.schema) == found
    assert repeated(opened, opened.schema.names) == found
    start = 0
    for number, batch in in_pieces:
        assert number == start
        start += batch.num_rows
    assert opened.count() == found.num_rows
    small = STORE.read(name)
    assert small is not None
    assert small == found
    for one in opened.schema.names:  # alone, too
        alone = pa.Table.from_batches(opened.batches([one]), found.select([one]).schema)
        assert alone == found.select([one])
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


# --- column mapping -------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [(2, 5), (["columnMapping"], ["columnMapping"])])
def test_a_renamed_column_and_a_new_one_of_its_old_name(features: tuple[Any, Any]) -> None:
    """Upgraded to column mapping; then the label y became default_flag, and a new y was added."""
    columns = [
        mapped("id", "long", "id", 1),
        mapped("default_flag", "long", "y", 2),
        mapped("y", "long", "col-7", 3),
    ]
    before = file_of("t", pa.table({"id": [1, 2], "y": [1, 0]}), "a.parquet")
    after = file_of("t", pa.table({"col-7": [7], "y": [1], "id": [3]}), "b.parquet")
    readers, writers = features
    write_log("t", columns, [before, after], readers=readers, writers=writers, properties=BY_NAME)
    assert sorted(rows_of("t"), key=lambda row: row["id"]) == [
        {"id": 1, "default_flag": 1, "y": None},
        {"id": 2, "default_flag": 0, "y": None},
        {"id": 3, "default_flag": 1, "y": 7},
    ]


def _with_ids(table: pa.Table, *ids: int) -> pa.Table:
    told = [{b"PARQUET:field_id": str(id).encode()} for id in ids]
    fields = [field.with_metadata(m) for field, m in zip(table.schema, told, strict=True)]
    return table.cast(pa.schema(fields))


def test_columns_by_id_whatever_their_files_call_them() -> None:
    columns = [mapped("id", "long", "a", 1), mapped("y", "long", "b", 2)]
    misleading = _with_ids(pa.table({"id": [5], "y": [6]}), 2, 1)
    write_log(
        "t",
        columns,
        [file_of("t", misleading, "a.parquet")],
        readers=2,
        writers=5,
        properties=BY_ID,
    )
    assert rows_of("t") == [{"id": 6, "y": 5}]


def test_a_file_without_ids_is_refused_where_they_are_asked_for() -> None:
    columns = [mapped("id", "long", "id", 1), mapped("y", "long", "y", 2)]
    write_log(
        "t", columns, [file_of("t", ROWS, "a.parquet")], readers=2, writers=5, properties=BY_ID
    )
    with pytest.raises(InputError, match=r"^t: cannot be read: it maps columns by ids, and a file"):
        rows_of("t")


@pytest.mark.parametrize("nested", [False, True])
def test_a_name_that_differs_in_case_is_not_taken_for_a_younger_column(nested: bool) -> None:
    """Spark reads such a file's values; null in their place would look like missing labels."""
    inner = [column("Y", "long"), column("z", "long")]
    stored = pa.table({"y": [1, 0], "z": [3, 4]})
    if nested:
        inner = [column("s", struct_of(*inner))]
        stored = pa.table({"s": stored.to_struct_array()})
    write_log("t", inner, [file_of("t", stored, "a.parquet")])
    with pytest.raises(UnsupportedTable, match=r"calls column 'Y' 'y'; use --engine spark$"):
        rows_of("t")


def test_nested_fields_are_mapped_too() -> None:
    """A renamed field, a new one and one of an old name, in a struct, an array and a map."""

    def inner(id: int) -> dict[str, Any]:
        new = mapped("old", "string", f"col-{id}", id + 1)
        return struct_of(mapped("new", "long", "old", id), new)

    columns = [
        mapped("s", inner(11), "s", 1),
        mapped("l", array_of(inner(21)), "col-2", 2),
        mapped("m", map_of("string", inner(31)), "col-3", 3),
    ]
    kind = pa.struct([("old", pa.int64())])
    rows = pa.table(
        {
            "s": pa.array([{"old": 1}, None, {"old": None}], kind),
            "col-2": pa.array([[{"old": 1}, None], None, []], pa.list_(kind)),
            "col-3": pa.array([[("k", {"old": 1})], None, []], pa.map_(pa.string(), kind)),
        }
    )
    # deleted rows before others: arrays that begin in the middle of their values
    twice = pa.concat_tables([rows, rows])
    gone = file_of("t", twice, "a.parquet", vector=deletion_vector([0]), row_group_size=2)
    features = ["columnMapping", "deletionVectors"]
    write_log("t", columns, [gone], readers=features, writers=features, properties=BY_NAME)
    first = {"new": 1, "old": None}
    expected = [
        {"s": first, "l": [first, None], "m": [("k", first)]},
        {"s": None, "l": None, "m": None},
        {"s": {"new": None, "old": None}, "l": [], "m": []},
    ]
    assert rows_of("t") == [*expected[1:], *expected]


def test_names_that_were_swapped() -> None:
    """The types are those of the files, and so are the names: of the other fields."""
    inner = struct_of(mapped("a", "long", "b", 4), mapped("b", "long", "a", 5))
    columns = [mapped("a", "long", "b", 1), mapped("b", "long", "a", 2), mapped("s", inner, "s", 3)]
    rows = pa.table({"a": [1], "b": [2], "s": [{"a": 4, "b": 3}]})
    write_log(
        "t", columns, [file_of("t", rows, "a.parquet")], readers=2, writers=5, properties=BY_NAME
    )
    assert rows_of("t") == [{"a": 2, "b": 1, "s": {"a": 3, "b": 4}}]


def test_arrays_that_begin_in_the_middle_of_their_values() -> None:
    """As slices do: of lists, maps and structs, in each other."""
    rows: list[dict[str, Any]] = [
        {"l": [{"m": [("k", {"x": 1})]}, None], "s": {"l": [1, 2]}},
        {"l": [], "s": None},
        {"l": None, "s": {"l": None}},
        {"l": [{"m": None}, {"m": [("k", None), ("j", {"x": 2})]}], "s": {"l": [3]}},
    ]
    inner = pa.map_(pa.string(), pa.struct([("x", pa.int32())]))
    lists, struct = pa.list_(pa.struct([("m", inner)])), pa.struct([("l", pa.list_(pa.int32()))])
    stored = pa.RecordBatch.from_pylist(rows, pa.schema([("l", lists), ("s", struct)]))
    inner = pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("new", pa.string())]))
    lists, struct = pa.list_(pa.struct([("m", inner)])), pa.struct([("l", pa.list_(pa.int64()))])
    columns = StoredColumns("t", pa.schema([("l", lists), ("s", struct)]), "none")
    for start in range(4):
        found = columns.find(stored.slice(start), ["l", "s"])
        batch = pa.RecordBatch.from_pydict(found, columns.schema)
        batch.validate(full=True)
        told = str(batch.to_pylist()).replace(", 'new': None", "")
        assert told == str(rows[start:])


def test_partitions_are_the_logs_business_whatever_the_files_hold() -> None:
    columns = [mapped("id", "long", "col-1", 1), mapped("day", "date", "col-2", 2)]
    rows = pa.table({"col-1": [1, 2], "col-2": ["not", "this"]})
    added = [
        file_of("t", rows, "xY/a b%.parquet", {"col-2": "2024-02-29"}),
        file_of("t", rows, "b.parquet", {"col-2": None}, absolute=True),  # of a shallow clone
    ]
    write_log("t", columns, added, readers=2, writers=5, properties=BY_NAME, partitions=["day"])
    found = {(row["id"], str(row["day"])) for row in rows_of("t")}
    assert found == {(1, "2024-02-29"), (2, "2024-02-29"), (1, "None"), (2, "None")}


def test_what_delta_notes_of_columns_stays_in_the_table() -> None:
    """A copy that said how to find its columns in other files would be read by those words."""
    columns = [mapped("id", "long", "col-1", 1), mapped("y", "long", "col-2", 2)]
    rows = pa.table({"col-1": [1], "col-2": [0]})
    write_log(
        "t", columns, [file_of("t", rows, "a.parquet")], readers=2, writers=5, properties=BY_NAME
    )
    opened = STORE.open("t")
    STORE.write("copy", opened.schema, opened.batches(), "overwrite", COMMIT)
    assert "columnMapping" not in DeltaTable("copy").schema().to_json()
    assert rows_of("copy") == [{"id": 1, "y": 0}]


# --- rows that are there, types that changed ------------------------------------------------------


def test_live_rows_are_counted_and_numbered() -> None:
    """In several files and row groups; the log need not say how many rows a file has."""
    rows = pa.table({"id": range(1_000), "y": [0] * 1_000})
    gone = {"a": [0, 1, 499, 500], "b": [*range(100, 300)], "c": [999]}
    added = [
        file_of(
            "t",
            rows,
            f"{name}.parquet",
            vector=deletion_vector(places),
            row_group_size=100,
        )
        for name, places in gone.items()
    ]
    added.append(file_of("t", rows, "d.parquet", counted=False))
    features = ["deletionVectors"]
    write_log("t", PLAIN, added, readers=features, writers=features)
    gone["d"] = []
    left = sorted(i for places in gone.values() for i in set(range(1_000)) - set(places))
    assert sorted(row["id"] for row in rows_of("t")) == left
    assert STORE.open("t").count() == 3_795


def test_deleted_rows_behind_a_link() -> None:
    features = ["deletionVectors"]
    added = [file_of("t", ROWS, "a.parquet", vector=deletion_vector([1]))]
    write_log("t", PLAIN, added, readers=features, writers=features)
    Path("link").symlink_to("t")
    assert rows_of("link") == rows_of("t") == [{"id": 1, "y": 0}, {"id": 3, "y": 0}]


def test_deleted_rows_that_cannot_be_told_are_not_guessed() -> None:
    """The protocol asks for the number of rows of a file that has deleted ones."""
    vector = deletion_vector([1])
    features = ["deletionVectors"]
    added = [file_of("t", ROWS, "a.parquet", vector=vector, counted=False)]
    write_log("t", PLAIN, added, readers=features, writers=features)
    for look in (STORE.open("t").count, lambda: list(STORE.open("t").batches())):
        with pytest.raises(InputError, match=r"^t: its deleted rows cannot be read: .*numRecords"):
            look()


def test_columns_that_were_widened() -> None:
    rows = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "y": pa.array([2], pa.int8()),
            "d": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            "s": pa.array([{"x": 1.5}], pa.struct([("x", pa.float32())])),
        }
    )
    columns = [
        column("id", "long"),
        column("y", "double"),
        column("d", "decimal(10,4)"),
        column("s", struct_of(column("new", "string"), column("x", "double"))),
    ]
    features = ["typeWidening"]
    write_log("t", columns, [file_of("t", rows, "a.parquet")], readers=features, writers=features)
    assert rows_of("t") == [
        {"id": 1, "y": 2.0, "d": Decimal("1.2500"), "s": {"new": None, "x": 1.5}}
    ]
    kinds = [str(kind) for kind in STORE.open("t").schema.types]
    assert kinds == ["int64", "double", "decimal128(10, 4)", "struct<new: string, x: double>"]


# --- refused at opening ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ({"readers": ["shinyNew"]}, "it does not support the reader feature shinyNew"),
        ({"readers": ["catalogManaged"]}, "it does not support the reader feature catalogManaged"),
        ({"readers": 4}, "it does not support the reader version 4"),
        (
            {"readers": ["variantShredding", "deletionVectors"]},
            "it does not support the reader feature variantShredding",
        ),
        (
            {"readers": ["typeWidening", "deletionVectors", "vacuumProtocolCheck"]},
            "it does not support the reader features typeWidening, vacuumProtocolCheck beside "
            "deletionVectors",
        ),
        (
            {"readers": 2, "properties": {"delta.columnMapping.mode": "shape"}},
            "it does not support the column mapping 'shape'",
        ),
        (
            {"properties": BY_NAME},
            "delta.columnMapping.mode is name, but the protocol of the table has no columnMapping",
        ),
        (
            {"readers": ["variantType"], "columns": [column("l", array_of("variant"))]},
            "column 'l' has type variant (variantType)",
        ),
        (
            {"columns": [column("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(4)")]},
            "column 'c' has type char(4)",
        ),
        (
            {"columns": [column("i", "interval day to second")]},
            "column 'i' has type interval day to second",
        ),
        (
            {"columns": [column("s", array_of(struct_of(column("i", "interval year to month"))))]},
            "column 's.i' has type interval year to month",
        ),
        (
            {"columns": [column("g", "geometry(OGC:CRS84)")]},
            "a column has type geometry(OGC:CRS84)",
        ),
        (
            {"columns": [column("c", "string", __COLLATIONS={"c": "spark.UTF8_LCASE"})]},
            "column 'c' has the collation spark.UTF8_LCASE",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(log: dict[str, Any], why: str) -> None:
    readers = log.get("readers", 1)
    writers = readers if isinstance(readers, list) else {1: 2, 2: 5, 4: 8}[readers]
    given = {"writers": writers} | log
    write_log("t", [*PLAIN, *given.pop("columns", [])], [file_of("t", ROWS, "a.parquet")], **given)
    with pytest.raises(UnsupportedTable) as told:
        STORE.open("t")
    assert str(told.value) == f"t: cannot be read by the local engine: {why}; use --engine spark"
    with pytest.raises(RedcalError, match="cannot be read by the local engine"):
        STORE.read("t")
    problem = STORE.check_target("t", "output.table")
    assert problem is not None
    assert problem.startswith("output.table: t")
    assert "--engine spark" in problem


def test_an_older_version_that_asks_for_more() -> None:
    write_log("t", PLAIN, [file_of("t", ROWS, "a.parquet")], readers=["a"], writers=["a"])
    log = Path("t/_delta_log")
    newer = (log / f"{0:020}.json").read_text().replace('"readerFeatures": ["a"]', "")
    protocol = '{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}'
    (log / f"{1:020}.json").write_text("\n".join([protocol, *newer.splitlines()[1:2]]))
    assert STORE.open("t").count() == 3
    with pytest.raises(UnsupportedTable, match="reader feature a; use --engine spark"):
        STORE.open("t", 0)


# --- refused as a target --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (
            {"writers": ["clustering", "domainMetadata", "appendOnly"]},
            "it does not support the table's writer features clustering, domainMetadata",
        ),
        (
            {"writers": ["rowTracking"]},
            "it does not support the table's writer feature rowTracking",
        ),
        ({"writers": ["shinyNew"]}, "it does not support the table's writer feature shinyNew"),
        ({"writers": 8}, "it does not support the writer version 8"),
        ({"writers": 6}, "it does not support the table's writer feature identityColumns"),
        (
            {"readers": ["typeWidening"], "writers": ["typeWidening"]},
            "it does not support the table's writer feature typeWidening",
        ),
        (
            {
                "readers": 2,
                "writers": 5,
                "properties": BY_NAME,
                "columns": [mapped("id", "long", "id", 1)],
            },
            "its columns are mapped to other names (columnMapping)",
        ),
        (
            {"writers": 3, "properties": {"delta.constraints.positive": "id > 0"}},
            "Spark alone can check its constraints (checkConstraints): positive",
        ),
        (
            {"columns": [column("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(4)")]},
            "Spark alone can check the lengths in its column (char, varchar): 'v'",
        ),
        (
            {
                "writers": 4,
                "columns": [column("g", "long", **{"delta.generationExpression": "id * 2"})],
            },
            "Spark alone can compute its generated column (generatedColumns): 'g'",
        ),
        (
            {
                "columns": [
                    column("g", struct_of(column("x", "long", **{"delta.invariants": "{}"})))
                ]
            },
            "Spark alone can check the invariant of its column (invariants): 'g.x'",
        ),
    ],
)
def test_targets_that_ask_for_more_are_refused_at_check(log: dict[str, Any], why: str) -> None:
    given = dict(log)
    write_log("t", given.pop("columns", PLAIN), **given)
    told = f"t cannot be written by the local engine: {why}; use --engine spark, or name another"
    assert STORE.check_target("t", "output.runs") == f"output.runs: {told} table"
    rows = pa.table({"id": ["a"]})
    for change in (  # none of which checks beforehand
        lambda: STORE.write("t", rows.schema, rows.to_batches(), "append", COMMIT),
        lambda: STORE.put(Target(table="t"), rows.schema, rows.to_batches(), COMMIT),
        lambda: STORE.merge("t", rows, {"id": "id"}, COMMIT),
        lambda: STORE.delete("t", "id", ["a"], COMMIT),
        lambda: STORE.compact("t", COMMIT),
    ):
        with pytest.raises(RunError, match="cannot be written by the local engine"):
            change()
    assert DeltaTable("t").version() == 0


@pytest.mark.parametrize(
    "log",
    [
        {"writers": 4},  # implies checks, generated columns, the change data feed; has none of them
        {"writers": 4, "properties": {"delta.enableChangeDataFeed": "true"}},
        {"readers": ["deletionVectors"], "writers": ["deletionVectors", "invariants"]},
        {"readers": ["v2Checkpoint"], "writers": ["v2Checkpoint", "appendOnly"]},
        {"readers": ["variantType"], "writers": ["variantType"]},  # and no such column
        {"readers": 2, "writers": 5, "properties": {"delta.columnMapping.mode": "none"}},
    ],
)
def test_targets_that_ask_for_what_is_known_are_written(log: dict[str, Any]) -> None:
    write_log("t", PLAIN, [file_of("t", ROWS, "a.parquet")], **log)
    assert STORE.check_target("t", "output.table") is None
    STORE.check_rows(Target(table="t"), ROWS.schema)
    STORE.put(Target(table="t"), ROWS.schema, ROWS.slice(1).to_batches(), COMMIT)
    assert rows_of("t") == [{"id": 2, "y": 1}, {"id": 3, "y": 0}]


def test_a_table_that_takes_new_rows_only() -> None:
    write_deltalake("t", ROWS.append_column("run_id", pa.array(["a"] * 3)), partition_by=["run_id"])
    DeltaTable("t").alter.set_table_properties({"delta.appendOnly": "true"})
    STORE.check_rows(Target(table="t", mode="append"), ROWS.schema)
    STORE.put(Target(table="t", mode="append"), ROWS.schema, ROWS.to_batches(), COMMIT)
    assert STORE.open("t").count() == 6
    assert "rows of runs change: name another" in str(STORE.check_target("t", "output.runs"))
    assert STORE.check_target("t", "output.patches") is None
    with pytest.raises(UsageError, match=r"t takes new rows only \(delta.appendOnly\): use output"):
        STORE.check_rows(Target(table="t", evolve=True), ROWS.schema)


def test_deleted_rows_are_not_deleted_again() -> None:
    rows = pa.table({"run_id": ["a", "b", "a"], "n": [1, 2, 3]})
    columns = [column("run_id", "string"), column("n", "long")]
    features = ["deletionVectors"]
    gone = file_of("t", rows, "a.parquet", vector=deletion_vector([2]))
    write_log("t", columns, [gone], readers=features, writers=features)
    assert STORE.delete("t", "run_id", ["a"], COMMIT) == 1
    assert STORE.delete("t", "run_id", ["a"], COMMIT) == 0
    assert rows_of("t") == [{"run_id": "b", "n": 2}]

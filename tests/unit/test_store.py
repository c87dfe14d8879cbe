"""The store without a JVM: what it reads, how, and what it leaves behind."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.delta_types import unstorable
from redcal_spark.backends.local import delta_write, files, store
from redcal_spark.backends.local.delta_read import DeltaRsTable
from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.backends.store import Commit
from redcal_spark.backends.target import Target
from redcal_spark.core.arrow import BATCH
from redcal_spark.core.parquet import BATCH_BYTES
from redcal_spark.errors import InputError, RunError, UsageError
from tests.delta_logs import deletion_vector
from tests.helpers import refused, repeated

STORE = DeltaRsStore()
COMMIT = Commit("run-1", "print-1")
ROWS = pa.table({"id": [1, 2, 3, 4], "part": ["x", "x", "y", "y"], "p": [0.0, 0.25, 0.5, 1.0]})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "cores", lambda: 2)  # what is read in pieces depends on it


def whole(name: str, columns: list[str] | None = None, **options: Any) -> pa.Table:
    opened = STORE.open(name, **options)
    schema = opened.schema
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    found = pa.Table.from_batches(opened.batches(columns), schema)  # refuses any other schema
    in_pieces = [item for piece in opened.pieces(schema.names) for item in piece]
    assert pa.Table.from_batches([batch for _, batch in in_pieces], schema) == found
    assert [start for start, _ in in_pieces] == first_rows(batch for _, batch in in_pieces)
    assert repeated(opened, schema.names) == found
    return found


def first_rows(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """The numbers of their first rows."""
    return list(accumulate((batch.num_rows for batch in batches), initial=0))[:-1]


def once(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=2)


def write(
    name: str, rows: pa.Table = ROWS, mode: Any = "overwrite", commit: Commit = COMMIT
) -> int:
    return STORE.write(name, rows.schema, once(rows), mode, commit)


# --- told apart by looking ------------------------------------------------------------------------


def test_delta() -> None:
    write_deltalake("t", ROWS)
    opened = STORE.open("t")
    assert isinstance(opened, DeltaRsTable)
    assert (opened.count(), opened.identity()["version"]) == (4, 0)
    assert whole("t").to_pydict() == ROWS.to_pydict()
    assert whole("t", ["p", "id"]).column_names == ["p", "id"]


@pytest.mark.parametrize("name", ["scores.parquet", "scores", "scores.csv"])
def test_a_parquet_file_by_any_name(name: str) -> None:
    pq.write_table(ROWS, name)
    opened = STORE.open(name)
    assert isinstance(opened, FileTable)
    assert (opened.kind, opened.count()) == ("parquet", 4)
    assert whole(name) == ROWS


def test_a_folder_of_parquet() -> None:
    Path("t/deep/er").mkdir(parents=True)
    for place, name in enumerate(("t/b.parquet", "t/a.parquet", "t/deep/er/c.parquet")):
        pq.write_table(ROWS.slice(place, 1), name)
    for hidden in ("t/_SUCCESS", "t/.part.crc", "t/_temporary"):
        Path(hidden).write_text("not data")
    assert whole("t")["id"].to_pylist() == [2, 1, 3]  # by name, always
    assert STORE.open("t").count() == 3


def test_partitioned_folders() -> None:
    pq.write_to_dataset(ROWS, "t", partition_cols=["part"])
    found = whole("t")
    assert found.column_names == ["id", "p", "part"]
    assert found.sort_by("id")["part"].to_pylist() == ["x", "x", "y", "y"]
    pq.write_to_dataset(ROWS.append_column("year", pa.array([2024, 2025] * 2)), "u", ["year"])
    assert sorted(whole("u", ["year"])["year"].to_pylist()) == [2024, 2024, 2025, 2025]
    assert sorted(whole("u", ["id"])["id"].to_pylist()) == [1, 2, 3, 4]


def test_partitioned_delta() -> None:
    parts = pa.array(["a/b c", None, "ä=%", "a/b c"])
    rows = ROWS.set_column(1, "part", parts).append_column("n", pa.array([1, 1, 1, 1]))
    write_deltalake("t", rows, partition_by=["part"])
    assert whole("t").select(rows.column_names).sort_by("id") == rows
    assert sorted(whole("t", ["part"])["part"].to_pylist(), key=str) == sorted(
        parts.to_pylist(), key=str
    )


def test_files_of_one_folder_may_differ_a_little() -> None:
    Path("t").mkdir()
    pq.write_table(ROWS, "t/1.parquet")
    narrow = ROWS.select(["p", "id"]).cast(pa.schema([("p", pa.float32()), ("id", pa.int8())]))
    pq.write_table(narrow, "t/2.parquet")
    found = whole("t")
    assert found.schema == ROWS.schema
    assert found["id"].to_pylist() == [1, 2, 3, 4] * 2
    assert found["part"].to_pylist() == ["x", "x", "y", "y", None, None, None, None]


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "rows", "rows.csv.gz"])
def test_csv_by_any_name(name: str) -> None:
    text = b"id,part,p\r\n1,x,0.0\r\n2,x,0.25\r\n3,y,0.5\r\n4,y,1.0\r\n"
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    opened = STORE.open(name)
    assert isinstance(opened, FileTable)
    assert (opened.kind, opened.count()) == ("csv", None)
    assert whole(name) == ROWS


def test_a_folder_of_csv() -> None:
    Path("t").mkdir()
    for place in range(4):
        pa.csv.write_csv(ROWS.slice(place, 1), f"t/{place}.csv")
    assert whole("t") == ROWS


def test_partitioned_csv() -> None:
    """The columns that only the names of folders tell used to be lost."""
    for day, city in ((1, "Rome"), (2, "S%C3%A3o"), (2, "__HIVE_DEFAULT_PARTITION__")):
        folder = Path(f"visits/day={day}/city={city}")
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"id,p\n{10 * day},0.5\n")
    found = whole("visits")
    assert found.schema.names == ["id", "p", "day", "city"]
    assert found["day"].to_pylist() == [1, 2, 2]
    assert sorted(map(str, found["city"].to_pylist())) == ["None", "Rome", "São"]
    assert whole("visits", ["day"])["day"].to_pylist() == [1, 2, 2]
    table = STORE.open("visits")
    assert isinstance(table, FileTable)
    assert table.folders == ["day", "city"]


def test_partitioned_csv_whose_files_have_the_column_too() -> None:
    Path("visits/day=1").mkdir(parents=True)
    Path("visits/day=1/part.csv").write_text("id,day\n7,one\n")
    assert whole("visits").to_pylist() == [{"id": 7, "day": "one"}]
    Path("visits/day=1/city=Rome").mkdir()
    Path("visits/day=1/part.csv").rename("visits/day=1/city=Rome/part.csv")
    assert refused(InputError, lambda: STORE.open("visits")) == (
        "visits: column 'day' is in the files and in the names of folders"
    )


def test_csv_as_people_write_it() -> None:
    Path("t.csv").write_bytes(
        b'\xef\xbb\xbfid;note;p;late\n1;"two\nlines; and ""more""";0;\n2;;1;\n3;plain;0.5;\n'
    )
    found = whole("t.csv", separator=";", fractions=["p", "late"])
    assert found.to_pydict() == {
        "id": [1, 2, 3],
        "note": ['two\nlines; and "more"', None, "plain"],
        "p": [0.0, 1.0, 0.5],
        "late": [None] * 3,
    }
    assert found.schema.field("late").type == pa.float64()


@pytest.mark.parametrize(
    "line", [b"id" + b',""' * 1_000_000, b'id,"\r0' + b'","' * 1_000_000], ids=["plain", "quoted"]
)
def test_a_first_line_of_a_million_columns(line: bytes) -> None:
    """pyarrow would take 3 GiB before it says that the next line is shorter; fuzzing found it."""
    Path("t.csv").write_bytes(line + b"\n1,2\n")
    told = refused(InputError, lambda: STORE.open("t.csv"))
    assert "has more than 100,000 columns; write scores of many classes as arrays" in told


def test_fractions_may_begin_like_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redcal_spark.backends.local.csv_types.SEEN_BYTES", 1_000)
    Path("t.csv").write_text("p,n\n" + "1,1\n" * 1_000 + "0.5,1\n")
    assert whole("t.csv", fractions=["p"])["p"][-1].as_py() == 0.5
    Path("u.csv").write_text("p,n\n" + "1,1\n" * 1_000 + "1,0.5\n")
    assert refused(InputError, lambda: whole("u.csv")) == (
        "u.csv: cannot be read: column 'n': invalid value '0.5', but the values before are of "
        "type int64"
    )


# --- versions -------------------------------------------------------------------------------------


@pytest.fixture
def versions(_here: None) -> str:
    """Three versions, of the first three days of 2026."""
    for day in (1, 2, 3):
        write_deltalake("v", pa.table({"day": [day]}), mode="overwrite")
        log = Path("v", "_delta_log", f"{day - 1:020}.json")
        stamp = int(datetime(2026, 1, day, tzinfo=UTC).timestamp() * 1_000)
        log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{stamp}', log.read_text()))
    return "v"


@pytest.mark.parametrize(
    ("version", "day"),
    [
        (None, 3),
        (0, 1),
        (2, 3),
        ("2026-01-02", 2),  # without a zone: UTC
        ("2026-01-01T23:59:59", 1),
        ("2026-01-02T00:00:00+00:00", 2),
        ("2026-01-02T00:30:00+01:00", 1),
        ("2026-01-02T12:00:00Z", 2),
        ("2030-01-01", 3),
    ],
)
def test_a_version_or_the_one_of_a_time(versions: str, version: int | str | None, day: int) -> None:
    opened = STORE.open(versions, version)
    assert [b.to_pydict() for b in opened.batches()] == [{"day": [day]}]
    assert opened.identity()["version"] == day - 1


def test_versions_that_are_not_there(versions: str) -> None:
    assert refused(InputError, lambda: STORE.open(versions, 3)) == (
        "v: has no version 3; the newest is 2"
    )
    assert refused(InputError, lambda: STORE.open(versions, 2**70)).startswith("v: has no version")
    assert refused(InputError, lambda: STORE.open(versions, "2025-12-31T23:59:59.999")) == (
        "v: has no version as old as 2025-12-31T23:59:59.999; its first version is of "
        "2026-01-01T00:00:00Z"
    )
    Path("v/_delta_log", f"{0:020}.json").unlink()
    assert refused(InputError, lambda: STORE.open(versions, 0)).startswith("v: ")


def test_an_opened_table_does_not_change() -> None:
    write("t")
    opened = STORE.open("t")
    before = opened.identity()
    write("t", ROWS.slice(0, 1), commit=Commit("run-2", "print-2"))
    assert sum(batch.num_rows for batch in opened.batches()) == 4
    assert opened.identity() == before != STORE.open("t").identity()


def test_the_identity_of_files_tells_of_changes() -> None:
    Path("t").mkdir()
    pq.write_table(ROWS, "t/a.parquet")
    opened = STORE.open("t")
    before = opened.identity()
    assert opened.identity() == before == STORE.open("t").identity()
    pq.write_table(ROWS.slice(0, 3), "t/a.parquet")
    assert opened.identity() != before
    Path("t/a.parquet").unlink()
    assert refused(InputError, opened.identity) == "t/a.parquet: No such file or directory"


# --- what is read ---------------------------------------------------------------------------------


def test_codes_with_leading_zeros_are_texts(tmp_path: Path) -> None:
    Path("t.csv").write_text("id,zip,n,zero,p\n01,00123,10,0,0.5\n1,20095,-7,0,0.25\n")
    found = whole("t.csv")
    assert found.to_pydict() == {
        "id": ["01", "1"], "zip": ["00123", "20095"], "n": [10, -7], "zero": [0, 0],
        "p": [0.5, 0.25],
    }  # fmt: skip


@pytest.mark.slow
def test_tiny_row_groups_come_in_a_few_batches() -> None:
    rows = pa.table({"n": range(20_000), "s": pa.array(["a", "b"] * 10_000).dictionary_encode()})
    pq.write_table(rows, "t.parquet", row_group_size=7)
    batches = list(STORE.open("t.parquet").batches(["n"]))
    assert len(batches) <= 2
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(20_000))
    assert whole("t.parquet") == rows
    Path("t").mkdir()
    for start in range(0, 1_000, 10):
        pq.write_table(rows.slice(start, 10), f"t/{start:04}.parquet")
    assert len(list(STORE.open("t").batches())) == 1


def test_many_row_groups_are_pieces_that_can_be_read_in_any_order() -> None:
    rows = pa.table({"n": range(20 * BATCH), "s": pa.repeat("a", 20 * BATCH)})
    Path("t").mkdir()
    pq.write_table(rows.slice(0, 13 * BATCH), "t/a.parquet", row_group_size=BATCH)
    pq.write_table(rows.slice(13 * BATCH), "t/b.parquet", row_group_size=BATCH // 2)
    pieces = list(STORE.open("t").pieces(["n"]))
    assert len(pieces) == 20  # halves are put together
    found = [[batch for _, batch in piece] for piece in reversed(pieces)]
    assert pa.Table.from_batches(chain.from_iterable(reversed(found))) == rows.select(["n"])
    assert whole("t") == rows


def test_a_piece_whose_file_vacuum_removed_meanwhile() -> None:
    rows = pa.table({"n": range(20 * BATCH)})
    write_deltalake("t", rows.slice(0, 1))
    (file,) = Path("t").glob("*.parquet")
    pq.write_table(rows, file, row_group_size=BATCH)
    write_deltalake("t", rows.slice(0, 1), mode="overwrite")
    pieces = list(STORE.open("t", version=0).pieces(["n"]))
    file.unlink()
    told = refused(RunError, lambda: list(pieces[3]))
    assert told.startswith("t: version 0 can no longer be read: its files are gone")


def test_few_row_groups_are_read_in_order_a_batch_a_piece() -> None:
    pq.write_table(pa.table({"n": range(3 * BATCH)}), "t.parquet", row_group_size=3 * BATCH)
    pieces = [list(piece) for piece in STORE.open("t.parquet").pieces(["n"])]
    assert [len(piece) for piece in pieces] == [1, 1, 1]


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_damage_in_a_later_piece_is_told_by_whoever_reads_it(kind: str) -> None:
    rows = pa.table({"n": np.random.default_rng(1).random(20 * BATCH)})
    if kind == "delta":
        write_deltalake("t", rows.slice(0, 1))
        (file,) = Path("t").glob("*.parquet")
        pq.write_table(rows, file, row_group_size=BATCH)
    else:
        Path("t").mkdir()
        file = Path("t/rows.parquet")
        pq.write_table(rows, file, row_group_size=BATCH)
    place = pq.ParquetFile(file).metadata.row_group(15).column(0).data_page_offset
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"\xff" * 64)
    pieces = list(STORE.open("t").pieces(["n"]))
    assert sum(batch.num_rows for _, batch in pieces[14]) == BATCH
    assert refused(InputError, lambda: list(pieces[15])).startswith("t: cannot be read: ")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_reading_does_not_hold_the_table(kind: str) -> None:
    """About 50 MB, of which a few batches are held at any time."""
    rng = np.random.default_rng(4)
    with pq.ParquetWriter("t.parquet", _scores(rng, 1).schema) as writer:
        for _ in range(16):
            writer.write_table(_scores(rng, 40_000))
    if kind == "delta":
        whole_table = pq.ParquetFile("t.parquet")
        write_deltalake(
            "t",
            pa.RecordBatchReader.from_batches(_scores(rng, 1).schema, whole_table.iter_batches()),
        )
    opened = STORE.open("t.parquet" if kind == "parquet" else "t")
    before, peak, rows, size = pa.total_allocated_bytes(), 0, 0, 0
    for batch in opened.batches():
        rows += batch.num_rows
        size += batch.nbytes
        del batch
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 640_000 and size > 50_000_000
    assert peak < 0.4 * size


def _scores(rng: np.random.Generator, rows: int) -> pa.Table:
    flat = pa.array(rng.random(rows * 10))
    return pa.table({"p": pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * 10, flat)})


def test_wide_rows_come_in_smaller_batches() -> None:
    d, rows = 1_000, 12_000
    flat = pa.array(np.tile(np.eye(1, d).ravel(), rows))  # all alike: a few bytes in the file
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * d)
    pq.write_table(pa.table({"p": pa.ListArray.from_arrays(offsets, flat)}), "t.parquet")
    sizes = [batch.nbytes for batch in STORE.open("t.parquet").batches()]
    assert len(sizes) > 2
    assert max(sizes) <= 1.1 * BATCH_BYTES
    assert BATCH * d * 8 > 10 * BATCH_BYTES


def test_deletion_vectors_are_honoured() -> None:
    """Spark writes them, delta-rs does not: this log is written by hand, after the protocol."""
    write_deltalake("t", pa.table({"n": range(10), 'a "b"': range(10)}))
    first = Path("t/_delta_log", f"{0:020}.json")
    add = next(json.loads(x)["add"] for x in first.read_text().splitlines() if '"add"' in x)
    vector = deletion_vector([2, 3, 7])
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": add | {"deletionVector": vector, "dataChange": True}},
    ]
    text = "\n".join(map(json.dumps, actions))
    Path("t/_delta_log", f"{1:020}.json").write_text(text)
    assert sorted(whole("t")["n"].to_pylist()) == [0, 1, 4, 5, 6, 8, 9]
    assert sorted(whole("t", ['a "b"'])['a "b"'].to_pylist()) == [0, 1, 4, 5, 6, 8, 9]
    assert whole("t", version=0).num_rows == 10


# --- writing --------------------------------------------------------------------------------------


def test_versions_and_what_they_say_of_themselves() -> None:
    assert STORE.last_writer("t") is None
    assert write("t") == 0
    assert write("t", ROWS.select(["p"]), commit=Commit("run-2", "print-2")) == 1
    assert whole("t").column_names == ["p"]
    assert whole("t", version=0).sort_by("id").to_pydict() == ROWS.to_pydict()
    assert STORE.last_writer("t") == "run-2"
    said = json.loads(DeltaTable("t").history(1)[0]["userMetadata"])  # Spark's key, too
    assert said == {
        "redcal_run_id": "run-2",
        "redcal_fingerprint": "print-2",
        "redcal_phase": 0,
    }


def test_appending() -> None:
    for run in ("run-1", "run-2"):
        write("t", ROWS.append_column("run_id", pa.array([run] * 4)), "append", Commit(run, ""))
    found = STORE.read("t", {"run_id": "run-2"})
    assert found is not None and found.num_rows == 4
    assert STORE.read("nothing") is None
    told = refused(RunError, lambda: STORE.read("t", {"fingerprint": "x"}))
    assert told == ("t: is another kind of table: no column 'fingerprint', but id, part, p, run_id")


def test_upserts() -> None:
    rows = pa.table({"key": ["a", "b"], "n": [1, 2]})
    same = {"key": "key"}
    STORE.merge("t", rows, same, COMMIT)
    STORE.merge("t", pa.table({"key": ["b", "c"], "n": [20, 30]}), same, COMMIT)
    STORE.merge("t", pa.table({"key": ["a", "d"], "n": [0, 0]}), {"n": "n"}, COMMIT, insert=False)
    STORE.merge("t", pa.table({"key": ["a"], "n": [0]}), same, COMMIT, update=False)
    found = STORE.read("t")
    assert found is not None
    assert sorted(found.to_pylist(), key=str) == [
        {"key": "a", "n": 1},
        {"key": "b", "n": 20},
        {"key": "c", "n": 30},
    ]


def test_merging_sees_a_change_to_null_and_back() -> None:
    target = Target(table="t", mode="merge", id="id")
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "note": ["a", "b", None],
            "p": pa.array([[0.5, 0.5], None, [1.0, 0.0]], pa.list_(pa.float64())),
        }
    )
    other = rows.set_column(1, "note", pa.array([None, "b", "c"]))
    other = other.set_column(2, "p", pa.array([None, [0.0, 1.0], [1.0, 0.0]], rows.schema[2].type))
    for run, found in enumerate((rows, other, rows)):
        assert STORE.put(target, found.schema, once(found), Commit(f"run-{run}", "")) == run
        assert whole("t").sort_by("id").to_pylist() == found.to_pylist()
    assert STORE.written("t", Commit("run-2", "")) == (2, 3)
    assert STORE.written("t", Commit("run-2", "", phase=1)) is None


def test_partitions_that_delta_rs_would_not_replace() -> None:
    """Spark writes the names of folders as they are, delta-rs in ASCII."""
    write_deltalake("t", ROWS, partition_by=["part"])
    log = Path("t/_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace("part=x", "part=ä"))
    told = refused(UsageError, lambda: STORE.check_rows(Target(table="t"), ROWS.schema))
    assert told.startswith("output.table: t has partitions that Spark wrote and the local engine")
    assert "such as part=ä: use engine.name: spark" in told


class OurError(Exception):
    pass


def failing(rows: int) -> Iterator[pa.RecordBatch]:
    """Enough for delta-rs to begin files, then a failure of ours."""
    rng = np.random.default_rng(4)
    for _ in range(rows // 500_000):
        yield pa.record_batch({"x": rng.random(500_000)})
    raise OurError("half way")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.float64())])
    with pytest.raises(OurError, match="half way"):
        STORE.write("new/deep/t", schema, failing(15_000_000), "overwrite", COMMIT)
    assert list(tmp_path.iterdir()) == []
    write("t")
    with pytest.raises(OurError, match="half way"):
        STORE.write("t", schema, failing(0), "overwrite", COMMIT)
    assert whole("t").sort_by("id").to_pydict() == ROWS.to_pydict()


def test_an_interrupted_first_write_does_not_block_the_next() -> None:
    def interrupted() -> Iterator[pa.RecordBatch]:
        yield from once(ROWS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        STORE.write("t", ROWS.schema, interrupted(), "overwrite", COMMIT)
    assert STORE.check_target("t", "output.table") is None
    assert write("t") == 0


def test_two_that_make_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the table made, and adds its rows to it as the next version."""
    put_new = delta_write.put_new

    def after_another(*arguments: Any) -> None:
        write_deltalake("t", ROWS)
        put_new(*arguments)

    monkeypatch.setattr(store, "put_new", after_another)
    assert write("t", ROWS, "append") == 1
    assert whole("t").num_rows == 8
    assert [path.name for path in Path().iterdir()] == ["t"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("t", None),
        ("new/deep/t", None),
        ("empty", None),
        ("file", "k: file is a file; a table is a folder"),
        ("file/t", "k: file/t cannot be made: file is a file"),
        ("other", "k: other is a folder with other things in it, not a Delta table"),
        ("./gold.rows", None),
        ("rows.v2/t", None),
    ],
)
def test_targets(name: str, told: str | None) -> None:
    write("t")
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/thing").touch()
    Path("file").touch()
    assert STORE.check_target(name, "k") == told
    if told is None:
        assert write(name, commit=Commit("run-2", "")) in (0, 1)


def test_a_target_that_another_makes_while_we_look(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Path.iterdir
    Path("t").mkdir()

    def after_another(path: Path) -> Iterator[Path]:
        monkeypatch.setattr(Path, "iterdir", look)
        write("t")
        return look(path)

    monkeypatch.setattr(Path, "iterdir", after_another)
    assert STORE.check_target("t", "k") is None
    assert whole("t").num_rows == 4


@pytest.mark.parametrize("name", ["a.b", "main.gold.t", "`my cat`.gold.t", "hdfs://b/t", "dbfs:/t"])
def test_targets_elsewhere(name: str) -> None:
    told = STORE.check_target(name, "k")
    assert told is not None and told.startswith(f"k: {name} cannot be written: the local engine")
    told = refused(InputError, lambda: STORE.open(name))
    assert told.startswith(f"{name}: no such file or folder; the local engine uses")


# --- types ----------------------------------------------------------------------------------------

# As pyarrow has it, as the Delta table has it, two values
NOW = datetime(2026, 1, 31, 12, 30, 15, 123_456)
TYPES: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.null(), pa.null(), [None, None]),
    (pa.bool_(), pa.bool_(), [True, None]),
    (pa.int8(), pa.int8(), [-128, 127]),
    (pa.uint8(), pa.int16(), [0, 255]),
    (pa.uint16(), pa.int32(), [0, 2**16 - 1]),
    (pa.uint32(), pa.int64(), [0, 2**32 - 1]),
    (pa.uint64(), pa.decimal128(20, 0), [Decimal(0), Decimal(2**64 - 1)]),
    (pa.float16(), pa.float32(), [0.5, None]),
    (pa.float32(), pa.float32(), [0.5, None]),
    (pa.decimal128(38, 4), pa.decimal128(38, 4), [Decimal("1.2345"), None]),
    (pa.string(), pa.string(), ["ü", None]),
    (pa.large_string(), pa.string(), ["ü", None]),
    (pa.string_view(), pa.string(), ["ü", None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None]),
    (pa.binary(), pa.binary(), [b"a\0", None]),
    (pa.binary(2), pa.binary(), [b"ab", None]),
    (pa.date32(), pa.date32(), [date(2026, 1, 31), None]),
    (pa.timestamp("us"), pa.timestamp("us"), [NOW, None]),
    (pa.timestamp("ns"), pa.timestamp("us"), [NOW, None]),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), [datetime(2026, 1, 31, tzinfo=UTC)] * 2),
    (pa.list_(pa.uint8()), pa.list_(pa.int16()), [[255], None]),
    (pa.large_list(pa.int32()), pa.list_(pa.int32()), [[1, None], []]),
    (pa.list_(pa.float32(), 2), pa.list_(pa.float32()), [[0.5, 0.25], None]),
    (
        pa.struct({"a": pa.uint32(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
        [{"a": 2**32 - 1, "b": [{"c": "x"}]}, None],
    ),
    (
        pa.map_(pa.string(), pa.uint8()),
        pa.map_(pa.string(), pa.int16()),
        [[("k", 255)], []],
    ),
]


@pytest.mark.parametrize(("kind", "kept", "values"), TYPES, ids=[str(t[0]) for t in TYPES])
def test_values_survive(kind: pa.DataType, kept: pa.DataType, values: list[Any]) -> None:
    if kind == pa.float16():
        column = pa.array([np.float16(0.5), None], kind)
    elif kind == pa.uint64():
        column = pa.array([int(v) for v in values], kind)
    else:
        column = pa.array(values, kind)
    rows = pa.table({"x": column, "n": [1, 2]})
    assert unstorable(rows.schema) == []
    write("t", rows)
    found = whole("t")
    assert found["x"].to_pylist() == values
    assert str(found.schema.field("x").type).replace("element", "item") == str(kept).replace(
        "element", "item"
    )


def test_types_that_have_no_place() -> None:
    schema = pa.schema(
        [
            ("ok", pa.int64()),
            ("clock", pa.time32("s")),
            ("spans", pa.list_(pa.struct({"s": pa.duration("us")}))),
            ("OK", pa.int64()),
        ]
    )
    assert unstorable(schema) == [
        "column 'clock' has type time32[s]; Delta tables cannot hold time32[s]: cast the column in "
        "the input, or leave it out",
        "column 'spans' has type list<item: struct<s: duration[us]>>; Delta tables cannot hold "
        "duration[us]: cast the column in the input, or leave it out",
        "columns 'ok' and 'OK' have the same name but for upper and lower case, which Delta tables "
        "do not tell apart: rename one in the input",
    ]
    spans = pa.table({"x": pa.array([timedelta(1)])})
    told = refused(RunError, lambda: write("t", spans))
    assert told.startswith("t: could not be written: ")
    assert not Path("t").exists()


def test_deleting_the_rows_of_some_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"run_id": ["a", "it's", "b", "a"], "x": [1, 2, 3, 4]})
    assert STORE.delete("t", "run_id", ["a"], COMMIT) == 0
    for i in range(4):
        STORE.write("t", rows.schema, rows.slice(i, 1).to_batches(), "append", COMMIT)
    assert (
        STORE.delete("t", "run_id", ["nobody"], COMMIT) == STORE.delete("t", "x", [], COMMIT) == 0
    )
    assert DeltaTable("t").version() == 3

    delete = DeltaTable.delete
    before: list[int] = []

    def late(self: DeltaTable, *arguments: Any, **named: Any) -> Any:
        """Another writer is quicker, once."""
        if not before:
            before.append(DeltaTable("t").version())
            delete(DeltaTable("t"), "x = 4")
        return delete(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "delete", late)
    assert STORE.delete("t", "run_id", ["a", "it's"], Commit("prune-1", "p")) == 2
    assert before == [3] and whole("t").to_pylist() == [{"run_id": "b", "x": 3}]
    [entry] = DeltaTable("t").history(1)
    assert entry["operation"] == "DELETE" and '"prune-1"' in entry["userMetadata"]


def test_small_files_are_put_together() -> None:
    assert STORE.compact("t", COMMIT) == (0, 0)
    for i in range(3):
        write("t", pa.table({"x": [i]}), mode="append")
    assert STORE.compact("t", Commit("compact-1", "c")) == (3, 1)
    assert STORE.compact("t", Commit("compact-2", "c")) == (1, 1)
    assert sorted(whole("t")["x"].to_pylist()) == [0, 1, 2]
    assert DeltaTable("t").version() == 3

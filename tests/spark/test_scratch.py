"""Scratch: removed at the end, also after a failure; the next run removes what a dead one left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark.backends.spark import scratch as places
from redcal_spark.backends.spark import stored_blocks
from redcal_spark.backends.spark.cells import DDL
from redcal_spark.backends.spark.cells import SCHEMA as SCHEMA_OF_BLOCKS
from redcal_spark.backends.spark.engine import SparkEngine
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.core.packing import packed_parts, unpack_block
from redcal_spark.errors import RunError, UsageError
from tests import backends
from tests.contract.cases import expected, made, table
from tests.helpers import block_of, log_of, quietly, reconciler, refused
from tests.spark.test_direct_read import blind_workers

PROBLEM = ("redcal", 2, 1)
SCHEMA = "redcal_scratch_db"


def fit(spark: Any, place: str | None, budget: int = 0) -> Any:
    frame = spark.createDataFrame(table(made(*PROBLEM)))
    with quietly():
        return reconciler(made(*PROBLEM), scratch=place, driver_budget=budget).fit(frame)


def broken(*_: Any) -> Any:
    raise RunError("on purpose")


def test_removed_after_a_failure(spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def after_a_step(self: Any) -> Any:
        seen.extend(os.listdir(scratch))
        broken()

    monkeypatch.setattr(SparkEngine, "_count", after_a_step)
    assert refused(RunError, lambda: fit(spark, scratch)) == "on purpose"
    assert len(seen) == 1  # there was something to remove
    assert os.listdir(scratch) == []


def test_removed_after_a_failed_task(
    spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: Any) -> Any:
        def run(batches: Any) -> Any:
            yield from ()
            raise RuntimeError("on purpose")

        return run

    monkeypatch.setattr(stored_blocks, "KeepTask", bad)
    with pytest.raises(Exception, match="on purpose"):
        fit(spark, scratch)
    assert os.listdir(scratch) == []


def dead_pid() -> int:
    found = subprocess.Popen([sys.executable, "-c", ""])
    found.wait()
    return found.pid


def of_pid(pid: int, host: str | None = None, hours: float = 0) -> str:
    made = datetime.now(UTC) - timedelta(hours=hours)
    return f"{places.PREFIX}_{made:%Y%m%d%H%M%S}_{pid}_0a1b2c_{host or places._host()}"


@pytest.mark.slow
def test_what_a_dead_run_left_is_removed_by_the_next(spark: Any, scratch: str) -> None:
    gone = [of_pid(dead_pid()), of_pid(dead_pid(), "elsewhere", 49), of_pid(os.getppid(), None, 49)]
    kept = [
        of_pid(os.getppid()),  # alive
        of_pid(os.getpid()),  # another run of this process
        of_pid(dead_pid(), "elsewhere"),  # whose processes cannot be seen from here
        "somebody_else",
    ]
    for name in gone + kept:
        (Path(scratch) / name / "0").mkdir(parents=True)
    fit(spark, scratch)
    assert sorted(os.listdir(scratch)) == sorted(kept)


def test_names_tell_who_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog gives table names back in small letters; host names may have capitals."""
    monkeypatch.setattr("socket.gethostname", lambda: "Worker-7.Example")
    name = places.run_name()
    assert name == name.lower()
    assert not places.is_leftover(name)
    assert places.is_leftover(name.replace(f"_{os.getpid()}_", f"_{dead_pid()}_"))


def test_a_schema_of_the_catalog(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    gone, kept = f"{of_pid(dead_pid())}_3", f"{of_pid(os.getppid())}_0"
    try:
        for name in (gone, kept):
            spark.sql(f"CREATE TABLE {SCHEMA}.{name} ({DDL}) USING parquet")
        for budget in (0, 2**28):
            assert log_of(fit(spark, SCHEMA, budget)) == log_of(expected(*PROBLEM).pair)
            assert tables(spark) == [kept]
        monkeypatch.setattr(SparkEngine, "_count", broken)
        assert refused(RunError, lambda: fit(spark, f"spark_catalog.{SCHEMA}")) == "on purpose"
        assert tables(spark) == [kept]
    finally:
        spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def tables(spark: Any) -> list[str]:
    """Not the session's own views, which every schema shows."""
    found = spark.sql(f"SHOW TABLES IN {SCHEMA}").collect()
    return [row["tableName"] for row in found if not row["isTemporary"]]


def test_a_schema_that_is_not_there(spark: Any) -> None:
    told = refused(UsageError, lambda: fit(spark, "no_such_schema"))
    assert told == "scratch: no schema no_such_schema"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("budget", [0, 2**28])
@pytest.mark.parametrize("direct", [True, False])
def test_a_damaged_block_is_noticed(
    spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch, direct: bool, budget: int
) -> None:
    """One bit, in storage, between two passes, or before the driver takes blocks over."""
    whole = Scratch.write

    def damaged(self: Scratch, *given: Any) -> Any:
        back = whole(self, *given)
        for file in files_of_blocks(scratch):
            spoil(file)
        return back

    monkeypatch.setattr(Scratch, "direct", direct)
    monkeypatch.setattr(Scratch, "write", damaged)
    with pytest.raises(Exception, match="a packed block is damaged: its checksum does not fit"):
        fit(spark, scratch, budget)


@pytest.mark.skipif(backends.name() != "classic", reason="sets the Python of workers")
def test_workers_that_do_not_see_the_folder(
    spark: Any, scratch: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark writes the blocks then, and the log says so."""
    place = tmp_path / "hidden"
    place.mkdir()
    with (
        blind_workers(spark, tmp_path, place),
        caplog.at_level("INFO", logger="redcal_spark.backends.spark.scratch"),
    ):
        found = fit(spark, str(place), 2**28)
    assert log_of(found) == log_of(expected(*PROBLEM).pair)
    assert f"{place}: Spark's workers do not see this folder as the driver does" in caplog.text
    assert os.listdir(place) == []


def files_of_blocks(scratch: str) -> list[Path]:
    """What Spark wrote, and what tasks wrote themselves."""
    return [file for kind in ("*.parquet", "*.cells") for file in Path(scratch).rglob(kind)]


def spoil(file: Path) -> None:
    """Another bit in every block, in a file that is whole."""
    if file.suffix == ".cells":
        data = bytearray(file.read_bytes())
        starts = [match.start() for match in re.finditer(b"rdcl", data)]
        for start, end in pairwise([*starts, len(data)]):
            data[(start + end) // 2] ^= 1
        file.write_bytes(data)
        return
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        if row["kind"] == "fit":
            place = len(row["data"]) // 2
            row["data"] = b"".join(
                [row["data"][:place], bytes([row["data"][place] ^ 1]), row["data"][place + 1 :]]
            )
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA_OF_BLOCKS), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_every_damaged_byte_is_noticed() -> None:
    packed = b"".join(packed_parts(block_of(made("redcal", 2, 1))))
    assert unpack_block(packed).rows == 1_200
    spoiled = [packed[:length] for length in (0, 4, 11, 12, 50, len(packed) - 1)]
    for place in range(0, len(packed), 97):
        spoiled.append(packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :])
    for data in spoiled:
        with pytest.raises(RunError, match="damaged"):
            unpack_block(data)

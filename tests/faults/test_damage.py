"""Files that are not what was written: an input that is cut off, scratch with other bits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.spark.scratch import Scratch
from tests.e2e.test_resume import outcome
from tests.e2e.work import Work, scores
from tests.faults.conftest import Disk
from tests.faults.running import failed_clearly
from tests.spark.test_runs import Lake
from tests.spark.test_scratch import files_of_blocks, spoil

# --- the input ------------------------------------------------------------------------------------


def write_parts(kind: str) -> Path:
    """The input in three files; returns the one to be cut off."""
    shutil.rmtree("scores", ignore_errors=True)
    table = scores()
    for part in (table.slice(0, 200), table.slice(200, 200), table.slice(400)):
        if kind == "delta":
            write_deltalake("scores", part, mode="append")
        else:
            Path("scores").mkdir(exist_ok=True)
            pq.write_table(part, f"scores/{part['case'][0]}.parquet")
    if kind == "delta":
        return Path(DeltaTable("scores").file_uris()[1].removeprefix("file://"))
    return Path("scores/1200.parquet")


def cut_off(work: Work, kind: str) -> None:
    work.tree["reconcile"]["eta"] = 0.05
    work.tree["input"]["table"] = "scores"
    victim = write_parts(kind)
    work.ran()
    before = work.table().sort_by("case").to_pylist()
    whole = victim.read_bytes()
    times = os.stat(victim)
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        victim.write_bytes(whole[:length])
        victim.with_name(f".{victim.name}.crc").unlink(missing_ok=True)
        told = work.redcal("run", "--force")
        assert told.code == 2, told
        assert told.err.count("scores") >= 1 and "Traceback" not in told.err, told.err
        assert "unexpected" not in told.err, told.err
        assert work.table().sort_by("case").to_pylist() == before
    victim.write_bytes(whole)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert work.ran("run", "--force")["status"] == "converged"
    assert work.table().sort_by("case").to_pylist() == before


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_file_of_the_input_is_cut_off(work: Work, kind: str) -> None:
    cut_off(work, kind)


# --- on Spark -------------------------------------------------------------------------------------


@pytest.fixture
def lake(any_lake: Lake) -> Iterator[Lake]:
    """Every step is a job over scratch, wherever a test has that."""
    any_lake.tree["reconcile"]["eta"] = 0.05
    any_lake.tree["engine"]["driver_budget"] = 0
    yield any_lake
    assert list(Path(any_lake.tree["engine"]["scratch"]).glob("*")) == []


@pytest.mark.slow
def test_a_file_of_the_input_is_cut_off_on_spark(lake: Lake) -> None:
    cut_off(lake, "delta")


def calm(lake: Lake) -> Any:
    """What the embedded engine leaves."""
    lake.tree["output"]["table"] = "calm/out/rows"
    lake.ran_on("local")
    lake.tree["output"]["table"] = "out/rows"
    return outcome("calm")


def result(folder: str = ".") -> Any:
    """What a run left, whether or not it had to scan twice for it."""
    found = outcome(folder)
    return found | {"metrics": [m for m in found["metrics"] if m["name"] != "rows_scanned"]}


def damage(monkeypatch: pytest.MonkeyPatch, lake: Lake, writes: set[int], how: Any) -> None:
    """After these writes of blocks, all files in scratch are spoiled."""
    whole, count = Scratch.write, 0

    def write(self: Scratch, *given: Any) -> Any:
        nonlocal count
        back = whole(self, *given)
        count += 1
        if count in writes:
            for file in files_of_blocks(lake.tree["engine"]["scratch"]):
                how(file)
        return back

    monkeypatch.setattr(Scratch, "write", write)


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "how"),
    [
        (2, spoil),  # in the middle of the fit
        pytest.param(1, os.unlink, marks=pytest.mark.slow),
        pytest.param(1, spoil, marks=pytest.mark.slow),
        pytest.param(2, halve, marks=pytest.mark.slow),
    ],
)
def test_damaged_scratch_is_made_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, write: int, how: Callable[[Path], None]
) -> None:
    calm(lake)
    damage(monkeypatch, lake, {write}, how)
    told = lake.redcal("run")
    assert told.code == 0, told.err
    assert "scores is scanned again" in told.err
    assert result() == result("calm")


@pytest.mark.slow
def test_scratch_that_is_damaged_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = calm(lake)
    with monkeypatch.context() as patch:
        damage(patch, lake, set(range(1, 100)), spoil)
        failed_clearly(lake.redcal("run"), "checksum does not fit")
    told = lake.redcal("run")
    assert told.code == 0, told.err
    assert outcome() == expected


@pytest.mark.slow
def test_the_disk_of_scratch_is_full(lake: Lake, disk: Callable[[str], Disk]) -> None:
    """First there is no room for the scan, then none for what follows it."""
    expected = calm(lake)
    small = disk("16k")
    lake.tree["engine"]["scratch"] = str(small.path / "scratch")
    for size in ("16k", "80k"):
        small.resize(size)
        told = lake.redcal("run")
        failed_clearly(told, "No space left on device")
        assert "engine.scratch" in told.err
        assert list(small.path.glob("scratch/*")) == []
    small.resize("64m")
    told = lake.redcal("run")
    assert told.code == 0, told.err
    assert outcome() == expected

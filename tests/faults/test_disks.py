"""A disk that is full or turns read-only: a clear error, nothing lost, and then it goes on."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from tests.e2e.work import Work, scores
from tests.faults.conftest import Disk
from tests.faults.running import ROOT, failed_clearly, redcal

NO_ROOM = ("No space left on device",)
LOCKED = ("Read-only file system",)
MOMENTS = (
    "claim",
    "inside a calibration",
    "write of the patches",
    "before the rows",
    "write of the rows",
    "after the rows, before the metrics",
    "before the ledger's last write",
)
IN_CI = ("write of the rows", "before the ledger's last write")
COMMAND = ("run", "-c", "config.yaml")


def some(moments: Iterable[str]) -> list[Any]:
    slow = pytest.mark.slow
    return [pytest.param(moment, marks=() if moment in IN_CI else slow) for moment in moments]


@pytest.fixture
def target(work: Work, disk: Callable[[str], Disk]) -> tuple[Work, Disk]:
    """Tables on a disk of their own, with the rows of a first run in them; then the input changes.

    Beside it, in `calm/out`, is what the second run leaves where nobody disturbs it.
    """
    small = disk("16m")
    write_deltalake("scores", scores(seed=4))
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"]["eta"] = 0.05
    work.tree["output"]["table"] = f"{small.path}/out/rows"
    work.ran()
    write_deltalake("scores", scores(), mode="overwrite")
    work.tree["output"]["table"] = "calm/out/rows"
    work.ran()
    work.tree["output"]["table"] = f"{small.path}/out/rows"
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    return work, small


def rows(place: Path | str, version: int | None = None) -> list[Any]:
    found = DeltaTable(f"{place}/out/rows", version=version).to_pyarrow_table()
    return list(found.sort_by("case").to_pylist())


def log(work: Work, place: Path | str) -> list[Any]:
    work.tree["output"]["table"] = f"{place}/out/rows"
    told = work.redcal("log", "--json")
    assert told.code == 0, told.err
    return told.lines


def check(target: tuple[Work, Disk], moment: str, strike: str, words: tuple[str, ...]) -> None:
    work, small = target
    before = rows(small.path)
    told = redcal(*COMMAND, moment=moment, strike=strike)
    failed_clearly(told, *words)
    assert rows(small.path, version=0) == before  # what was there can be read all the while
    small.free()
    again = redcal(*COMMAND)
    assert again.code == 0, again.err
    assert rows(small.path) == rows("calm") != before
    assert rows(small.path, version=0) == before
    assert log(work, small.path) == log(work, "calm")
    assert not list(small.path.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("moment", some(MOMENTS))
def test_the_disk_of_the_target_is_full(target: tuple[Work, Disk], moment: str) -> None:
    check(target, moment, target[1].fill, NO_ROOM)


@pytest.mark.slow
@pytest.mark.parametrize("moment", some(m for m in MOMENTS if not m.startswith("write of")))
def test_the_target_turns_read_only(target: tuple[Work, Disk], moment: str) -> None:
    check(target, moment, target[1].lock, LOCKED)


def test_a_first_run_on_a_full_disk(work: Work, disk: Callable[[str], Disk]) -> None:
    small = disk("16m")
    work.tree["output"]["table"] = f"{small.path}/out/rows"
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    subprocess.run(small.fill, shell=True, check=True)
    failed_clearly(redcal(*COMMAND), *NO_ROOM)
    small.free()
    told = redcal(*COMMAND)
    assert told.code == 0, told.err
    assert len(rows(small.path)) == 600


@pytest.mark.slow
def test_the_same_process_may_try_again(
    target: tuple[Work, Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not even write that its run had failed, and still has the process's number."""
    from redcal_spark.backends.local.backend import LocalBackend

    work, small = target
    write_rows = LocalBackend.write_rows

    def struck(self: LocalBackend, *arguments: Any) -> Any:
        subprocess.run(small.fill, shell=True, check=True)
        return write_rows(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "write_rows", struck)
        failed_clearly(work.redcal("run"), *NO_ROOM)
    small.free()
    assert work.ran()["status"] == "converged"
    assert rows(small.path) == rows("calm")


def test_files_may_not_grow(work: Work) -> None:
    """A limit that every user may set: the rows are too large for it, the ledger is not."""
    work.tree["reconcile"]["eta"] = 0.05
    small = work.ran()
    before = work.table().sort_by("case").to_pylist()
    sizes = [path.stat().st_size for path in Path("out/rows").glob("*.parquet")]
    limit = max(sizes) - 1
    script = (
        "import resource, signal, sys\n"
        "from redcal_spark.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {resource.RLIM_INFINITY}))\n"
        "sys.exit(main(['run', '-c', 'config.yaml', '--force']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done
    assert "out/rows: could not be written" in done.stderr and "Traceback" not in done.stderr
    assert work.table().sort_by("case").to_pylist() == before
    [first, second] = work.runs()
    assert (first["run_id"], second["status"]) == (small["run_id"], "failed")
    assert work.ran("run", "--force")["status"] == "converged"
    assert work.table().sort_by("case").to_pylist() == before

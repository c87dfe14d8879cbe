"""What every row must show, step by step. Not collected by itself: tests/versions names it.

The expectations are fixed: the patch log that release 0.1 sealed, and rows that the local engine
makes of the same log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.spark import ship
from redcal_spark.cli import main
from redcal_spark.runs import patch_writer
from redcal_spark.runs.patch_writer import Progress
from tests.compat.test_earlier_versions import CONFIG, log_today
from tests.e2e.work import Told

SEALED = Path(__file__).parents[1] / "compat" / "0.1"
ON_SPARK = pytest.param("spark", marks=pytest.mark.spark)
NEW = ("a_reconciled", "b_reconciled", "triage_1_after", "triage_2_after", "touched")


class Night:
    """A folder with the scores that release 0.1 reconciled, and a configuration of today."""

    def __init__(self, capsys: pytest.CaptureFixture[str], engine: str):
        self._capsys = capsys
        self.tree: dict[str, Any] = yaml.safe_load(CONFIG)
        self.tree["output"]["table"] = "out/rows"
        self.tree["engine"] = {"name": engine, "scratch": os.path.abspath("scratch")}

    def __call__(self, command: str, *arguments: str, code: int = 0) -> Told:
        Path("config.yaml").write_text(yaml.safe_dump(self.tree, sort_keys=False), "utf-8")
        self._capsys.readouterr()
        found = main([command, "-c", "config.yaml", *arguments])
        told = Told(found, *self._capsys.readouterr())
        assert found == code, f"{command}: {told.out}\n{told.err}"
        return told

    def log(self) -> list[Any]:
        return self("log", "--json", "--engine", "local").lines  # tables are the same for both


@pytest.fixture(params=[ON_SPARK, "local"])
def night(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Night]:
    if request.param == "spark":
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SEALED / "tables" / "scores", "tables/scores")
    yield Night(capsys, request.param)
    assert not Path("scratch").exists() or not list(Path("scratch").iterdir())


def sealed() -> list[Any]:
    log = log_today(SEALED)
    assert len(log) > 10
    return log


def rows(name: str) -> pa.Table:
    return DeltaTable(str(name)).to_pyarrow_table().sort_by("case")


def same_rows(name: str = "out/rows") -> None:
    """The scores and actions that release 0.1 wrote."""
    then, now = rows(str(SEALED / "tables" / "rows")), rows(name)
    assert now["case"] == then["case"]
    for column in NEW:
        assert now[column].to_pylist() == then[column].to_pylist(), column


def test_run_then_no_op(night: Night) -> None:
    first = night("run", "--json").json
    assert (first["status"], first["patches"]) == ("converged", len(sealed()))
    assert night.log() == sealed()
    same_rows()
    version = DeltaTable("out/rows").version()
    again = night("run", "--json").json
    assert again["unchanged"] and again["run_id"] == first["run_id"]
    assert DeltaTable("out/rows").version() == version


def test_resume(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Struck after its third patch, it goes on from there."""
    monkeypatch.setattr(patch_writer, "EVERY", 0)
    monkeypatch.setattr(patch_writer, "SHARE", 0)
    original, left = Progress.patch, 3

    def fails(self: Progress, *arguments: Any) -> Any:
        nonlocal left
        found = original(self, *arguments)
        left -= 1
        if not left:
            raise OSError("struck")
        return found

    monkeypatch.setattr(Progress, "patch", fails)
    assert "struck" in night("run", code=1).err
    monkeypatch.setattr(Progress, "patch", original)
    assert "continuing run" in night("run").err
    assert night.log() == sealed()
    same_rows()


def test_merge(night: Night) -> None:
    night.tree["output"]["mode"] = "merge"
    whole = rows("tables/scores")
    write_deltalake("tables/scores", whole.slice(0, len(whole) // 2), mode="overwrite")
    night("run", "--set", "reconcile.max_steps=2", code=3)
    write_deltalake("tables/scores", whole, mode="overwrite")
    night("run")
    assert night.log() == sealed()
    same_rows()


def test_apply(night: Night) -> None:
    night("fit")
    assert not Path("out/rows").exists()
    night("apply")
    same_rows()


def test_audit(night: Night) -> None:
    told = night("audit", "--json").json
    labelled = rows("tables/scores")["outcome"].drop_null()
    assert told["rows"] == len(labelled)
    assert not Path("out").exists()  # it writes nothing


@pytest.mark.parametrize("night", [ON_SPARK], indirect=True)
def test_stream(night: Night) -> None:
    night.tree["output"]["mode"] = "append"
    model = ("--incremental", "--model", str(SEALED / "model.json"), "--json")
    whole = rows("tables/scores")
    half = len(whole) // 2
    shutil.rmtree("tables/scores")
    for part in (whole.slice(0, half), whole.slice(half)):
        write_deltalake("tables/scores", part, mode="append")
        assert night("apply", *model).json["rows"] == len(part)
    assert night("apply", *model).json["rows"] == 0
    same_rows()


@pytest.mark.spark
def test_workers(spark: Any) -> None:
    """The wheel is installed for workers, too: they have the driver's package."""
    assert ship._workers_have_it(spark)

"""One rule for all paths: relative ones start at the working folder, which -C sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.work import Work

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(work: Work) -> Work:
    """A configuration in a folder of its own, whose paths all are relative."""
    Path("conf").mkdir()
    Path("costs").mkdir()
    losses = work.tree["losses"]
    Path("costs/losses.yaml").write_text(yaml.safe_dump(losses, sort_keys=False), "utf-8")
    work.tree["losses"] = "costs/losses.yaml"
    work.tree["output"] |= {"report": "pages/report.html", "runs": "ledger/runs"}
    Path("pages").mkdir()
    Path("conf/job.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    return work


WRITTEN = ("out/rows", "out/rows_patches", "ledger/runs", "pages/report.html", "model.json")


@pytest.mark.slow
def test_as_cron_does(job: Work, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It starts in the home folder of the user."""
    home = tmp_path_factory.mktemp("home")
    for arguments in (
        ["-C", str(job.folder), "run", "-c", "conf/job.yaml"],
        ["export", "--directory", str(job.folder), "-c", "conf/job.yaml", "-o", "model.json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "redcal_spark.cli", *arguments],
            cwd=home,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
    for name in WRITTEN:
        assert (job.folder / name).exists(), name


def test_it_is_as_if_started_there(job: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    here = job.cli("run", "-c", "conf/job.yaml", "--json")
    assert here.code == 0, here.err
    monkeypatch.chdir("conf")
    there = job.cli("run", "-C", "..", "-c", "conf/job.yaml", "--json")
    assert there.json["run_id"] == here.json["run_id"] and there.json["unchanged"]
    assert Path.cwd() == job.folder / "conf"  # who calls main() stays where he is


def test_an_error_says_where_it_looked(job: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("conf")
    told = job.cli("check", "-c", "conf/job.yaml")
    looked = f"looked for {job.folder}/conf/"
    assert (told.code, told.err) == (
        2,
        f"redcal check: conf/job.yaml: no such file; {looked}conf/job.yaml "
        "(-C DIR starts in another folder)\n",
    )
    told = job.cli("check", "-c", "job.yaml")
    assert told.code == 2
    assert f"costs/losses.yaml: no such file; {looked}costs/losses.yaml (-C" in told.err
    told = job.cli("check", "-c", "job.yaml", "--set", "losses=../costs/losses.yaml")
    assert told.code == 2
    assert f"scores.parquet: no such file or folder; {looked}scores.parquet (-C" in told.err
    told = job.cli("apply", "-C", "..", "-c", "conf/job.yaml", "--model", "none.json")
    assert told.code == 2
    assert f"none.json: no such file; looked for {job.folder}/none.json (-C" in told.err


def test_check_says_the_folder(job: Work) -> None:
    told = job.cli("check", "-c", "conf/job.yaml")
    assert f"  folder   {job.folder}\n" in told.out
    assert json.loads(job.cli("check", "-c", "conf/job.yaml", "--json").out)["folder"] == str(
        job.folder
    )


def test_no_such_folder(job: Work) -> None:
    told = job.cli("-C", "nowhere", "check", "-c", "conf/job.yaml")
    assert (told.code, told.err) == (
        2,
        f"redcal check: -C nowhere: No such file or directory (in {job.folder})\n",
    )
    told = job.cli("check", "-C", "scores.parquet", "-c", "conf/job.yaml")
    assert told.code == 2 and "-C scores.parquet: Not a directory" in told.err

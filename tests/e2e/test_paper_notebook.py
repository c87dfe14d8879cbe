"""Notebook 05: the paper's experiments and figures; without the data it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_data import FOLDER

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "05_paper_experiments.py"


def executed(folder: Path, data: Path) -> str:
    """What it prints, run as a script in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(NOTEBOOK)],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "agg", "REDCAL_DATA": str(data), "REDCAL_FULL": "0"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_data(tmp_path: Path) -> None:
    told = executed(tmp_path, tmp_path)
    assert (
        f"nothing was drawn: no imagenet_top5.parquet, no dermamnist.parquet in {tmp_path}" in told
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="../shared/data is not there")
def test_with_data(tmp_path: Path) -> None:
    told = executed(tmp_path, FOLDER)
    figures = sorted(tmp_path.glob("*.png"))
    assert [f"[{path.name}]" in told for path in figures] == [True] * 11
    assert all(path.stat().st_size > 20_000 for path in figures)
    for key in ("ham10000-paper, 2 draws", "imagenet_10-auto, 10 draws", "imagenet_100-finer, 4"):
        assert key in told
    assert "ReDCal lowers the loss" in told

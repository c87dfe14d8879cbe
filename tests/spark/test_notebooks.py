"""The notebooks: valid Databricks sources that run, on a local Spark and in an empty folder."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import backends

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
IN_CI = ("01_quickstart", "04_choosing_parameters")
CELL = "\n# COMMAND ----------\n"

# Runs a notebook as a script, and looks at what it left behind in its own variables.
RUNNER = """
import json, runpy, sys
found = runpy.run_path(sys.argv[1], run_name="__main__")
print("LEFT", json.dumps({name: eval(name, found) for name in sys.argv[2:]}))
spark = found.get("spark")
if spark is not None:
    spark.stop()
"""


def stem(path: Path) -> str:
    return path.stem


def test_there_are_five() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=stem)
def test_databricks_source(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Databricks notebook source\n# MAGIC %md\n# MAGIC # ")
    tree = ast.parse(text)  # so there is no bare magic
    lines = text.splitlines()
    magics = [line for line in lines if line.startswith("# MAGIC %")]
    assert set(magics) == {"# MAGIC %md"}
    # what looks like a separator or a magic is one, to the letter
    marked = [line for line in lines if re.match(r"#\s*(COMMAND|MAGIC)\b", line)]
    assert all(
        line in ("# COMMAND ----------", "# MAGIC") or line.startswith("# MAGIC ")
        for line in marked
    )
    cells = text.removeprefix("# Databricks notebook source\n").split(CELL)
    for cell in cells:
        own = [line for line in cell.strip().splitlines() if line.strip()]
        magic = [line.startswith("# MAGIC") for line in own]
        assert own and (all(magic) or not any(magic)), cell  # text or code, and not both
        assert all(magic) == own[0].startswith("# MAGIC %md")
    assert sum(cell.strip().startswith("# MAGIC %md") for cell in cells) >= 5
    shown = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _name(n) == "display"]
    assert len(shown) >= 4


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def left_by(path: Path, folder: Path, *wanted: str) -> tuple[dict[str, object], str]:
    """Run it in an empty folder; what it left in these expressions, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, str(path), *wanted],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != backends.VARIABLE}
        | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    *said, last = done.stdout.splitlines()
    assert last.startswith("LEFT "), last
    return json.loads(last.removeprefix("LEFT ")), "\n".join(said)


WANTED = {
    "01_quickstart": ("pair.status", "summary.to_dict()"),
    "02_patch_log": ("pair.status", "len(told.steps)", "told.end.to_json()"),
    "03_scheduled_job": (
        "[first, second, third, again]",
        "len(runs)",
        "list(runs.read_version)",
        "same",
    ),
    "04_choosing_parameters": (
        "list(etas['disagree, holdout'])",
        "list(betas.patches)",
        "before['disagree']",
    ),
}


# 05 needs no Spark but the real predictions: tests/e2e/test_paper_notebook.py
OURS = [path for path in NOTEBOOKS if path.stem in WANTED]


@pytest.mark.spark
@pytest.mark.skipif(backends.name() != "classic", reason="each has a session of its own")
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[] if p.stem in IN_CI else pytest.mark.slow) for p in OURS],
    ids=[path.stem for path in OURS],
)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    before = set(ROOT.rglob("*.png"))
    left, said = left_by(path, folder, *WANTED[path.stem])
    charts = re.findall(r"^\[(\w+\.png)\]$", said, re.MULTILINE)
    assert charts and all((folder / name).stat().st_size > 5_000 for name in charts)
    assert set(ROOT.rglob("*.png")) == before  # nothing outside of the folder
    CHECKS[path.stem](left)


def quickstart(left: dict[str, object]) -> None:
    summary = left["summary.to_dict()"]
    assert isinstance(summary, dict)
    assert left["pair.status"] == "converged"
    before, after = summary["before"], summary["after"]
    assert after["disagree, %"] < 5 < 25 < before["disagree, %"]
    assert all(after[f"cost of {m}"] < before[f"cost of {m}"] for m in ("vitals", "notes"))


def patch_log(left: dict[str, object]) -> None:
    assert left["pair.status"] == "converged"
    assert isinstance(left["len(told.steps)"], int) and left["len(told.steps)"] >= 2
    end = left["told.end.to_json()"]
    assert isinstance(end, dict) and end["losses"][0]["agree"]


def scheduled_job(left: dict[str, object]) -> None:
    assert left["[first, second, third, again]"] == [0, 0, 0, 0]
    assert left["len(runs)"] == 2  # the second night left no row
    assert left["list(runs.read_version)"] == ["0", "1"]
    assert left["same"] is True


def choosing_parameters(left: dict[str, object]) -> None:
    falling, patches = left["list(etas['disagree, holdout'])"], left["list(betas.patches)"]
    assert isinstance(falling, list) and isinstance(patches, list)
    assert falling[-1] < 1 < falling[0] < float(str(left["before['disagree']"]))
    assert patches[-1] > patches[0]


CHECKS = {
    "01_quickstart": quickstart,
    "02_patch_log": patch_log,
    "03_scheduled_job": scheduled_job,
    "04_choosing_parameters": choosing_parameters,
}

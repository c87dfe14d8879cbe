"""The wheel, built as the bundle builds it, in a clean environment and from another folder."""

from __future__ import annotations

import json
import re
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.backends import environment
from tests.wheels import ROOT, build, install, needed, requirements, run, tasks


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel") / "sources")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Of an environment with the wheel and its dependencies: no Spark, no matplotlib."""
    return install(wheel, tmp_path_factory.mktemp("clean") / "venv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Path:
    """Another folder, with the demo's patients in it."""
    found = tmp_path_factory.mktemp("another")
    run([str(python.parent / "redcal"), "demo", "--rows", "3000", "-q"], found)
    return found


def test_it_is_clean(python: Path, tmp_path: Path) -> None:
    looks = "import redcal_spark, sys; print(redcal_spark.__file__)"
    place = run([str(python), "-c", looks], tmp_path).stdout.strip()
    assert place.startswith(str(python.parents[1])) and not place.startswith(str(ROOT))
    for name in ("pyspark", "delta", "pytest", "matplotlib"):
        run([str(python), "-c", f"import {name}"], tmp_path, code=1)


def test_the_command(python: Path, folder: Path) -> None:
    redcal = str(python.parent / "redcal")
    told = run([redcal, "--version"], folder).stdout
    assert told == f"redcal {metadata.version('redcal-spark')}\n"
    log = run([redcal, "log", "-c", "out/demo.yaml", "--json"], folder).stdout
    assert json.loads(log.splitlines()[0])["step"] == 0
    assert "usage" in run([redcal], folder, code=2).stderr
    run([redcal, "run", "-c", "out/demo.yaml", "--set", "reconcile.max_steps=1"], folder, code=3)


@pytest.mark.slow
def test_tasks(python: Path, folder: Path) -> None:
    """A number that is returned would go unseen, and the next task would start."""
    config = ["-c", "out/demo.yaml", "--set=output.table=out/demo/tasks"]
    told = tasks(
        python,
        folder,
        ["audit", *config],
        ["fit", *config],
        ["apply", *config],
        ["--help"],
        [],
        ["fit"],
        ["fit", "-c", "missing.yaml"],
        ["run", *config, "--set=reconcile.max_steps=2"],
    )
    assert told[:4] == ["succeeded"] * 4
    assert (folder / "out/demo/tasks/_delta_log").is_dir()
    why = "wrong use, configuration or input"
    assert told[4:] == [
        f"RunError redcal ended with exit code 2: {why}; its output says more",
        f"RunError redcal fit ended with exit code 2: {why}; its output says more",
        f"RunError redcal fit ended with exit code 2: {why}; its output says more",
        "RunError redcal run ended with exit code 3: it finished, but capped, stalled or cut; "
        "its output says more",
    ]


def test_nothing_is_missing_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        there = {name for name in packed.namelist() if name.startswith("redcal_spark/")}
    ours = {path for path in (ROOT / "redcal_spark").rglob("*") if path.is_file()}
    assert there == {str(p.relative_to(ROOT)) for p in ours if p.parent.name != "__pycache__"}


@pytest.mark.slow
def test_unpacked_by_nobody(wheel: Path, folder: Path, tmp_path: Path) -> None:
    """As `--py-files` gives it to a driver: on the path as it is, a zip file."""
    more = map(Requirement, ("pyspark", "jinja2"))
    python = environment(tmp_path / "venv", needed([*requirements(wheel), *more]))
    redcal = [str(python), "-m", "redcal_spark.cli"]
    env = {"PYTHONPATH": str(wheel)}
    run(redcal, folder, code=1)
    page = str(tmp_path / "page.html")
    run([*redcal, "report", "-c", "out/demo.yaml", "-o", page], folder, env=env)
    assert "</html>" in Path(page).read_text("utf-8")
    sends = """
import zipfile, redcal_spark
from redcal_spark.backends.spark.ship import archive
print(redcal_spark.__file__, *sorted(zipfile.ZipFile(archive()).namelist()), sep="\\n")
"""
    place, *sent = run([str(python), "-c", sends], folder, env=env).stdout.split()
    assert place.startswith(str(wheel))
    with zipfile.ZipFile(wheel) as packed:
        sources = [n for n in packed.namelist() if re.fullmatch(r"redcal_spark/.*\.py", n)]
    assert sent == sorted(sources)

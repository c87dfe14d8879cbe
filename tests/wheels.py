"""The wheel as the bundle builds it, and clean environments to try it in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email import message_from_bytes
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import backends

ROOT = Path(__file__).parents[1]
SOURCES = ("redcal_spark", "setup.py", "pyproject.toml", "README.md", "LICENSE")

# What Databricks does with a wheel task: it calls the entry point and ignores what it returns. The
# task fails if that raises; if it exits, nobody knows, so that this process ends at once.
WHEEL_TASK = """
import json, sys
from importlib import metadata
package, entry_point, *commands = sys.argv[1:]
found = [e for e in metadata.distribution(package).entry_points if e.name == entry_point]
assert len(found) == 1, found
for command in commands:
    sys.argv = [package, *json.loads(command)]
    try:
        found[0].load()()
        print("TASK succeeded", flush=True)
    except Exception as err:
        print("TASK", type(err).__name__, err, flush=True)
print("TASK no more", flush=True)
"""


def tasks(
    python: Path, folder: Path, *commands: list[str], env: Mapping[str, str] | None = None
) -> list[str]:
    """How each task ended: `succeeded`, or what was raised."""
    lines = [json.dumps(command) for command in commands]
    called = [str(python), "-c", WHEEL_TASK, "redcal_spark", "redcal-task", *lines]
    told = run(called, folder, env=env).stdout.splitlines()
    *ends, last = [line.removeprefix("TASK ") for line in told if line.startswith("TASK ")]
    assert last == "no more" and len(ends) == len(commands), told
    return ends


def bundle() -> Any:
    return yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))


def build(folder: Path) -> Path:
    """Run the bundle's build command on a copy of the sources; the path of the wheel."""
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    command = bundle()["artifacts"]["wheel"]["build"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the builders are in ours
    env = {"PATH": path, "PIP_NO_BUILD_ISOLATION": "0"}
    run(["sh", "-c", f"exec {command}"], folder, env=env)
    (wheel,) = folder.glob("dist/*.whl")
    return wheel


def install(wheel: Path, folder: Path, *more: str) -> Path:
    """A clean environment with the wheel, what it asks for, and more; the path of its Python."""
    python = backends.environment(folder, needed([*requirements(wheel), *map(Requirement, more)]))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], folder)
    run([*pip, "check"], folder)
    return python


def requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [n for n in packed.namelist() if n.endswith(".dist-info/METADATA")]
        told = message_from_bytes(packed.read(name))
    return [Requirement(line) for line in told.get_all("Requires-Dist", [])]


def needed(wanted: Iterable[Requirement]) -> set[str]:
    """The names of all distributions that these requirements lead to."""
    found: dict[str, set[str]] = {}  # and the extras that were asked of them
    left = list(_asked(wanted, {""}))
    while left:
        name, extras = left.pop()
        if not extras <= found.get(name, set()):
            found[name] = found.get(name, set()) | extras
            left += _asked(map(Requirement, metadata.requires(name) or ()), found[name])
    return set(found)


def _asked(wanted: Iterable[Requirement], extras: set[str]) -> Iterator[tuple[str, set[str]]]:
    for one in wanted:
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
            yield canonicalize_name(one.name), {"", *one.extras}


def run(
    command: list[str], folder: Path, *, code: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """In another folder, without our own paths; it must end with this code."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", backends.VARIABLE)
    given = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        command,
        cwd=folder,
        env=given | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done

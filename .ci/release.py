"""Checks what a release hands out: python .ci/release.py. Exits with 1 and says what is wrong.

Version, changelog and fixtures agree; the source archive builds the wheel; each of the two,
installed by pip in a clean environment, runs the demo, the README's Python and its five commands.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("redcal_spark", "setup.py", "pyproject.toml", "README.md", "LICENSE")
COMMANDS = ("check", "audit", "run", "evaluate", "report")
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def main() -> int:
    version = read("redcal_spark/__init__.py", r'^__version__ = "(.+)"$')
    wrong = list(words(version))
    for line in wrong:
        print(f"not ready: {line}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="redcal-release-") as made:
        built = build(Path(made))
        for package in built:
            tried(package, Path(made, package.suffix.strip(".")), version)
            print(f"{package.name}: installs in a clean environment, passes the quickstart")
        if not wrong:
            shutil.rmtree(ROOT / "dist", ignore_errors=True)
            shutil.copytree(built[0].parent, ROOT / "dist")
            print(f"dist: {', '.join(package.name for package in built)}")
    return int(bool(wrong))


def read(name: str, pattern: str) -> str:
    (value,) = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return str(value)


def words(version: str) -> Iterator[str]:
    """What people read of this version, and what later ones must read."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"__version__ is {version}: a release is X.Y.Z"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", changes, re.MULTILINE)
    if newest[:1] != [version]:
        yield f"CHANGELOG.md: its first section is [{newest[0]}], not [{version}] - its date"
    fixtures = Path("tests/compat", ".".join(version.split(".")[:2]))
    if not (ROOT / fixtures).is_dir():
        yield f"{fixtures}: no fixtures of this version: python -m tests.compat.make"


def build(made: Path) -> list[Path]:
    """The source archive, and the wheel that is built from what is in it alone."""
    sources, dist = made / "sources", made / "dist"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, sources / name, ignore=skipped)
        else:
            shutil.copy(ROOT / name, sources / name)
    backend = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
    run([sys.executable, "-c", backend, str(dist)], sources)
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(made / "unpacked", filter="data")
    (unpacked,) = (made / "unpacked").iterdir()
    how = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(dist), ".")
    run([sys.executable, *PIP, *how], unpacked)
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed_wheel:
        there = {name for name in packed_wheel.namelist() if name.startswith("redcal_spark/")}
    package = (path for path in (sources / "redcal_spark").rglob("*") if path.is_file())
    missing = {str(path.relative_to(sources)) for path in package} ^ there
    if missing:
        sys.exit(f"{wheel.name}: not the files of the package: {', '.join(sorted(missing))}")
    return [wheel, archive]


def tried(package: Path, place: Path, version: str) -> None:
    """As a user would: a new environment, pip, then what the README says."""
    venv.create(place / "venv", with_pip=True)
    python, redcal = (str(place / "venv/bin" / name) for name in ("python", "redcal"))
    run([python, *PIP, "install", f"{package}[report]"], place)
    run([python, *PIP, "check"], place)
    if run([redcal, "--version"], place) != f"redcal {version}\n":
        sys.exit(f"{package.name}: redcal --version does not say {version}")
    run([redcal, "demo", "--rows", "20000"], place)
    example = read("README.md", r"(?s)^```python\n(.*?)^```$")
    run([python, "-c", example], place)
    for command in COMMANDS:
        run([redcal, command, "-c", "out/demo.yaml"], place)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:300]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

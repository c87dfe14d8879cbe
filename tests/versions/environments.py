"""An environment for a row: what the platform brings, then the wheel, then what tests need."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests import wheels
from tests.versions.rows import Row

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "packaging")
CODE = ("redcal_spark", "tests/versions", "tests/contract", "setup.py")


class Unmade(Exception):
    """Why an environment could not be made."""


@dataclass(frozen=True)
class Environment:
    """added: what the wheel brought along. replaced: of the platform's own; should be empty."""

    python: Path
    added: tuple[str, ...]
    replaced: tuple[str, ...]


def code_digest() -> str:
    """What is under test, so that a row that passed need not run again."""
    found = hashlib.sha256()
    for name in CODE:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return found.hexdigest()[:16]


def make(row: Row, folder: Path) -> Environment:
    """The row's environment; made once, but for the wheel, which is that of now."""
    wanted = json.dumps([row.python, *row.brings])
    venv, mark = folder / "venv", folder / "brings.json"
    python = venv / "bin" / "python"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _uv("venv", "--quiet", "--python", _python(row.python), str(venv))
        _brings(python, row)
        mark.write_text(wanted, encoding="utf-8")
        (folder / "platform.json").write_text(json.dumps(_installed(python)), encoding="utf-8")
    before: dict[str, str] = json.loads((folder / "platform.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder / "sources", ignore_errors=True)
    wheel = wheels.build(folder / "sources")
    _install(python, "--reinstall-package", "redcal-spark", f"redcal-spark[report] @ {wheel}")
    _remove_tools(python)
    after = _installed(python)
    added = sorted(f"{name} {after[name]}" for name in after.keys() - before.keys())
    replaced = sorted(
        f"{name} {was}, now {after.get(name)}"
        for name, was in before.items()
        if after.get(name) != was
    )
    _install(python, *_locked(TOOLS))
    return Environment(python, tuple(added), tuple(replaced))


def _brings(python: Path, row: Row) -> None:
    """delta-spark is pure Python; some of its releases ask for an older Spark than they work on."""
    first = [one for one in row.brings if not one.startswith("delta-spark")]
    _install(python, *first, "importlib-metadata")
    _install(python, "--no-deps", *(one for one in row.brings if one not in first))


def _remove_tools(python: Path) -> None:
    """Those of an earlier round, which are not the wheel's."""
    there = _installed(python)
    gone = [name for name in _with_dependencies() if name in there]
    if gone:
        _uv("pip", "uninstall", "--quiet", "--python", str(python), *gone)


def _with_dependencies() -> tuple[str, ...]:
    return (*TOOLS, "iniconfig", "pluggy", "sortedcontainers", "attrs")


def _locked(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield f"{name}=={metadata.version(name)}"


def _installed(python: Path) -> dict[str, str]:
    told = _uv("pip", "list", "--format", "json", "--python", str(python))
    return {one["name"].lower(): one["version"] for one in json.loads(told)}


def _install(python: Path, *what: str) -> None:
    if [one for one in what if not one.startswith("--")]:
        _uv("pip", "install", "--quiet", "--python", str(python), *what)


def _python(version: str) -> str:
    """An interpreter of this machine: none is fetched."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [
        *([sys.executable] if version == own else []),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))),
        *(str(Path(folder, f"python{version}")) for folder in os.get_exec_path()),
    ]
    for path in candidates:
        with suppress(OSError):
            if not subprocess.run([path, "-c", "import venv"], capture_output=True).returncode:
                return path
    raise Unmade(f"there is no Python {version} here")


def _uv(*arguments: str) -> str:
    done = subprocess.run([str(UV), *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise Unmade(f"uv {' '.join(arguments[:2])}: {done.stderr.strip()[-2_000:]}")
    return done.stdout

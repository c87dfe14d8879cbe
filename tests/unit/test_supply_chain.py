"""What is installed is pinned, hashed and of a known licence."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENTRY = re.compile(r"^(\S+)==(\S+)( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
# Licences that ask for no more than to be named.
FINE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}
# Weak copyleft, on files of their own that we do not change: tools, which are shipped to nobody,
# and the certificates (certifi) that MLflow's client brings along.
TOOLS = {"MPL-2.0"}


def locked() -> dict[str, str]:
    return {m[1]: m[2] for line in LOCK.splitlines() if (m := ENTRY.match(line)) is not None}


def licences() -> dict[str, tuple[str, str, str]]:
    """Distribution -> version, licence, who needs it."""
    rows = (ROOT / "LICENSES.md").read_text(encoding="utf-8").splitlines()
    cells = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row.startswith("|"))
    return {name: (version, licence, by) for name, version, licence, by in list(cells)[2:]}


def test_the_lock_is_nothing_but_pins_with_hashes() -> None:
    lines = LOCK.splitlines()
    assert len(locked()) > 60
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("#"):
            continue
        if HASH.match(line):
            assert before.endswith("\\"), line  # belongs to what is above it
            continue
        assert ENTRY.match(line), line  # no address, no option, no range, no pin without a hash
        assert not before.endswith("\\"), line
    assert not lines[-1].endswith("\\")


def test_the_package_asks_for_nothing_that_is_not_locked() -> None:
    asked = metadata.requires("redcal-spark") or []
    names = {canonicalize_name(Requirement(line).name) for line in asked}
    assert len(names) > 20
    assert names - locked().keys() == set()


def test_the_licences_name_every_locked_distribution() -> None:
    found = licences()
    assert {name: version for name, (version, _, _) in found.items()} == locked(), "make licences"


@pytest.mark.parametrize("name", locked())
def test_the_licence_is_known_and_fine(name: str) -> None:
    _, licence, by = licences()[name]
    allowed = FINE | TOOLS if by in ("development", "documentation", "mlflow") else FINE
    assert set(re.split(r" AND | OR ", licence)) <= allowed


def test_the_demo_installs_a_part_of_the_lock() -> None:
    """What the embedded default needs, in the versions that are tested: no Spark, no tools."""
    entries = re.compile(r"^(\S+==\S+.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
    demo = (ROOT / "requirements-demo.lock").read_text(encoding="utf-8")
    part = {re.split("[= ]", e)[0]: e for e in entries.findall(demo)}
    whole = {re.split("[= ]", e)[0]: e for e in entries.findall(LOCK)}
    assert part.keys() < whole.keys()
    for name, entry in part.items():
        assert entry == whole[name]  # version and hashes
    assert not part.keys() & {"pyspark", "delta-spark", "pytest", "mypy", "mkdocs"}
    asked = metadata.requires("redcal-spark") or []
    base = {canonicalize_name(Requirement(r).name) for r in asked if "extra" not in r}
    assert {"numpy", "pyarrow", "deltalake"} <= base <= part.keys()

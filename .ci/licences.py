"""Writes LICENSES.md: the licence of every distribution in requirements.lock, from its metadata.

.venv/bin/python .ci/licences.py
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", re.MULTILINE)
PARTS = (
    "",
    "report",
    "spark",
    "notebook",
    "mlflow",
    "dev",
    "docs",
)  # who needs it, the first that does
CALLED = {
    "": "the package",
    "report": "report",
    "spark": "spark",
    "notebook": "notebook",
    "mlflow": "mlflow",
    "dev": "development",
    "docs": "documentation",
}
# Of other platforms than this one, so that their metadata is not here.
ELSEWHERE = {"colorama": "BSD-3-Clause"}
# What classifiers and old metadata call them.
SHORT = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
HEAD = """# Licences

Of every distribution in `requirements.lock`, as its own metadata tells it; `make licences` writes
this file anew. The package itself is under Apache-2.0 (`LICENSE`); it ships none of these.

| distribution | version | licence | needed by |
|---|---|---|---|
"""


def licence(name: str) -> str:
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ELSEWHERE[name]
    if "License-Expression" in found:
        return str(found["License-Expression"])
    told = [
        text.split(" :: ")[-1] for text in found.get_all("Classifier") or [] if "License ::" in text
    ]
    known = [SHORT[text] for text in told if text in SHORT]
    if known:
        return " AND ".join(dict.fromkeys(known))
    first = str(found.get("License") or "").partition("\n")[0].strip()
    return SHORT.get(first, first) or "unknown"


def needed_by(part: str) -> set[str]:
    """The package's requirements of one part, and all that these require."""
    found: set[str] = set()
    waiting = [("redcal-spark", part)]
    while waiting:
        name, extra = waiting.pop()
        try:
            lines = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            other = canonicalize_name(requirement.name)
            marker = requirement.marker
            # the markers of other platforms count too: the lock is for all of them
            asked = (
                marker is None or "extra" not in str(marker) or marker.evaluate({"extra": extra})
            )
            if asked and other not in found:
                found.add(other)
                waiting += [(other, more) for more in ("", *requirement.extras)]
    return found


def main() -> None:
    locked = LOCKED.findall((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    needs = {part: needed_by(part) for part in PARTS}
    lines = []
    for name, version in sorted(locked):
        who = next((CALLED[part] for part in PARTS if name in needs[part]), CALLED["dev"])
        lines.append(f"| {name} | {version} | {licence(name)} | {who} |\n")
    (ROOT / "LICENSES.md").write_text(HEAD + "".join(lines), encoding="utf-8")
    print(f"{len(lines)} distributions in LICENSES.md")


if __name__ == "__main__":
    main()

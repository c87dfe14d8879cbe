"""Looks up every distribution of requirements.lock in the databases of known vulnerabilities.

    .venv/bin/python .ci/audit_deps.py

pip-audit does it, in an environment of its own. Ends with its exit code; and with 1 if a
distribution could not be looked up, for then nobody knows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    uv = Path(sys.executable).with_name("uv")
    options = [
        "--requirement",
        str(ROOT / "requirements.lock"),
        "--disable-pip",
        "--require-hashes",
    ]
    run = subprocess.run(
        [
            str(uv),
            "tool",
            "run",
            "pip-audit",
            *options,
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        found = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError):
        print("pip-audit gave no answer: its database cannot be had from here", file=sys.stderr)
        return run.returncode or 1
    skipped = [entry for entry in found if "skip_reason" in entry]
    for entry in found:
        for known in entry.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no version"
            print(f"{entry['name']} {entry['version']}: {known['id']}, mended in {fixed}")
    print(f"{len(found) - len(skipped)} of {len(found)} distributions were looked up")
    if skipped:
        print(
            f"the database of vulnerabilities cannot be had from here for {len(skipped)} of them, "
            f"so that nothing is known; the first: {skipped[0]['skip_reason']}",
            file=sys.stderr,
        )
        return run.returncode or 1
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())

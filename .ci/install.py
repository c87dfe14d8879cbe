"""Install what a lock file pins, with a bar: python .ci/install.py LOCK. Only the standard library.

pip is quiet for a minute; a bar tells that it is at work. What it says is shown if it fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

WIDTH = 30
PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
COLLECTING = re.compile(r"Collecting ([A-Za-z0-9._-]+)")


def main(lock: str) -> int:
    whole = len(PIN.findall(Path(lock).read_text(encoding="utf-8")))
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--require-hashes", "-r", lock]
    start, said, done = time.monotonic(), [], 0
    shown = sys.stderr.isatty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            if (found := COLLECTING.match(line)) is not None:
                done += 1
                bar(shown, done, whole, f"fetching {found[1]}")
            elif line.startswith("Installing"):
                bar(shown, whole, whole, f"unpacking {done} packages")
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)
    if pip.returncode:
        sys.stderr.writelines(said)
    else:
        print(f"installed {done} packages in {time.monotonic() - start:.0f} s", file=sys.stderr)
    return pip.returncode


def bar(shown: bool, done: int, whole: int, what: str) -> None:
    if shown:
        full = min(WIDTH, WIDTH * done // max(whole, 1))
        line = f"[{'#' * full}{' ' * (WIDTH - full)}] {done} of {whole}  {what}"
        print(f"\r\x1b[K{line[:79]}", end="", flush=True, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

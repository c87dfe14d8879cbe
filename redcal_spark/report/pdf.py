"""The report on paper: its page, printed by a Chromium that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from redcal_spark.errors import RunError, UsageError

BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("microsoft-edge", "chrome"),
)
OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    *("--disable-sync", "--no-pdf-header-footer"),
)
PATIENCE = 120.0  # seconds for a page; a large one takes two


def find_browser() -> str:
    """What prints, or a refusal that says what was looked for."""
    there = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if there is None:
        raise UsageError(
            "--format pdf: needs Chromium to print with, and there is none on PATH (looked for: "
            f"{', '.join(BROWSERS)}); install it, or print the HTML report from any browser"
        )
    return there


def printed(page: str, browser: str) -> bytes:
    """The page as PDF. The browser gets a folder of its own and loads nothing from elsewhere."""
    with tempfile.TemporaryDirectory(prefix="redcal-pdf-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, "report.html"), Path(folder, "report.pdf")
        source.write_text(page, encoding="utf-8")
        # root has no sandbox; the page has no script, and is ours
        sandbox = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
        profile = f"--user-data-dir={folder}/profile"
        command = [browser, *OPTIONS, *sandbox, profile, f"--print-to-pdf={target}"]
        try:
            done = subprocess.run(
                [*command, source.as_uri()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            raise RunError(f"--format pdf: {browser} did not print: {err}") from err
        data = target.read_bytes() if target.exists() else b""
        if done.returncode or not data.startswith(b"%PDF"):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            why = " ".join(last) or f"exit code {done.returncode}"
            raise RunError(f"--format pdf: {browser} did not print: {why}")
        return data

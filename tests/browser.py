"""Chromium without a window, driven over a pipe by its DevTools protocol: no port, no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

PATIENCE = 60.0  # seconds for one answer
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-extensions", "--disable-sync"),
    "--remote-debugging-pipe",
)
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@cache
def find_chromium() -> tuple[str | None, str]:
    """The browser, installed from Debian's packages if need be; or None and the true reason."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found, "is there"
    if shutil.which("apt-get") is None:
        return None, "no chromium, and no apt-get to install it with"
    if os.geteuid() != 0:
        return None, "no chromium, and only root can install it: apt-get install chromium"
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for patience, command in (
        (120, ["apt-get", "update", "-q"]),
        (360, ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"]),
    ):
        try:
            told = subprocess.run(
                command, env=quiet, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"no chromium: {' '.join(command)} took longer than {patience} s"
        if told.returncode:
            last = (told.stderr or told.stdout).strip().splitlines()[-1:]
            return None, f"no chromium: {' '.join(command)} failed: {' '.join(last)}"
    return shutil.which("chromium"), "was installed"


def chromium_or_skip() -> str:
    path, why = find_chromium()
    if path is None:
        pytest.skip(why)
    return path


class Browser:
    """A running Chromium. Commands are sent and answered in order; events are kept."""

    def __init__(self, path: str):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._send = os.pipe()
        self._receive, to_write = os.pipe()
        folder = f"--user-data-dir={self._folder.name}"
        # it reads commands from 3 and writes answers to 4; these may be in use here
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write)]
        self._process = subprocess.Popen(
            [*(sys.executable, "-c", START), *map(str, ends), path, *OPTIONS, folder],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (to_read, to_write, *ends):
            os.close(fd)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._receive, selectors.EVENT_READ)
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)
        finally:
            self._selector.close()
            os.close(self._send)
            os.close(self._receive)
            self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            found = self._next(end)
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait_for(self, method: str, session: str) -> None:
        """Until an event has come, or came before."""
        end = time.monotonic() + PATIENCE
        while not any(
            e.get("method") == method and e.get("sessionId") == session for e in self.events
        ):
            self.events.append(self._next(end))

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            assert left > 0 and self._selector.select(left), "chromium does not answer"
            part = os.read(self._receive, 1 << 20)
            assert part, f"chromium ended with {self._process.poll()}"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def page(self, file: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        """A file in a new tab, at a size, light or dark."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.media("screen", dark=dark)
        page.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, target: str, session: str):
        self._browser = browser
        self._target = target
        self.session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self.session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, kind: str, *, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def problems(self) -> list[str]:
        """Console messages, log entries, exceptions: a page of ours has none."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self._events(*kinds)]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self._events("Network.requestWillBeSent")]

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        self.evaluate("1")  # whatever came before has now been read
        return [
            event
            for event in self._browser.events
            if event.get("sessionId") == self.session and event.get("method") in methods
        ]

    def screenshot(self, file: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def pdf(self, file: Path) -> None:
        self.media("print")
        found = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=False)
        file.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

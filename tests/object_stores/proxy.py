"""A proxy before the S3 server that is slow, refuses, resets or loses answers as it is told.

A process of its own (`python -m tests.object_stores.proxy SERVER`): delta-rs may keep the
interpreter's lock while it waits for an answer.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

# slow: answers late. refuse: 503, as a store that has too much to do. reset: hangs up before the
# server hears of it. lost: hangs up after the server did it. silent: no answer in time. hold: is
# passed on when `release` says so.
Fault = Literal["slow", "refuse", "reset", "lost", "silent", "hold"]
SICK: tuple[Fault, ...] = ("slow", "refuse", "reset", "lost", "silent")
SLOW, SILENT = 0.3, 2.5  # seconds
CONTROL = "/--proxy--/"


@dataclass(frozen=True)
class Proxy:
    """One that runs."""

    url: str

    def at_random(self, seed: int, share: float) -> None:
        """From now on a share of all requests goes wrong, the same for a seed and their order."""
        self._told("rule", seed=seed, share=share)

    def strike(self, fault: Fault, method: str, part: str) -> None:
        """The next request with this method whose path has this part goes wrong."""
        self._told("rule", fault=fault, method=method, part=part)

    def release(self) -> None:
        self._told("release")

    def struck(self) -> list[Any]:
        """What went wrong: the fault, the method, the path."""
        return list(self._told("struck"))

    def _told(self, what: str, **data: Any) -> Any:
        request = urllib.request.Request(f"{self.url}{CONTROL}{what}", json.dumps(data).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def proxied(server: str) -> Iterator[Proxy]:
    """A proxy on a free port, stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, server],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Proxy(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class _State:
    """What is to go wrong, and what went wrong."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rule: dict[str, Any] = {}
        self.random = random.Random()
        self.struck: list[tuple[str, str, str]] = []
        self.free = threading.Event()

    def told(self, what: str, data: dict[str, Any]) -> Any:
        with self.lock:
            if what == "rule":
                self.rule, self.random = data, random.Random(data.get("seed"))
                self.free.clear()
            elif what == "release":
                self.free.set()
            return self.struck

    def fault(self, method: str, path: str) -> str | None:
        with self.lock:
            fault = None
            if "share" in self.rule:
                if self.random.random() < self.rule["share"]:
                    fault = self.random.choice(SICK)
            elif self.rule and method == self.rule["method"] and self.rule["part"] in path:
                fault, self.rule = self.rule["fault"], {}
            if fault is not None:
                self.struck.append((fault, method, path))
            return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_host: str
    state: _State

    def __getattr__(self, name: str) -> Any:  # do_GET, do_PUT, ...
        if name.startswith("do_"):
            return self._asked
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        pass

    def _asked(self) -> None:
        body = self._body()
        if self.path.startswith(CONTROL):
            said = self.state.told(self.path[len(CONTROL) :], json.loads(body))
            self._answer(200, [], json.dumps(said).encode())
            return
        fault = self.state.fault(self.command, self.path)
        if fault == "refuse":
            self._answer(503, [], b"")
            return
        if fault == "slow":
            time.sleep(SLOW)
        elif fault == "silent":
            time.sleep(SILENT)
        elif fault == "hold":
            self.state.free.wait(60)
        if fault in ("reset", "silent"):
            self._hang_up()
            return
        status, headers, data = self._passed_on(body)
        if fault == "lost":
            self._hang_up()
        else:
            self._answer(status, headers, data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return body

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers:
            if key.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(key, value)
        known = {key.lower(): value for key, value in headers}
        length = known.get("content-length", "0") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.server_host, timeout=60)
        try:
            # who takes it for a proxy of the web asks for whole addresses
            _, sign, rest = self.path.partition("://")
            path = f"/{rest.partition('/')[2]}" if sign else self.path
            connection.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
            for key, value in self.headers.items():
                if key.lower() not in ("expect", "connection", "transfer-encoding"):
                    connection.putheader(key, value)
            if "Content-Length" not in self.headers and body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:  # clients hang up, too
        pass


if __name__ == "__main__":
    _Handler.server_host, _Handler.state = urlsplit(sys.argv[1]).netloc, _State()
    with _Server(("127.0.0.1", 0), _Handler) as listening:
        print(listening.server_address[1], flush=True)
        listening.serve_forever()

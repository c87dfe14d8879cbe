"""A real S3 server on loopback: versitygw, on a folder; `-m tests.object_store` builds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs

from tests.backends import free_port

VERSION = "v1.8.0"
SOURCE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
KEY, SECRET = "redcal-test-key", "redcal-test-Secret+/0123456789"
BUCKET = "lake"
RACED = "raced"  # another one, which Spark reaches through a proxy


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "redcal-tests", VERSION)


def binary() -> Path | str:
    """The server's program, built once a machine; or why there is none."""
    here = shutil.which("versitygw")
    if here is not None:
        return Path(here)
    program = cache() / "versitygw"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        return "no versitygw here, and no go to build it with"
    program.parent.mkdir(parents=True, exist_ok=True)
    with open(program.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of tests one builds
        if not program.exists():
            env = os.environ | {"GOBIN": str(program.parent / "bin")}
            built = subprocess.run([go, "install", SOURCE], env=env, capture_output=True, text=True)
            if built.returncode:
                return f"versitygw cannot be built: {built.stderr.strip()[-300:]}"
            (program.parent / "bin" / "versitygw").rename(program)
    return program


@dataclass(frozen=True)
class ObjectStore:
    """A server that runs. folder: where it keeps its objects, as files."""

    url: str
    folder: Path
    options: dict[str, str] = field(repr=False)

    def address(self, name: str, scheme: str = "s3") -> str:
        return f"{scheme}://{BUCKET}/{name}"

    @property
    def files(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, region="us-east-1", endpoint_override=self.url
        )

    def put(self, name: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{BUCKET}/{name}", compression=None) as file:
            file.write(data)

    def names(self, below: str = "") -> list[str]:
        """The keys of objects."""
        root = self.folder / BUCKET
        found = (str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
        return sorted(name for name in found if name.startswith(below))


def options_at(url: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
    }


@contextlib.contextmanager
def running(program: Path, folder: Path) -> Iterator[ObjectStore]:
    """A server on a free port, stopped at the end."""
    port = free_port()
    url, objects = f"http://127.0.0.1:{port}", folder / "objects"
    for bucket in (BUCKET, RACED):
        (objects / bucket).mkdir(parents=True)
    env = os.environ | {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", objects],
            env=env,
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        _wait_for(url, server)
        yield ObjectStore(url, objects, options_at(url))
    finally:
        server.kill()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert server.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(url, timeout=1)
        except urllib.error.HTTPError:
            return  # it answers, and wants to know who asks
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"nobody answers at {url}")


if __name__ == "__main__":
    print(binary())

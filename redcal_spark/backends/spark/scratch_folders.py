"""Scratch: where a distributed run keeps its blocks between passes."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from redcal_spark.backends.names import ADDRESS
from redcal_spark.backends.processes import start_of

PREFIX = "redcal_scratch"
LEASE = timedelta(hours=48)  # older scratch of another host is nobody's


def run_name() -> str:
    """A name that tells when, where and by whom scratch was made."""
    now = datetime.now(UTC)
    return f"{PREFIX}_{now:%Y%m%d%H%M%S}_{os.getpid()}_{secrets.token_hex(3)}_{_host()}"


def _host() -> str:
    """This machine, in signs that a table's name may have; catalogs turn capitals to small."""
    return re.sub(r"\W", "_", socket.gethostname())[:32].lower()


def is_leftover(name: str) -> bool:
    """Whether the run that made this scratch is dead: its process is gone, or it is too old."""
    match = re.fullmatch(rf"{PREFIX}_(\d{{14}})_(\d+)_[0-9a-f]{{6}}_(\w*)(/.*)?", name)
    if match is None:
        return False
    made = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    if datetime.now(UTC) - made > LEASE:
        return True
    return match[3] == _host() and int(match[2]) != os.getpid() and start_of(int(match[2])) is None


def is_path(place: str) -> bool:
    """A path or URI, not the name of a catalog schema."""
    return "/" in place or place.startswith(".")


def absolute(place: str) -> str:
    """Relative to the working folder: Spark's own is the one that its server was started in."""
    return os.path.abspath(place) if is_path(place) and not ADDRESS.match(place) else place


def remove_folder(path: str) -> bool:
    """Remove a folder that this machine sees. False if it is elsewhere."""
    local = Path(path.removeprefix("file://").removeprefix("file:"))
    if "://" in path and not path.startswith("file:"):
        return False
    if not local.exists():
        return False
    for wait in (0.0, 0.1, 0.5):  # a task that lost a race may still be writing
        time.sleep(wait)
        shutil.rmtree(local, ignore_errors=True)
        if not local.exists():
            break
    return True

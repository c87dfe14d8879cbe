"""Files for people and programs, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import TextIO

from redcal_spark.errors import UsageError


def write_whole(path: str | os.PathLike[str], write: Callable[[TextIO], object]) -> None:
    """Write a text file beside its place, then move it there; folders that are missing are made.

    A symbolic link is replaced, and not what it leads to. A device or a pipe, such as /dev/stdout,
    is written to: moving a file there would replace it.
    """
    if "://" in os.fspath(path):
        raise UsageError(f"{path}: must be a file of this machine, not an address")
    path = os.path.abspath(os.fspath(path))
    if path.startswith("/dev/") or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "w", encoding="utf-8") as file:
            write(file)
        return
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.partial")
    os.makedirs(folder, exist_ok=True)
    try:
        with open(partial, "x", encoding="utf-8") as file:  # never through a link
            write(file)
        os.replace(partial, path)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)

"""Paths as names of tables: what else a name may mean, and whether a table could be made there."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from redcal_spark.backends.local.errors import odd_signs

MAX_NAME = 255  # bytes of a file's name

CATALOG_NAME = re.compile(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`)){1,2}")
ADDRESS = re.compile(r"[A-Za-z][\w+-]*:/")  # of an object store
FILE_ENDINGS = (".csv", ".tsv", ".txt", ".gz", ".parquet")


def elsewhere(name: str) -> str | None:
    """Why a name that is no path here may still be one elsewhere."""
    if CATALOG_NAME.fullmatch(name) and not name.lower().endswith(FILE_ENDINGS):
        return (
            "the local engine uses paths only; a catalog name needs engine.name: spark "
            f"(for a folder of that name write ./{name})"
        )
    if ADDRESS.match(name):
        return "the local engine uses local paths only; an object store needs engine.name: spark"
    return None


def problem_of_target(name: str, key: str) -> str | None:
    """Why no table can be written at a path. key: of the configuration."""
    path = Path(name)
    other = elsewhere(name)
    if other and not os.path.exists(path):
        return f"{key}: {name} cannot be written: {other}"
    if (odd := odd_signs(name)) is not None:
        return f"{key}: {name} cannot be written: {odd}; rename the folder"
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if any(len(os.fsencode(part)) > MAX_NAME for part in path.parts):
            return f"{key}: {name} cannot be made: {os.strerror(errno.ENAMETOOLONG)}"
        if path.is_symlink():
            return f"{key}: {name} is a symbolic link to {os.readlink(path)}, which is not there"
    except OSError as err:  # a name that is too long, links in a circle
        return f"{key}: {name} cannot be made: {err.strerror}"
    if path.is_file():
        return f"{key}: {name} is a file; a table is a folder"
    if path.is_dir() and not (path / "_delta_log").is_dir() and any(path.iterdir()):
        return f"{key}: {name} is a folder with other things in it, not a Delta table"
    parent = next(p for p in (path, *path.parents) if p.exists())
    if not parent.is_dir():
        return f"{key}: {name} cannot be made: {parent} is a file"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{key}: {name} cannot be written: no permission in {parent}"
    return None

"""What the commits of a Delta table say of themselves, from the files of its log.

Not by delta-rs, which stops at a commit of a shallow clone (`readVersion` -1).
"""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from redcal_spark.backends.location import Location

AT_ONCE = 8  # commits that are read beside each other, where each is a request


def commits(table: Location, limit: int | None = None) -> list[dict[str, Any]]:
    """One entry a version, newest first; those whose files were cleaned up are not there."""
    files = _files(table)[:limit]

    def entry(file: PurePosixPath) -> dict[str, Any]:
        return {**_said(table, file), "version": int(file.stem)}

    if not table.is_address:
        return [entry(file) for file in files]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(entry, files))


def newest_version(table: Location) -> int | None:
    """By the files of the log. Not asked of delta-rs, which may be waiting for our rows."""
    return next((int(file.stem) for file in _files(table)), None)


def _files(table: Location) -> list[PurePosixPath]:
    """The files of commits, newest first."""
    log = table.below("_delta_log")
    if table.is_address:
        paths = [info.path for info in log.listed()]
    elif os.path.isdir(log.name):
        paths = [os.path.join(log.name, name) for name in os.listdir(log.name)]
    else:
        paths = []
    files = [PurePosixPath(path) for path in paths if path.endswith(".json")]
    return sorted((file for file in files if file.stem.isdigit()), reverse=True)


def _said(table: Location, file: PurePosixPath) -> dict[str, Any]:
    with table.opened(file) as opened, io.TextIOWrapper(opened, encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line:
                said = json.loads(line).get("commitInfo")
                if isinstance(said, dict):
                    return dict(said)
    return {}

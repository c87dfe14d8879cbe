"""This package, sent to the workers: they need not have it installed."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pyspark.sql import SparkSession

_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def ship_package(spark: SparkSession) -> None:
    """Send it, once a session."""
    if spark not in _shipped:
        spark.addArtifacts(archive(), pyfile=True)
        _shipped.add(spark)


@cache
def archive() -> str:
    """This package as a zip file. It stays while the process lives: executors fetch it late."""
    # as a resource: with `--py-files` the driver itself has the package as a zip file only
    files = dict(_sources(resources.files("redcal_spark"), "redcal_spark"))
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    folder = tempfile.mkdtemp(prefix="redcal-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"redcal_spark_{digest}.zip")
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():  # dated alike, so that the same package is the same file
            packed.writestr(zipfile.ZipInfo(name), text)
    return str(path)


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.is_dir():
            yield from _sources(part, f"{path}/{part.name}")
        elif part.name.endswith(".py"):
            yield f"{path}/{part.name}", part.read_bytes()

"""This package on the workers: as they have it, or sent to them."""

from __future__ import annotations

import atexit
import hashlib
import logging
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from redcal_spark.backends.spark.errors import is_sparks

log = logging.getLogger(__name__)

PROBES = 4  # tasks that are asked; on a cluster they run on more than one worker
_there: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def ship_package(spark: SparkSession) -> None:
    """See to it that workers can import this very package, once a session.

    It is sent only if they cannot: what a session sends is not seen by every kind of worker, while
    a wheel of the job's environment is.
    """
    if spark in _there:
        return
    if _workers_have_it(spark):
        log.debug("workers have redcal_spark installed: it is not sent to them")
    else:
        spark.addArtifacts(archive(), pyfile=True)
    _there.add(spark)


def _workers_have_it(spark: SparkSession) -> bool:
    """Whether all workers that answer can import the package that the driver has."""
    try:
        frame = spark.range(0, PROBES, 1, PROBES).mapInArrow(_look(), "digest string")
        digests = {row[0] for row in frame.collect()}
    except Exception as err:
        if not is_sparks(err):
            raise
        return False  # the first job that needs it tells what is wrong with the workers
    return digests == {digest()}


def _look() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a worker does to find the package: a function that needs nothing of it.

    It must not import the package either: workers are used again, and would keep a wrong one.
    """

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import hashlib
        import os
        import zipfile
        from importlib.util import find_spec

        import pyarrow as pa

        def sources() -> dict[str, bytes]:
            spec = find_spec("redcal_spark")
            if spec is None or spec.origin is None:
                return {}
            root, files = os.path.dirname(os.path.dirname(spec.origin)), {}
            archive = getattr(spec.loader, "archive", None)
            if archive is not None:
                with zipfile.ZipFile(archive) as packed:
                    for name in packed.namelist():
                        if name.startswith("redcal_spark/") and name.endswith(".py"):
                            files[name] = packed.read(name)
                return files
            for folder, _, names in os.walk(os.path.join(root, "redcal_spark")):
                for name in names:
                    if name.endswith(".py"):
                        path = os.path.join(folder, name)
                        with open(path, "rb") as file:
                            files[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
            return files

        for _ in batches:
            pass
        known = hashlib.sha256()
        for name, text in sorted(sources().items()):
            known.update(name.encode() + b"\0" + text)
        yield pa.RecordBatch.from_pydict({"digest": [known.hexdigest()]})

    return look


@cache
def digest() -> str:
    """What tells this package from another one, of the same version or not."""
    known = hashlib.sha256()
    for name, text in sorted(_files().items()):
        known.update(name.encode() + b"\0" + text)
    return known.hexdigest()


@cache
def _files() -> dict[str, bytes]:
    # as a resource: with `--py-files` the driver itself has the package as a zip file only
    return dict(_sources(resources.files("redcal_spark"), "redcal_spark"))


@cache
def archive() -> str:
    """This package as a zip file. It stays while the process lives: executors fetch it late."""
    folder = tempfile.mkdtemp(prefix="redcal-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"redcal_spark_{digest()[:12]}.zip")
    with zipfile.ZipFile(path, "w") as packed:
        # dated alike, so that the same package is the same file
        for name, text in _files().items():
            packed.writestr(zipfile.ZipInfo(name), text)
    return str(path)


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.is_dir():
            yield from _sources(part, f"{path}/{part.name}")
        elif part.name.endswith(".py"):
            yield f"{path}/{part.name}", part.read_bytes()

"""What the name of a table means: a path or a name in the catalog, and what can be made there."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from redcal_spark.backends.local.errors import odd_signs
from redcal_spark.backends.location import Location, failed
from redcal_spark.config.addresses import ADDRESS, SCHEMES, in_hadoop, scheme_of
from redcal_spark.errors import InputError, StoreDownError

MAX_NAME = 255  # bytes of a file's name

CATALOG_NAME = re.compile(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`)){1,2}")
FILE_ENDINGS = (".csv", ".tsv", ".txt", ".gz", ".parquet")


def quoted(name: str) -> str:
    """A name for Spark's SQL, dots and all."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Place:
    """Where Spark finds a table: at a path, or by a name in the catalog."""

    name: str

    @property
    def is_path(self) -> bool:
        if self.name.startswith("`"):
            return False
        if "/" in self.name or self.name.startswith("."):
            return True
        return self.name.lower().endswith(FILE_ENDINGS) or Path(self.name).exists()

    @property
    def is_here(self) -> bool:
        """Whether this process can look at it, and not just Spark."""
        return self.is_path and not ADDRESS.match(self.name)

    @property
    def sql(self) -> str:
        """The table in SQL."""
        if self.is_path:
            return f"delta.{quoted(self.name)}"
        # parts that have dots or other signs in them are written in backticks
        parts = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", self.name)
        return ".".join(quoted(inside.replace("``", "`") or plain) for inside, plain in parts)

    @property
    def in_merge(self) -> str:
        """The table as the conditions of a MERGE know it."""
        return f"spark_catalog.{self.sql}" if self.is_path else self.sql

    @property
    def absolute(self) -> Place:
        """Spark resolves relative paths against the folder its server was started in."""
        if self.is_path and not self.is_here:
            return Place(in_hadoop(self.name))
        return Place(str(Path(self.name).absolute())) if self.is_here else self

    @property
    def is_address(self) -> bool:
        """Whether it is in an object store that this process may reach, too."""
        return scheme_of(self.name) is not None


def is_catalog_name(name: str) -> bool:
    """Whether a name that is no path here may be one in a catalog."""
    return bool(CATALOG_NAME.fullmatch(name)) and not name.lower().endswith(FILE_ENDINGS)


def elsewhere(name: str) -> str | None:
    """Why a name that is no path here may still be one elsewhere."""
    if is_catalog_name(name):
        return (
            "the local engine uses paths only; a catalog name needs engine.name: spark "
            f"(for a folder of that name write ./{name})"
        )
    if ADDRESS.match(name) and scheme_of(name) is None:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        return f"the local engine uses paths, {known} only; others need engine.name: spark"
    return None


MAKING = "_redcal_making"  # beside the files of a table in an object store, before its first commit


def problem_of_target(place: Location, key: str) -> str | None:
    """Why no table can be written at a path. key: of the configuration."""
    name = place.name
    if place.is_address:
        return _problem_of_address(place, key)
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
    # The log comes last: another run may put its table there while we look.
    if path.is_dir() and any(path.iterdir()) and not (path / "_delta_log").is_dir():
        return f"{key}: {name} is a folder with other things in it, not a Delta table"
    parent = next(p for p in (path, *path.parents) if p.exists())
    if not parent.is_dir():
        return f"{key}: {name} cannot be made: {parent} is a file"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{key}: {name} cannot be written: no permission in {parent}"
    return None


def _problem_of_address(place: Location, key: str) -> str | None:
    """As `problem_of_target`. Whether a key may be written is known when it is."""
    if (odd := odd_signs(place.name)) is not None:
        return f"{key}: {place.name} cannot be written: {odd}; choose another name"
    try:
        if place.is_file(place.path):
            return f"{key}: {place.name} is a file; a table is a folder"
        if not place.is_dir():
            bucket = place.bucket
            known = bucket.exists()
            return None if known else f"{key}: {place.name} cannot be made: no {bucket.name}"
        if not place.below("_delta_log").is_dir() and place.listed():
            mark = place.below(MAKING)
            if mark.is_file(mark.path):  # what is there is of a run of ours that died
                return None
            return f"{key}: {place.name} is a folder with other things in it, not a Delta table"
    except OSError as err:
        problem = failed(InputError, f"{key}: {place.name} cannot be reached", err)
        if isinstance(problem, StoreDownError):
            raise problem from err
        return str(problem)
    return None

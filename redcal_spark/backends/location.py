"""Where a table or a file is: in a folder of this machine, or at an address of an object store.

Code that reads and writes asks a location and need not know which of the two it is: pyarrow's file
system stands between it and the bytes, delta-rs gets the address and its options.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.request import getproxies_environment as proxies

import pyarrow as pa
import pyarrow.fs

from redcal_spark.backends.object_stores import Options, file_system, for_delta
from redcal_spark.config.addresses import canonical, scheme_of
from redcal_spark.errors import InputError, RedcalError, StoreDownError

HIDDEN = ("_", ".")  # how names begin that Spark and others take for no data
LOG = "_delta_log"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What pyarrow and delta-rs say when a store is down, and when something is not set right.
UNREACHED = re.compile("AWS Error NETWORK_CONNECTION|error sending request|operation timed out")
UNABLE = re.compile(
    r"HTTP status 50[0234]|\b50[0234] (Internal|Bad Gateway|Service|Gateway)"
    "|AWS Error (SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING)"
)
REFUSED = re.compile(
    "ACCESS_DENIED|403 Forbidden|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|XAdminUserNotFound"
)
MISPLACED = re.compile("HTTP status 400|400 Bad Request")
DETAILS = re.compile(r"\s*<\?xml.*", re.DOTALL)


@dataclass(frozen=True)
class Location:
    """A table or file by its name. options: of an object store, as the configuration gives them."""

    name: str
    options: Options = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_address(self) -> bool:
        """Whether it is in an object store."""
        return scheme_of(self.name) is not None

    @property
    def uri(self) -> str:
        """As delta-rs takes it, and as tables are told apart."""
        return canonical(self.name)

    @property
    def delta(self) -> dict[str, str] | None:
        """Options for delta-rs."""
        return for_delta(self.name, self.options) if self.is_address else None

    @cached_property
    def _at(self) -> tuple[pa.fs.FileSystem, str]:
        if self.is_address:
            return file_system(self.name, self.options)
        return pa.fs.LocalFileSystem(), self.name

    @property
    def file_system(self) -> pa.fs.FileSystem:
        return self._at[0]

    @property
    def path(self) -> str:
        """The path in its file system."""
        return self._at[1]

    @property
    def pure_path(self) -> PurePath:
        return PurePosixPath(self.path) if self.is_address else Path(self.name)

    def shown(self, path: object) -> str:
        """A path of the same file system, as people know it."""
        if not self.is_address:
            return str(path)
        if scheme_of(self.name) == "abfss":
            account = self.name.partition("://")[2].partition("/")[0].partition("@")[2]
            container, _, rest = str(path).partition("/")
            return f"abfss://{container}@{account}/{rest}"
        return f"{self.name.partition('://')[0]}://{path}"

    @property
    def bucket(self) -> Location:
        """Where an object store keeps it."""
        head, _, rest = self.name.partition("://")
        return Location(f"{head}://{rest.partition('/')[0]}", self.options)

    @property
    def above(self) -> Location:
        return Location(self.name.rstrip("/").rpartition("/")[0], self.options)

    def below(self, name: str) -> Location:
        return Location(f"{self.name.rstrip('/')}/{name}", self.options)

    def beside(self, name: str) -> Location:
        """Another place, reached by the same options."""
        return Location(name, self.options)

    # --- what is there --------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether a file is there, or a folder; in an object store, anything that begins so."""
        if not self.is_address:
            return os.path.exists(self.name)
        return bool(self._info(self.path).type != pa.fs.FileType.NotFound)

    def is_dir(self) -> bool:
        if not self.is_address:
            return os.path.isdir(self.name)
        return bool(self._info(self.path).type == pa.fs.FileType.Directory)

    def is_file(self, path: object) -> bool:
        if not self.is_address:
            return os.path.isfile(str(path))
        return bool(self._info(str(path)).type == pa.fs.FileType.File)

    def size(self, path: object) -> int:
        return int(self._info(str(path)).size) if self.is_address else os.stat(str(path)).st_size

    def _info(self, path: str) -> pa.fs.FileInfo:
        return self.file_system.get_file_info(path)

    def data_files(self) -> Iterator[PurePath]:
        """Files below a folder, but for those that Spark and others hide: names with _ or . first.

        Folder by folder, each in the order of names. The files of a Delta table are more than its
        rows: of a folder that holds some nothing is read.
        """
        if not self.is_address:
            for root, folders, files in os.walk(self.name):
                if LOG in folders:
                    raise _holds_a_table(self.name, os.path.relpath(root, self.name))
                folders[:] = sorted(f for f in folders if not f.startswith(HIDDEN))
                yield from (Path(root, f) for f in sorted(files) if not f.startswith(HIDDEN))
            return
        listed = [PurePosixPath(info.path) for info in self.listed(recursive=True)]
        depth = len(self.pure_path.parts)
        if (log := next((p for p in listed if LOG in p.parts[depth:]), None)) is not None:
            parts = log.parts[depth:]
            raise _holds_a_table(self.name, "/".join(parts[: parts.index(LOG)]))
        kept = [p for p in listed if not any(x.startswith(HIDDEN) for x in p.parts[depth:])]
        yield from sorted(kept)

    def listed(self, *, recursive: bool = False) -> list[pa.fs.FileInfo]:
        """Files below a folder of an object store; none if there is no such folder."""
        where = pa.fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        infos = self.file_system.get_file_info(where)
        return [info for info in infos if info.type == pa.fs.FileType.File]

    def folders(self) -> list[str]:
        """The names of folders in a folder of an object store."""
        where = pa.fs.FileSelector(self.path, allow_not_found=True)
        infos = self.file_system.get_file_info(where)
        return sorted(info.base_name for info in infos if info.type == pa.fs.FileType.Directory)

    # --- bytes ----------------------------------------------------------------------------------

    def opened(self, path: object) -> Any:
        """A file that can be sought in, of the same file system."""
        if not self.is_address:
            return open(str(path), "rb")
        return self.file_system.open_input_file(str(path))

    def stream(self, path: object) -> pa.NativeFile:
        """A file from its beginning, unpacked if its name says that it is packed."""
        if not self.is_address:
            return pa.input_stream(str(path))
        return self.file_system.open_input_stream(str(path))

    def etag(self, path: object) -> str | None:
        """What an object store says of an object's content; None: nothing that could be trusted."""
        with self.file_system.open_input_file(str(path)) as file:
            said = {str(key).lower(): value for key, value in file.metadata().items()}
        for key in ("versionid", "version-id", "generation", "etag"):
            value = said.get(key)
            if value:
                text = value.decode() if isinstance(value, bytes) else str(value)
                return f"{key}:{text}"
        return None

    def read_start(self, size: int) -> bytes:
        with self.file_system.open_input_stream(self.path, compression=None) as file:
            return bytes(file.read(size))

    def write(self, data: bytes) -> None:
        """Write an object; readers see all of it or what was there before."""
        with self.file_system.open_output_stream(self.path, compression=None) as file:
            file.write(data)

    def remove(self) -> None:
        """Remove all objects that begin with this folder.

        All at once, if the server does that; some refuse a folder's own object before the others.
        """
        with contextlib.suppress(FileNotFoundError):
            try:
                self.file_system.delete_dir(self.path)
            except FileNotFoundError:
                raise
            except OSError:
                inside = pa.fs.FileSelector(self.path, allow_not_found=True, recursive=True)
                for info in self.file_system.get_file_info(inside):
                    if info.is_file:
                        self.file_system.delete_file(info.path)
                self.file_system.delete_dir(self.path)


def error_line(err: BaseException) -> str:
    """What went wrong in an object store, in one line: delta-rs writes several, in colours."""
    said = text = COLOURS.sub("", str(err))
    text = DETAILS.sub("", text) if "↳" in text else text.splitlines()[0] if text else ""
    parts = [part.strip(" ↳") for part in text.splitlines()]
    shown = ": ".join(part for part in parts if part) or type(err).__name__
    return "; ".join([shown, *_ways_out(said)])


def _ways_out(said: str) -> Iterator[str]:
    """What to look at. said: all that a library says, details that nobody is shown, too."""
    if REFUSED.search(said):
        yield "are the key, its secret and its rights right?"
    if MISPLACED.search(said):
        yield "is AWS_REGION right?"
    if UNREACHED.search(said):
        asked = ["AWS_ENDPOINT_URL"] if "AWS" in said or "S3" in said else []
        asked += [f"{scheme}_proxy" for scheme in sorted({"http", "https"} & {*proxies()})]
        if not asked:
            yield "the store may be down: try again"
        elif len(asked) == 1:
            yield f"is {asked[0]} right? If it is, the store is down: try again"
        else:
            yield f"are {' and '.join(asked)} right? If they are, the store is down: try again"
    elif UNABLE.search(said):
        yield "the store is down or busy: try again"


def _holds_a_table(folder: str, below: str) -> InputError:
    return InputError(f"{folder}: holds Delta tables, such as {below}: name the one that is meant")


def failed(kind: type[RedcalError], what: str, err: BaseException) -> RedcalError:
    """What to raise: an error of this kind, unless a store is down, which nobody's input mends."""
    said = str(err)
    down = UNREACHED.search(said) or UNABLE.search(said)
    return (StoreDownError if down else kind)(f"{what}: {error_line(err)}")

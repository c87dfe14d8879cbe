"""Folders of tables: made when needed, gone again when nothing came of it."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redcal_spark.errors import RunError

PARTIAL = ".partial"


@contextmanager
def beside(path: Path, run_id: str) -> Iterator[Path]:
    """A place for a new table beside its own, to be moved when it is whole; gone in the end."""
    made = make_folder(path.parent)
    partial = path.parent / f".{path.name}.{run_id}{PARTIAL}"
    if partial.is_symlink():  # nobody shall lead our rows elsewhere
        partial.unlink()
    shutil.rmtree(partial, ignore_errors=True)  # of this run, when it died
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        remove_empty(made)


def partials(path: Path) -> dict[str, Path]:
    """Such places beside a table, by run. A late task of Spark may have made one anew."""
    begin = f".{path.name}."
    there = (p for p in path.parent.glob(f"{glob.escape(begin)}*{PARTIAL}") if p.is_dir())
    return {p.name[len(begin) : -len(PARTIAL)]: p for p in there if not p.is_symlink()}


def make_folder(path: Path) -> list[Path]:
    """Make the folder and its parents; returns those that are new, innermost first."""
    made = missing_folders(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RunError(f"{path}: cannot be made: {err.strerror}") from err
    return made


def missing_folders(path: str | Path) -> list[Path]:
    """Of a folder and its parents those that are not there, innermost first."""
    return [p for p in (Path(path), *Path(path).parents) if not p.exists()]


def remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

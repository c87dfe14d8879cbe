"""The working folder: every relative path starts there, those of configurations too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from redcal_spark.errors import UsageError


def looked_for(name: str) -> str:
    """Where a relative name was looked for, as the end of a message that it is not there."""
    if os.path.isabs(name):
        return ""
    try:
        return f"; looked for {os.path.abspath(name)} (-C DIR starts in another folder)"
    except OSError:  # the folder was removed under our feet
        return ""


@contextlib.contextmanager
def working_in(folder: str | None) -> Iterator[None]:
    """As if the command had been started in a folder."""
    if folder is None:
        yield
        return
    try:
        change = contextlib.chdir(folder)
        change.__enter__()
    except (OSError, ValueError) as err:  # ValueError: a NUL in the name
        where = "" if os.path.isabs(folder) else f" (in {os.getcwd()})"
        raise UsageError(f"-C {folder}: {getattr(err, 'strerror', err)}{where}") from err
    with contextlib.ExitStack() as back:
        back.push(change)
        yield

"""What delta-rs says when it cannot go on, in our words. Its Rust code may also panic."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from redcal_spark.backends.local.files import first_line
from redcal_spark.errors import RedcalError

# delta-rs makes addresses of paths: it reads %41 as A and \ as /, cuts at # and ?, and panics at
# the others.
ODD_SIGNS = re.compile(r"%[0-9A-Fa-f]{2}|[\\#?\[\]^|]")


def odd_signs(name: str) -> str | None:
    """Why delta-rs cannot work in a folder: its path has signs that mean something else to it."""
    found = ODD_SIGNS.search(os.path.abspath(name))
    if found is None:
        return None
    return f"delta-rs cannot open tables with {found[0]!r} in their path ({os.path.abspath(name)})"


def is_delta(name: str) -> bool:
    """Whether there is a Delta table; not where delta-rs would look elsewhere, panic or fail."""
    if odd_signs(name) is not None or (os.path.exists(name) and not os.path.isdir(name)):
        return False
    return DeltaTable.is_deltatable(name)


def is_panic(err: BaseException) -> bool:
    """Whether Rust code gave up: no `Exception`, so that an `except` would let it through."""
    return type(err).__module__ == "pyo3_runtime"


@contextmanager
def unreadable(name: str, kind: type[RedcalError], what: str) -> Iterator[None]:
    """What goes wrong with a table that was tampered with or is half gone."""
    try:
        yield
    except BaseException as err:
        wrong = isinstance(err, DeltaError | OSError | pa.ArrowException | ValueError)
        if isinstance(err, RedcalError) or not (wrong or is_panic(err)):
            raise
        raise kind(f"{name}: {what}: {first_line(err)}") from err

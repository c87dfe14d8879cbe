"""What delta-rs says when it cannot go on, in our words. Its Rust code may also panic."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from redcal_spark.backends.location import Location, failed
from redcal_spark.config.addresses import canonical, scheme_of
from redcal_spark.errors import RedcalError

# delta-rs makes addresses of paths: it reads %41 as A and \ as /, cuts at # and ?, and panics at
# the others.
ODD_SIGNS = re.compile(r"%[0-9A-Fa-f]{2}|[\\#?\[\]^|]")


def odd_signs(name: str) -> str | None:
    """Why delta-rs cannot work in a folder: its path has signs that mean something else to it."""
    path = canonical(name) if scheme_of(name) else os.path.abspath(name)
    odd = ODD_SIGNS.search(path)
    if odd is None:
        return None
    return f"delta-rs cannot open tables with {odd[0]!r} in their path ({path})"


def delta_table(place: Location) -> DeltaTable:
    return DeltaTable(place.uri, storage_options=place.delta)


def is_delta(place: Location) -> bool:
    """Whether there is a Delta table; not where delta-rs would look elsewhere, panic or fail.

    A store that does not answer is no answer: that raises.
    """
    name = place.name
    if odd_signs(name) is not None:
        return False
    if not place.is_address and os.path.exists(name) and not os.path.isdir(name):
        return False
    return DeltaTable.is_deltatable(place.uri, place.delta)


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
        raise failed(kind, f"{name}: {what}", err) from err

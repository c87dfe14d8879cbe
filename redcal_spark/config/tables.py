"""Tables as the configuration names them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

# Addresses of object stores by what they are to delta-rs and pyarrow; Hadoop has a name of its own
# for S3.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss"}
ADDRESS = re.compile(r"[A-Za-z][\w+-]*:/")
SIDE_TABLES = ("patches", "history", "metrics", "runs")


class OutputTables(NamedTuple):
    """Where everything is written."""

    table: str
    patches: str
    history: str
    metrics: str
    runs: str


def scheme_of(name: str) -> str | None:
    """Which object store an address is of; None: it is none that this process knows."""
    head, sign, _ = name.partition("://")
    return SCHEMES.get(head.lower()) if sign else None


def canonical(name: str) -> str:
    """An address in the one way that tells tables apart; other names as they are."""
    scheme = scheme_of(name)
    return name if scheme is None else f"{scheme}://{name.partition('://')[2].rstrip('/')}"


def place_of(table: object) -> str | None:
    """What tells tables apart: paths as absolute ones; to a catalog name that does no harm."""
    try:
        if not isinstance(table, str):
            return None
        return canonical(table) if scheme_of(table) else os.path.realpath(table)
    except ValueError:  # a NUL, or half a surrogate pair
        return None


def sibling(table: str, kind: str) -> str:
    """The name of a table beside another: `out/scores/` and `runs` give `out/scores_runs`."""
    if table.endswith("`"):
        return f"{table[:-1]}_{kind}`"
    return f"{table.rstrip('/')}_{kind}"

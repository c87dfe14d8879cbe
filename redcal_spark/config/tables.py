"""Tables as the configuration names them."""

from __future__ import annotations

import os
from typing import NamedTuple

from redcal_spark.config.addresses import canonical, scheme_of

SIDE_TABLES = ("patches", "history", "metrics", "runs")


class OutputTables(NamedTuple):
    """Where everything is written."""

    table: str
    patches: str
    history: str
    metrics: str
    runs: str


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

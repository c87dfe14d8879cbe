"""A shape of table: how Spark makes it, which rows it then holds, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tests.shapes.rows import (
    STRUCT,
    Change,
    each,
    many,
    pairs,
    same,
    struct,
    then,
    where,
)

OK = "ok"
NOT_TRIED = ""

INPUT = {"id": "case", "label": "y", "model_1": "p1", "model_2": "p2"}


@dataclass(frozen=True)
class Cell:
    """What is expected of a table on each engine: `ok`, or what a refusal must name."""

    local: str = OK
    spark: str = OK

    def on(self, engine: str) -> str:
        return str(getattr(self, engine))


EVERYWHERE = Cell()
NOWHERE = Cell(NOT_TRIED, NOT_TRIED)


@dataclass(frozen=True)
class Shape:
    """make: SQL; {t} is the table, {base} the view of its rows, {other} a second table.

    rows: the logical rows, of those in the view. input: keys that differ from INPUT. as_output:
    more SQL, for a table that holds what an older run wrote.
    read, merge, overwrite: outcomes as an input and as an existing output table.
    """

    name: str
    says: str
    make: tuple[str, ...]
    rows: Change = same
    input: Mapping[str, str] = field(default_factory=dict)
    read: Cell = EVERYWHERE
    merge: Cell = NOWHERE
    overwrite: Cell = NOWHERE
    as_output: tuple[str, ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        return INPUT | dict(self.input)


def made(properties: str = "", select: str = "*", layout: str = "") -> str:
    """The table, made from its rows in one statement."""
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    return f"CREATE TABLE {{t}} USING delta {layout} {told} AS SELECT {select} FROM {{base}}"


def declared(columns: str, properties: str = "") -> str:
    """The table with its columns told one by one, before those of the view; still empty."""
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    return f"CREATE TABLE {{t}} ({columns}, {{columns}}) USING delta {told}"


def set_(properties: str) -> str:
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})"


DVS = "'delta.enableDeletionVectors' = 'true'"
BY_NAME = "'delta.columnMapping.mode' = 'name'"
BY_ID = "'delta.columnMapping.mode' = 'id'"
UPGRADE = (
    "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5', "
    "'delta.columnMapping.mode' = 'name'"
)
AT_ONCE = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"  # for VACUUM
DELETE = "DELETE FROM {t} WHERE case % 7 = 3"
NESTED = (
    "*, if(case % 5 = 0, null, named_struct('a', case, 'b', concat('s', case))) AS st, "
    "if(case % 7 = 0, null, array(named_struct('a', case, 'b', concat('s', case)), "
    "named_struct('a', cast(null AS bigint), 'b', ''))) AS many, "
    "if(case % 6 = 0, null, map('k', case, 'l', case + 1)) AS pairs"
)
kept = where(lambda case: case % 7 != 3)
nested = then(
    each("st", STRUCT, struct),
    each("many", pa.list_(STRUCT), many),
    each("pairs", pa.map_(pa.string(), pa.int64()), pairs),
)

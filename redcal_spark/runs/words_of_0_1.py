"""What 0.1 wrote, in the words of today: its holdout rows were called `judge`.

Only where 0.1 put the word: a loss, a class or a column may have that name, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark.config.load import RENAMED

COLUMN = "judge_rows"  # of the ledger; holdout_rows today
SPLIT = ("input", "split")
NAMES = RENAMED[SPLIT]


def wrote(row: Mapping[str, Any]) -> bool:
    """Whether a row of the ledger is by 0.1, which wrote no digests: a changed cell is no proof."""
    return str(row["package_version"]).startswith("0.1.") and row.get("digests") is None


def ledger_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the ledger as the store has it, with the columns and words of today."""
    new = {name: value for name, value in row.items() if name != COLUMN}
    if not wrote(row):
        return new
    new["holdout_rows"] = row.get(COLUMN)
    for name, renamed in (("metrics", _keys), ("audits", _keys), ("config", _config)):
        new[name] = _rewritten(row[name], renamed)
    return new


def split_column(table: pa.Table) -> pa.Table:
    """History or metrics of a run of 0.1."""
    place = table.schema.get_field_index("split")
    known = table["split"].cast(pa.string())
    return table.set_column(
        place, "split", pc.if_else(pc.equal(known, "judge"), pa.scalar("holdout"), known)
    )


def as_digested(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in the words of 0.1, by whose digest its runs are known."""
    return _config(config, {new: old for old, new in NAMES.items()})


def _keys(tree: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in tree.items()}


def _config(tree: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> dict[str, Any]:
    section, key = SPLIT
    split = tree[section].get(key)
    if split is None:
        return dict(tree)
    return {**tree, section: tree[section] | {key: _keys(split, names)}}


def _rewritten(text: str | None, renamed: Callable[[Any], Any]) -> str | None:
    return None if text is None else json.dumps(renamed(json.loads(text)))

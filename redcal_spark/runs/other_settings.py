"""Where two configurations differ, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redcal_spark.config.load import config_from_tree
from redcal_spark.config.schema import Config
from redcal_spark.core.differences import shown
from redcal_spark.errors import RedcalError
from redcal_spark.runs.ledger import RunRow

NAMED = 3  # keys, at most


def of_another_fit(given: Config, row: RunRow) -> str | None:
    """What to say of a model that is applied, if it was fitted with other parameters or losses."""
    then = json.loads(row.config)
    with suppress(RedcalError):  # keys that the release of that run did not have, by their defaults
        then = config_from_tree(then).recorded()
    now, then = (
        {key: tree.get(key) for key in ("losses", "reconcile")} for tree in (given.recorded(), then)
    )
    keys = other_keys(now, then)
    if keys is None:
        return None
    return f"the model is that of run {row.run_id}, made with other settings: {keys}"


def other_keys(now: Any, then: Any) -> str | None:
    """The first keys of two configurations that differ."""
    gaps = list(_apart(now, then))
    if not gaps:
        return None
    texts = [f"{path} is {shown(new)}, was {shown(old)}" for path, new, old in gaps[:NAMED]]
    more = [] if len(gaps) <= NAMED else [f"{len(gaps) - NAMED} more"]
    return "; ".join([*texts, *more])


def _apart(one: Any, two: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places at which two trees differ."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in dict.fromkeys([*two, *one]):
            yield from _apart(one.get(key), two.get(key), f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from _apart(a, b, f"{path}[{place}]")
    elif one != two:
        yield path, one, two

"""The order of the classes, as the names of score columns tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MARK = re.compile(r"[_.\-\s]|(?<=[A-Za-z])(?=\d)")  # between a model's part of a name and a class's


def endings(columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What tells columns apart after a beginning that all have: the longest beginning first."""
    ends = {0, *(mark.end() for mark in MARK.finditer(columns[0]))}
    for end in sorted(ends, reverse=True):
        start = columns[0][:end]
        if all(name.startswith(start) and name != start for name in columns):
            yield tuple(name[end:] for name in columns)


def order_told(columns: Sequence[str], classes: Sequence[str]) -> tuple[str, ...] | None:
    """The classes in the order of columns that are named after them; None if they are not."""
    known = {name.casefold(): name for name in classes}
    for each in endings(columns):
        names = [name.casefold() for name in each]
        if sorted(names) == sorted(known) and len(known) == len(classes):
            return tuple(known[name] for name in names)
    return None


def in_other_order(columns: Sequence[str], classes: Sequence[str], source: str) -> str | None:
    """What to say of columns that are named after the classes and stand in another order.

    source: what has the classes.
    """
    order = order_told(columns, classes) if len(columns) >= 2 else None
    if order is None or order == tuple(classes):
        return None
    return (
        f"the columns are {_few(columns)}, but {source} has the classes {_few(classes)}: put them "
        "in the same order"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")

"""A loss in a CSV file: a row an action, a column a class, with their names or without."""

from __future__ import annotations

import csv
import io
from typing import Any

from redcal_spark.config.yaml_reader import NUMBER, read_text
from redcal_spark.errors import UsageError

# The largest loss there can be, 16,384 classes and a few hundred actions, fits into this.
MAX_BYTES = 2**26
SOME = 10  # cells that a message names


def costs_names(name: str) -> tuple[list[str], list[str]]:
    """The classes of a CSV file of costs (names in its header, or numbers), and its actions."""
    loss, header = read_costs(name)
    if not loss["costs"]:
        raise UsageError(f"{name}: has no costs; a row is an action, a column a class")
    wrong = [
        f"row {place}: {'nothing' if cell == '' else repr(cell)}"
        for place, row in enumerate(loss["costs"], 1)
        for cell in row
        if not isinstance(cell, float)
    ]
    if wrong:
        more = "" if len(wrong) <= SOME else f"; and {len(wrong) - SOME:,} more cells"
        raise UsageError(
            f"{name}: costs must be numbers, with a point; got, in {'; '.join(wrong[:SOME])}{more}"
        )
    return header or [str(k) for k in range(len(loss["costs"][0]))], loss.get("actions", [])


def read_costs(name: str) -> tuple[dict[str, Any], list[str]]:
    """The loss in a CSV file and the class names in its header, if it has one."""
    text = read_text(name, MAX_BYTES)
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text, newline=""))]
    except csv.Error as err:
        raise UsageError(f"{name}: {err}") from err
    rows = [row for row in rows if any(row)]
    if all(NUMBER.fullmatch(cell) for row in rows for cell in row):
        return {"costs": [[float(cell) for cell in row] for row in rows]}, []
    (corner, *classes), *body = rows
    # A first line of costs must not pass for a header: it would take an action with it.
    if any(map(NUMBER.fullmatch, classes)) and corner.lower() not in ("", "action", "actions"):
        forms = "'action' and the classes, or every cell must be a number"
        raise UsageError(f"{name}: the first line must have {forms}")
    wrong = [row[0] for row in body if len(row) != len(classes) + 1]
    if wrong or not classes:
        problem = f"not as many cells as the first line: {', '.join(wrong)}"
        raise UsageError(f"{name}: {problem if classes else _no_commas(corner)}")
    costs = [[float(cell) if NUMBER.fullmatch(cell) else cell for cell in row[1:]] for row in body]
    return {"actions": [row[0] for row in body], "costs": costs}, classes


def _no_commas(first: str) -> str:
    """What to say of a CSV file of costs whose first line is one cell."""
    seen = next((mark for mark in ";\t|" if mark in first), None)
    hint = "" if seen is None else f", but {seen!r}: write commas there, and 2.5 for '2,5'"
    return f"has no commas between its cells{hint}"

"""`redcal init TABLE ...`: looks at tables and writes a configuration to go on with."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import asdict

from redcal_spark.atomic_write import write_whole
from redcal_spark.cli.open_job import work_for
from redcal_spark.cli.results import show
from redcal_spark.config.starter import Starter
from redcal_spark.errors import UsageError
from redcal_spark.runs.init import starter_of

TABLES = "a path (Delta, Parquet, CSV) or catalog name; then tables of the models' scores, if any"


def init(options: argparse.Namespace) -> int:
    path = options.output
    if os.path.exists(path):
        raise UsageError(f"{path}: is there already; name another file with -o, or remove it")
    table, *others = options.table
    starter = starter_of(work_for(table, options.engine), table, options.costs, others)
    try:
        write_whole(path, lambda file: file.write(starter.text()))
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror}") from err
    command = next_command(path, starter)
    seen = asdict(starter) | {"tables": list(starter.tables.values())}
    if len(starter.models) == 2:
        seen |= seen.pop("models")
    data = {"config": path, **seen, "next": command}
    return show(options, data, *lines(path, starter), f"next: {command}")


def lines(path: str, starter: Starter) -> list[str]:
    """What was seen, and what is only a guess."""
    names = "" if starter.names is None else f": {', '.join(map(str, starter.names))}"
    split = "none: all labelled rows are fitted, and nothing checks the result on others"
    if starter.split is not None:
        split = "column {!r}: {!r} and {!r}".format(*starter.split)
    elif starter.hashed:
        split = "30 % of the rows are held out, by a hash of the id"
    seen = {
        **{name: starter.scores(name) for name in starter.models},
        "label": starter.label,
        "classes": f"{starter.classes}{names}",
        "id": starter.id or "none: no column of text or integers has every value once",
        "split": split,
    }
    wide = max(8, *map(len, seen))
    shown = [f"{path}: written for {starter.table}"]
    for key, text in seen.items():
        doubt = starter.doubts.get(key)
        shown.append(f"  {key:<{wide}} {text}" + ("" if doubt is None else f"   GUESS: {doubt}"))
    if starter.costs is None:
        shown.append("fill in what decisions cost (every null below losses), then check the rest")
    return shown


def next_command(path: str, starter: Starter) -> str:
    """What to call when the file is as it should be."""
    verb = "check" if starter.costs is None or starter.doubts else "audit"
    return f"redcal {verb} -c {shlex.quote(path)}"

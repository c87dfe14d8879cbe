"""`redcal init TABLE`: looks at a table and writes a configuration to go on with."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import asdict

from redcal_spark.atomic_write import write_whole
from redcal_spark.cli.open_job import work_for
from redcal_spark.cli.results import show
from redcal_spark.config.starter import Starter, one_or_all
from redcal_spark.errors import UsageError
from redcal_spark.runs.init import starter_of


def init(options: argparse.Namespace) -> int:
    path = options.output
    if os.path.exists(path):
        raise UsageError(f"{path}: is there already; name another file with -o, or remove it")
    starter = starter_of(work_for(options.table, options.engine), options.table, options.costs)
    try:
        write_whole(path, lambda file: file.write(starter.text()))
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror}") from err
    command = next_command(path, starter)
    data = {"config": path, **asdict(starter), "next": command}
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
        "model_1": one_or_all(starter.model_1),
        "model_2": one_or_all(starter.model_2),
        "label": starter.label,
        "classes": f"{starter.classes}{names}",
        "id": starter.id or "none",
        "split": split,
    }
    shown = [f"{path}: written for {starter.table}"]
    for key, text in seen.items():
        doubt = starter.doubts.get(key)
        shown.append(f"  {key:<8} {text}" + ("" if doubt is None else f"   GUESS: {doubt}"))
    if starter.costs is None:
        shown.append("fill in what decisions cost (every null below losses), then check the rest")
    return shown


def next_command(path: str, starter: Starter) -> str:
    """What to call when the file is as it should be."""
    verb = "check" if starter.costs is None or starter.doubts else "audit"
    return f"redcal {verb} -c {shlex.quote(path)}"

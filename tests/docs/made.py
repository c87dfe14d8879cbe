"""The makers: what stands between `<!-- made: ... -->` and `<!-- end -->` on a page.

result FILE KEY    the one part of docs/results/FILE.json that has KEY in its heads or first row
provenance FILE    when, of which commit and on what machine FILE was measured
notes FILE         the lists in FILE
lines FILE         all that a program printed, as it printed it
output COMMAND     what a command prints, after `redcal demo` in a folder of its own
cli                every command and its options
config SECTION     a section of conf/reference.yaml
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from redcal_spark import cli
from redcal_spark.cli.help import EXAMPLES, GROUPS
from redcal_spark.cli.parser import command_line
from redcal_spark.runs import patch_writer
from tests.bench.results import FOLDER, Results
from tests.docs.pages import ROOT

RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
COMMON = (
    *("--help", "--config", "--set", "--engine", "--directory"),
    *("--quiet", "--verbose", "--json", "--log-format"),
)
WIDTH = "110"


def make(what: str) -> str:
    kind, _, rest = what.partition(" ")
    if kind == "result":
        name, _, key = rest.partition(" ")
        # an error stays beside its number
        return results(name).part(key).markdown().replace(" ± ", "&nbsp;±&nbsp;")
    if kind == "provenance":
        return results(rest).provenance_line
    if kind == "notes":
        parts = (part.markdown() for part in results(rest).parts if part.key.startswith("- "))
        return "\n".join(parts)
    if kind == "lines":
        text = "\n\n".join(part.markdown() for part in results(rest).parts)
        return f"```text\n{text}\n```"
    if kind == "output":
        return f"```text\n{output(rest)}\n```"
    if kind == "cli":
        return commands()
    if kind == "config":
        return f"```yaml\n{section(rest)}\n```"
    raise LookupError(f"nothing makes {what!r}")


def results(name: str) -> Results:
    return Results.load(FOLDER / f"{name}.json")


# --- what commands print --------------------------------------------------------------------------


@contextmanager
def inside(folder: str) -> Iterator[None]:
    before, width = os.getcwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width


@cache
def _demo() -> tempfile.TemporaryDirectory[str]:
    """A folder in which the demo was run."""
    made = tempfile.TemporaryDirectory(prefix="redcal-docs-")
    Path(made.name, "conf").symlink_to(ROOT / "conf")
    # on a slow machine the demo takes so long that its patches are written twice, as version 1
    with mock.patch.object(patch_writer, "EVERY", 3_600):
        _DEMO_PRINTED.append(_printed(["demo"], made.name))
    return made


_DEMO_PRINTED: list[str] = []


@cache
def output(command: str) -> str:
    """The standard output of a command, with the same run id whenever it runs."""
    program, *arguments = shlex.split(command)
    assert program == "redcal"
    folder = _demo().name
    text = _DEMO_PRINTED[0] if arguments == ["demo"] else _printed(arguments, folder)
    text = RUN_ID.sub("20261116T110841-b087aa", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _printed(arguments: list[str], folder: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with inside(folder), redirect_stdout(out), redirect_stderr(err):
        code = cli.main(arguments)
    assert code == 0, (arguments, code, err.getvalue())
    return out.getvalue()


# --- references -----------------------------------------------------------------------------------


def commands() -> str:
    """Every command, from the parser, in the groups of `redcal --help`."""
    (known,) = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    groups = {g: [n for n in names if n in known.choices] for g, names in GROUPS.items()}
    lines = (
        f"| {group} | {', '.join(f'[{name}](#redcal-{name})' for name in names)} |"
        for group, names in groups.items()
    )
    parts = ["\n".join(["| group | commands |", "| --- | --- |", *lines])]
    parts += [part for names in groups.values() for name in names for part in _command(name, known)]
    return "\n\n".join(parts)


def _command(name: str, known: argparse._SubParsersAction[Any]) -> Iterator[str]:
    parser = known.choices[name]
    own = [a for a in parser._actions if not {*COMMON} & {*a.option_strings}]
    examples = "\n".join(EXAMPLES[name])
    yield f"## redcal {name}\n\n{parser.description}\n\n```sh\n{examples}\n```"
    if own:
        rows = "\n".join(f"| {_option(action)} | {_help(action)} |" for action in own)
        yield f"| option | |\n| --- | --- |\n{rows}"


def _option(action: argparse.Action) -> str:
    value = action.metavar if action.nargs != 0 else None
    if value is None and action.nargs != 0:
        value = action.dest.upper()
    value = f" [{value}]" if action.nargs == "?" else "" if value is None else f" {value}"
    names = ", ".join(action.option_strings)
    return f"`{(names + value).strip()}`"


def _help(action: argparse.Action) -> str:
    return ((action.help or "") % {"default": action.default}).replace("|", "\\|")


def section(name: str) -> str:
    """A section of the reference configuration, with the comment above it."""
    text = (ROOT / "conf" / "reference.yaml").read_text(encoding="utf-8")
    blocks = [block.strip("\n") for block in text.split("\n\n")]
    (found,) = [b for b in blocks if re.search(rf"^{name}:", b, re.MULTILINE)]
    return found

"""Log lines on standard error, for people or as JSON. Only the command line installs a handler.

A line of JSON is one object: `time` (UTC), `level`, `logger`, `message`, and what is known of the
run: `run_id`, `phase` (the last one begun), `round` and `step`; `exception`, if there was one.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from redcal_spark.cli.streams import Screen, printable
from redcal_spark.errors import RedcalWarning

log = logging.getLogger("redcal_spark")
log_line = logging.getLogger("redcal_spark.cli")  # what commands have to say
FORMATS = ("text", "json")


@dataclass
class Context:
    """Where a run is. `round` and `step` are those of the last patch."""

    run_id: str | None = None
    phase: str | None = None
    round: int | None = None
    step: int | None = None


class JsonLines(logging.Formatter):
    def __init__(self, context: Context, screen: Screen):
        super().__init__()
        self._context = context
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self._screen.hidden.text(record.getMessage()),
        }
        line |= {name: value for name, value in asdict(self._context).items() if value is not None}
        if record.exc_info:
            line["exception"] = self._screen.hidden.text(self.formatException(record.exc_info))
        return json.dumps(line)


class Lines(logging.Formatter):
    def __init__(self, screen: Screen):
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        return printable(self._screen.hidden.text(super().format(record)))


@contextmanager
def logging_to_stderr(
    quiet: bool, verbose: bool, form: str, context: Context, screen: Screen
) -> Iterator[None]:
    """Log lines go to standard error while a command runs.

    As JSON, warnings of libraries, too: nothing else may be between the lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(context, screen) if form == "json" else Lines(screen))
    warned = logging.getLogger("py.warnings")
    log.handlers[:] = [handler]
    log.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
    # what goes wrong in a batch of a stream is raised as well, and reported then
    logging.getLogger("py4j").setLevel(logging.WARNING if verbose else logging.CRITICAL)
    if form != "json":
        with _warnings_as_lines():
            yield
        return
    warned.addHandler(handler)
    warned.propagate = False
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warned.removeHandler(handler)
        warned.propagate = True


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Our own warnings without the place in the code, which says nothing to users of a command."""
    shown = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, RedcalWarning):
            log.warning("%s", message)
        else:
            shown(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


class Parser(argparse.ArgumentParser):
    """Reports wrong use in the form that was asked for, where that can still be seen."""

    given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        given = " ".join(self.given)
        if "--log-format json" not in given and "--log-format=json" not in given:
            super().error(message)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": "ERROR", "logger": log.name, "message": message}
        self.exit(2, json.dumps(line) + "\n")

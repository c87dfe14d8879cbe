"""Streams: standard output and error of a command, without what its configuration hides."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from redcal_spark.config.redaction import Redaction

STEERING = ("Cc", "Cf")  # control characters; marks that turn the direction of writing


def printable(text: str) -> str:
    """The text with signs that would steer a terminal written out: data is not to be trusted."""
    return "".join(
        sign if sign == "\n" or unicodedata.category(sign) not in STEERING else repr(sign)[1:-1]
        for sign in text
    )


class Screen:
    """What a command says goes through here; `hidden` is known when its configuration is read."""

    def __init__(self) -> None:
        self.hidden = Redaction()

    @contextmanager
    def on(self) -> Iterator[None]:
        """All that is printed meanwhile, by whomever."""
        out, err = _Stream(sys.stdout, self), _Stream(sys.stderr, self)
        with redirect_stdout(out), redirect_stderr(err):
            yield

    def console(self, **given: Any) -> Console:
        """For tables and progress: values are hidden before lines are broken, and found whole.

        Text in notebooks, too: a task on Databricks looks like one, and keeps no HTML.
        """
        return _Console(self, force_jupyter=False, **given)


class _Console(Console):
    def __init__(self, screen: Screen, **given: Any):
        self._screen = screen
        super().__init__(**given)

    def render_str(self, text: str, **given: Any) -> Text:
        return super().render_str(self._screen.hidden.text(text), **given)


class _Stream:
    """A stream that shows no hidden values. What it does not know of itself, the stream knows."""

    def __init__(self, stream: TextIO, screen: Screen):
        self._stream = stream
        self._screen = screen

    def write(self, text: str) -> int:
        self._stream.write(self._shown(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def _shown(self, text: str) -> str:
        hidden = self._screen.hidden
        if not hidden:
            return text
        if text[:1] in ("{", "["):  # for machines: values only, so that it stays JSON
            try:
                data = json.loads(text)
            except ValueError:
                return hidden.text(text)
            shown = hidden.plain(data)
            return text if shown == data else json.dumps(shown)
        return hidden.text(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

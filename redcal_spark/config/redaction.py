"""Redaction: what `${NAME}` in a configuration stands for is neither shown nor stored.

Texts that leave the process say `${NAME}` instead, as the configuration does. Those that come back,
from the ledger or an exported model, get the values again; in them `${$}` is a `$` that is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

# a variable in a configuration, and in a text that is kept
VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")

KEPT = re.compile(r"\$\{(\$|[A-Za-z_][A-Za-z0-9_]*)\}")

ANYWHERE = 8  # characters from which on a value is looked for inside of words, too
IN_TEXT = 3  # what is shorter is looked for as a whole text only: it would be in every sentence


class Redaction:
    """Values of variables, and the texts that they are part of; falsy if there are none.

    values: by name. texts: as resolved, and as written.

    >>> Redaction({"ROOT": "s3://acme-4711"}).text("s3://acme-4711/rows: no such table")
    '${ROOT}/rows: no such table'
    """

    def __init__(
        self, values: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ):
        self._values = dict(values or {})
        # a text as a whole counts, too: in `a${X}` a short value would not be found
        known = {new: old for new, old in (texts or {}).items() if new and new != old}
        known |= {value: f"${{{name}}}" for name, value in self._values.items() if value}
        self._known = bool(known)
        self._shown = _replacer(_spelt_otherwise(known) | known)
        self._stored = _replacer({new: _kept(old) for new, old in known.items()}, {"$": "${$}"})

    def __bool__(self) -> bool:
        return self._known

    def text(self, text: str) -> str:
        """For people: a message, a line of a log, a cell of a table."""
        return self._shown(text) if self._known else text

    def plain(self, data: Any) -> Any:
        """Data made of mappings, lists and texts, for people or machines."""
        return _each(data, self.text) if self._known else data

    def stored(self, text: str) -> str:
        """A text to be kept; `read` gives it back."""
        return self._stored(text) if self._known or "${" in text else text

    def read(self, text: str) -> str:
        """A text as it was before it was stored; variables of another configuration stay."""
        values = {**self._values, "$": "$"}
        return KEPT.sub(lambda match: values.get(match[1], match[0]), text)

    def stored_json(self, text: str) -> str:
        """JSON to be kept: its texts and keys one by one, so that it stays JSON."""
        return _json(text, self.stored) if self._known or "${" in text else text

    def read_json(self, text: str) -> str:
        return _json(text, self.read) if "${" in text else text


def _json(text: str, change: Callable[[str], str]) -> str:
    return json.dumps(_each(json.loads(text), change))


def _each(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {_each(key, change): _each(value, change) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_each(part, change) for part in data]
    return data


def _spelt_otherwise(texts: Mapping[str, str]) -> dict[str, str]:
    """As an address, JSON or Python would show them."""
    return {
        spelt: old
        for new, old in texts.items()
        for spelt in (
            quote(new),
            json.dumps(new)[1:-1],
            ascii(new)[1:-1],
            repr(new)[1:-1],
            new.replace("'", r"\'"),
            re.sub("^s3://", "s3a://", new),  # as Spark calls it
        )
    }


def _kept(written: str) -> str:
    """A text of the configuration in the form that is kept."""

    def part(match: re.Match[str]) -> str:
        return "${$}{" if match[0] == "$${" else match[0] if match[1] else "${$}"

    return re.sub(rf"{VARIABLE.pattern}|\$", part, written)


def _replacer(
    texts: Mapping[str, str], signs: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """Replaces texts by others, the longest first, and then single signs."""
    parts = []
    for text in sorted(texts, key=len, reverse=True):
        part = re.escape(text)
        if len(text) < ANYWHERE:
            part = rf"(?<!\w){part}(?!\w)" if len(text) >= IN_TEXT else rf"\A{part}\Z"
        parts.append(part)
    parts += map(re.escape, signs or ())
    pattern = re.compile("|".join(parts) or r"(?!)")
    new = {**texts, **(signs or {})}
    return lambda text: pattern.sub(lambda match: new[match[0]], text)

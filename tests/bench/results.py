"""Result files, `docs/results/*.json`: what a program printed, when, of which commit, on what.

The programs print Markdown. A file keeps its parts: tables as cells, lists and texts as lines. The
pages are made of these files (`make pages`), so that no figure is typed.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Part:
    """A table (with heads), or lines."""

    rows: Sequence[Sequence[str]] = ()
    heads: Sequence[str] | None = None

    @property
    def key(self) -> str:
        """What a page finds it by."""
        first = " | ".join(self.rows[0]) if self.rows else ""
        return first if self.heads is None else " | ".join([*self.heads, first])

    def markdown(self) -> str:
        if self.heads is None:
            return "\n".join(line for (line,) in self.rows)
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def to_json(self) -> dict[str, Any]:
        if self.heads is None:
            return {"lines": [line for (line,) in self.rows]}
        return {"heads": list(self.heads), "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Part:
        if "lines" in data:
            return cls([[line] for line in data["lines"]])
        return cls(data["rows"], data["heads"])


@dataclass(frozen=True)
class Results:
    """A result file."""

    command: str
    date: str
    commit: str
    machine: str
    parts: Sequence[Part]
    provenance: str | None = None

    @property
    def provenance_line(self) -> str:
        text = f"`{self.command}`, {self.date}, commit {self.commit}, on {self.machine}."
        return text if self.provenance is None else f"{text} {self.provenance}"

    def part(self, key: str) -> Part:
        found = [part for part in self.parts if key in part.key]
        if len(found) != 1:
            raise LookupError(f"{key!r} is in {len(found)} parts of the results, not in one")
        return found[0]

    def save(self, path: Path) -> None:
        data = {**vars(self), "parts": [part.to_json() for part in self.parts]}
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**data | {"parts": [Part.from_json(part) for part in data["parts"]]})


def parts_of(markdown: str) -> Iterator[Part]:
    for block in re.split(r"\n\s*\n", markdown.strip()):
        lines = [line.rstrip() for line in block.splitlines()]
        if not all(line.startswith("|") for line in lines):
            yield Part([[line] for line in lines])
            continue
        heads, _, *rows = ([cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines)
        yield Part(rows, heads)


def save_printed(
    path: Path, command: str, machine: str, printed: str, of: str | None = None
) -> None:
    """Keep what a program has just printed. of: the commit, if it is not that of now."""
    now = f"{datetime.now(UTC):%Y-%m-%d}"
    Results(command, now, of or commit(), machine, list(parts_of(printed))).save(path)


def commit() -> str:
    """The commit that is measured; `+` behind it: with changes that are in no commit."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")

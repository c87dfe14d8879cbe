"""The sessions of the corpus: every command with all that it prints and its exit code.

`[...]` stands for words of another library.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bad_inputs.build import build

CORPUS = Path(__file__).parent
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One command of a session."""

    name: str
    command: str
    message: str
    exit_code: int

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.command)[1:]

    def matches(self, text: str) -> bool:
        pattern = ".*".join(re.escape(part) for part in self.message.split("[...]"))
        return re.fullmatch(pattern, text) is not None


def cases() -> Iterator[Case]:
    for session in sorted(CORPUS.glob("*.txt")):
        found = re.findall(
            r"^# (.+)\n\$ (.+)\n((?:.*\n)*?)\[exit (\d)\]$", session.read_text(), re.MULTILINE
        )
        for title, command, message, code in found:
            yield Case(f"{session.stem}: {title}", command, message, int(code))


CASES = list(cases())


def lay_out(folder: Path) -> None:
    """The corpus in a folder of its own."""
    for config in CORPUS.glob("*.yaml"):
        shutil.copy(config, folder)
    shutil.copytree(CORPUS / "data", folder / "data")
    build(folder / "built")


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Nothing below the folder may have changed in the end."""
    before = tree(folder)
    yield
    left = tree(folder)
    for path in sorted(left.keys() - before.keys(), reverse=True):  # for the sake of other tests
        (folder / path).rmdir() if (folder / path).is_dir() else (folder / path).unlink()
    assert left == before, sorted(dict(left.items() ^ before.items()))


def tree(folder: Path) -> dict[str, int]:
    """Every path below a folder and when it changed.

    Of a folder its names tell: Spark's store looks once whether both see one, and takes that away.
    """
    return {
        str(path.relative_to(folder)): 0 if path.is_dir() else path.lstat().st_mtime_ns
        for path in folder.rglob("*")
    }


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, but for log lines."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return LOG_LINE.sub("", captured.err)

"""The pages and what stands in them: fences, and parts that are made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: +title="(?P<title>[^"]*)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)
MADE = re.compile(r"<!-- made: (?P<what>.+?) -->\n.*?<!-- end -->", re.DOTALL)
NOT_RUN = "Not run by the tests: "
ON_SPARK = "On Spark"


@dataclass(frozen=True)
class Fence:
    """A block of code on a page."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def runs(self) -> bool:
        return not self.title.startswith(NOT_RUN)

    @property
    def on_spark(self) -> bool:
        return self.title.startswith(ON_SPARK)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(page: Path, made: bool = False) -> list[Fence]:
    """The blocks of a page; those inside of made parts only if asked for."""
    text = page.read_text(encoding="utf-8")
    if not made:
        text = MADE.sub(lambda m: "\n" * m[0].count("\n"), text)
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Fence(name_of(page), line, match["language"], match["title"] or "", body))
    return found


def remade(text: str, make: Callable[[str], str]) -> str:
    """A page's text with every made part made anew."""
    return MADE.sub(
        lambda m: f"<!-- made: {m['what']} -->\n\n{make(m['what']).strip()}\n\n<!-- end -->", text
    )

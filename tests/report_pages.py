"""Reading a report as a reader would: its elements, its texts, its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "col", "wbr", "hr", "img", "input"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    @property
    def words(self) -> str:
        """The text in one line."""
        return re.sub(r"\s+", " ", self.text.replace("\u00a0", " ")).strip()

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Elements below, by tag and attributes (`class_` is one of its classes)."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if child.fits(tag, attributes):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def fits(self, tag: str | None, attributes: dict[str, str]) -> bool:
        if tag is not None and self.tag != tag:
            return False
        for key, value in attributes.items():
            own = self.attributes.get(key.rstrip("_").replace("_", "-"))
            if own is None or (value not in own.split() if key == "class_" else own != value):
                return False
        return True

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


class _Reader(HTMLParser):
    """Builds the tree; what is not well formed is an error."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.here = Element("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        new = Element(tag, {key: value or "" for key, value in attrs}, self.here)
        self.here.children.append(new)
        if tag not in VOID:
            self.here = new

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Element(tag, {k: v or "" for k, v in attrs}, self.here))

    def handle_endtag(self, tag: str) -> None:
        assert self.here.tag == tag, f"</{tag}> closes <{self.here.tag}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


def read_page(html: str) -> Element:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.here is reader.root, f"<{reader.here.tag}> is never closed"
    return reader.root


def numbers(page: Element) -> dict[str, set[tuple[str, str]]]:
    """What is shown of every number: {what it is of: (its value, its text)}."""
    found: dict[str, set[tuple[str, str]]] = {}
    for element in page.all("data"):
        of = element.attributes.get("data-n")
        if of is not None:
            found.setdefault(of, set()).add((element.attributes["value"], element.words))
    return found


def is_rounded(text: str, value: Fraction) -> bool:
    """Whether a text shows this value, rounded to the digits that it has."""
    told = text.replace("−", "-").replace(",", "").removesuffix(" %")
    if text.endswith(" %"):
        value *= 100
    if told == "·":
        return value == 0
    if told == "<.1":  # a small cell of a heat map, in per cent
        return 0 < value * 100 < Fraction(1, 20)
    if told.startswith(("<", ">")):
        bound = Fraction(told[1:].strip())
        return 0 < value < bound if told[0] == "<" else bound < value < 100
    mantissa, _, power = told.partition("e")
    digits = len(mantissa.partition(".")[2]) - int(power or 0)
    return abs(Fraction(told) - value) <= Fraction(1, 2) * Fraction(10) ** -digits

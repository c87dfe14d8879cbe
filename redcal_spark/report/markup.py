"""HTML and SVG that cannot be broken by what is put into them: texts are escaped, always."""

from __future__ import annotations

import re
from html import escape

VOID = frozenset({"br", "circle", "line", "path", "rect", "use"})


class Html(str):
    """Markup, ready to be shown. Everything else is text and is escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        """What jinja2 asks for before it escapes."""
        return self


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. Attributes: `class_` for class, `stroke_width` for stroke-width; None: none."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Html) else escape(str(child)) for child in children)
    if name in VOID and not inside:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{inside}</{name}>")


def joined(*parts: object, by: str = "") -> Html:
    """Parts one after the other, texts escaped."""
    texts = [part if isinstance(part, Html) else escape(str(part)) for part in parts]
    return Html((by if isinstance(by, Html) else escape(by)).join(texts))


def name(text: str) -> Html:
    """A name that the user gave: it may be long, or run from right to left.

    It may be broken where a reader would break it: after its signs.
    """
    parts = re.split(r"(?<=[_./\\-])(?=\w)", text)
    return tag("bdi", joined(*parts, by=Html("<wbr>")), class_="name")

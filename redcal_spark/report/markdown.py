"""The report as Markdown, for mail and pull requests: what the one who signs reads first."""

from __future__ import annotations

import re
from html import unescape

from redcal_spark.report.data import Report
from redcal_spark.report.page import context, environment

TAGS = re.compile(r"<[^>]*>")
TICKS = re.compile(r"`+")


def render_markdown(report: Report) -> str:
    """Every name is a code span, so that nothing in it is markup."""
    made = environment(report, autoescape=False)
    made.filters |= {"text": text, "code": code, "cell": cell}
    page = made.get_template("report.md").render(**context(report))
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def text(markup: object) -> str:
    """What a reader of the page sees: a number, or a sentence of ours."""
    if not hasattr(markup, "__html__"):
        return str(markup)
    return unescape(TAGS.sub("", str(markup)))


def code(name: object) -> str:
    """A name that the user gave, as a code span: of one line, fit for a cell of a table."""
    plain = " ".join(text(name).split()).replace("|", "\\|")
    longest = max(map(len, TICKS.findall(plain)), default=0)
    fence, room = "`" * (longest + 1), " " if longest or not plain else ""
    return f"{fence}{room}{plain}{room}{fence}"


def cell(sentence: object) -> str:
    """A sentence in a cell of a table."""
    plain = " ".join(text(sentence).split())
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", plain)

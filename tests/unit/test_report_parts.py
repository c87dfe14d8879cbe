"""The parts of a report: markup that escapes, numbers as texts, charts that stay small."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark.core.number_text import (
    change_text,
    decimal_text,
    digits_for,
    share_text,
    weight_text,
)
from redcal_spark.report import provenance
from redcal_spark.report.charts import (
    BARS,
    POINTS,
    Bar,
    Line,
    binned,
    line_chart,
    thinned,
    timeline,
)
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import share, tick_texts, ticks
from tests.report_pages import is_rounded, read_page


@given(st.text(), st.text())
def test_no_text_gets_out_of_its_element(text: str, attribute: str) -> None:
    html = tag("p", text, joined(text, by=attribute), name(text), title=attribute)
    for odd in "<>\"'&":
        assert odd not in text + attribute or html.count("<") == html.count(">")
    page = read_page(html)
    (paragraph,) = [e for e in page.children if not isinstance(e, str)]
    # what a parser reads, it reads with one kind of line end
    normal = [x.replace("\r\n", "\n").replace("\r", "\n") for x in (text * 3, attribute)]
    if "\0" not in text + attribute and "\r" not in text + attribute:
        assert (paragraph.text, paragraph.attributes["title"]) == tuple(normal)
    assert {e.tag for e in paragraph.all()} <= {"bdi", "wbr"}


def test_markup_is_escaped_once() -> None:
    inner = tag("b", "<&>")
    assert tag("p", inner, "<") == "<p><b>&lt;&amp;&gt;</b>&lt;</p>"
    assert joined(inner, "&", by=" & ") == "<b>&lt;&amp;&gt;</b> &amp; &amp;"
    assert isinstance(joined("a"), Html)
    assert tag("path", d="M0", class_="x", stroke_width=2, id=None) == (
        '<path d="M0" class="x" stroke-width="2"/>'
    )


def test_names_may_be_broken_after_their_signs() -> None:
    assert name("send_home/now-x") == ('<bdi class="name">send_<wbr>home/<wbr>now-<wbr>x</bdi>')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0.00"),
        (Fraction(1, 10**6), "< 0.01"),
        (Fraction(1, 3), "33.33"),
        (Fraction(999_999, 10**6), "> 99.99"),
        (Fraction(1), "100.00"),
    ],
)
def test_shares(value: Fraction, text: str) -> None:
    assert share_text(value) == f"{text} %"
    assert read_page(share(value)).text == f"{text}\u00a0%"


@given(st.fractions(min_value=0, max_value=1))
def test_a_share_is_rounded_and_never_hides_a_row(value: Fraction) -> None:
    text = share_text(value)
    assert is_rounded(text, Fraction(float(value)))
    assert (text == "0.00 %") == (value == 0)
    assert (text == "100.00 %") == (float(value) == 1)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9))
def test_a_decimal_is_rounded_and_never_hides_a_number(value: float) -> None:
    text = decimal_text(value, digits_for([value]))
    assert is_rounded(text, Fraction(value))
    assert (value == 0) == (not any(c in text for c in "123456789"))


def test_changes() -> None:
    assert change_text(Fraction(2), Fraction(1)) == "-50.0 %"
    assert change_text(Fraction(-2), Fraction(-1)) == "+50.0 %"
    assert change_text(Fraction(1), Fraction(1)) == "±0 %"
    assert change_text(Fraction(0), Fraction(1)) is None
    assert change_text(Fraction(10**6), Fraction(10**6 + 1)) == "+0.0 %"


@given(
    st.floats(min_value=-1e6, max_value=1e6),
    st.floats(min_value=1e-6, max_value=1e6),
    st.integers(min_value=2, max_value=8),
)
def test_ticks_are_inside_and_told_apart(low: float, width: float, most: int) -> None:
    found = ticks(low, low + width, most)
    assert len(found) <= most + 1
    room = 1e-6 * width + 1e-9 * abs(low)
    assert all(low - room <= v <= low + width + room for v in found)
    texts = tick_texts(found)
    assert len(set(texts)) == len(texts)


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=2_000))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float]) -> None:
    points = list(enumerate(values))
    kept = thinned(points)
    assert len(kept) <= POINTS
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(v for _, v in kept) == max(values)
    assert min(v for _, v in kept) == min(values)


def test_bins_keep_the_largest_of_each_model() -> None:
    steps = 5_000
    bars = [Bar(i, 1 + i % 2, i % 100 == 0, 1 + (i * 37) % 1_000) for i in range(steps)]
    found = binned(bars, steps)
    assert len(found) <= 2 * BARS
    for model in (1, 2):
        best = max((bar for bar in bars if bar.model == model), key=lambda bar: bar.rows)
        assert best.rows in [bar.rows for _, bar in found if bar.model == model]


@pytest.mark.parametrize("points", [[], [(0, 0.5)], [(0, 0.5), (7, 0.5)]])
def test_charts_of_next_to_nothing(points: list[tuple[int, float]]) -> None:
    chart = line_chart([Line("a", "one", points)], "words", str, bounds=(0.0, 1.0))
    svg = read_page(chart).all("svg")[0]
    assert svg.attributes["aria-label"] == "words"
    assert len(svg.all("circle")) == len(points)


def test_a_timeline_of_one_patch() -> None:
    chart = read_page(timeline([Bar(0, 2, True, 5)], "one patch", 100))
    (path,) = chart.all("path")
    assert path.attributes["class"] == "bar two opens"


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (48_785, "0.1", "4,878.5"),
        (48_790, "0.1", "4,879"),
        (1, "0.001", "0.001"),
        (7, "250", "1,750"),
        (2**37 - 1, "0.000000001", "137.438953471"),
        (12, "1", "12"),
    ],
)
def test_weights_are_shown_in_the_users_units(count: int, unit: str, text: str) -> None:
    assert weight_text(count, Fraction(unit)) == text


def test_a_digest_of_the_end_of_a_file_is_called_that() -> None:
    for size, words in ((65_536, ", sha256 ab"), (65_537, ", sha256 of the last 64 KiB ab")):
        told = provenance._version({"kind": "csv", "files": [["in.csv", size, 0, "ab"]]})
        assert told == f"CSV, 1 file, {size:,} bytes, changed 1970-01-01 00:00:00 UTC{words}"

"""The report in a real browser: Debian's chromium without a window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, Page, chromium_or_skip
from tests.e2e.test_report_cases import hostile, use, wide
from tests.e2e.work import Work

REPORT = Path("out/rows_report.html")
PHONE, DESKTOP = 390, 1280

CHARTS_WITHOUT_WORDS = """
[...document.querySelectorAll('svg, img, canvas, [role=img]')].filter(e =>
  e.getAttribute('role') !== 'img'
  || !(e.getAttribute('aria-label') || e.querySelector('title')?.textContent || '').trim()
).map(e => e.outerHTML.slice(0, 120))
"""
# Elements that stick out of the page; what is inside a box that scrolls does not.
TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1) && !e.closest('.scroll');
}).map(e => e.outerHTML.slice(0, 120))
"""
# Texts of charts and numbers that lie on each other.
OVERLAPS = """
[...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(
    e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
    p.width && q.width && p.left < q.right - 1 && q.left < p.right - 1
    && p.top < q.bottom - 4 && q.top < p.bottom - 4).map(([b]) => a + ' on ' + b));
})
"""
PALE = """
(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(x => {
    x /= 255; return x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (c && !c.endsWith(', 0)') && c !== 'transparent') return c; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('body *')].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.checkVisibility()
    && !e.closest('svg') && !e.closest('.heat td')
  ).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.outerHTML.slice(0, 100)];
  }).filter(([ratio]) => ratio < 4.5);
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(chromium_or_skip()) as found:
        yield found


def usual(work: Work) -> None:
    work.ran()


def nasty(work: Work) -> None:
    hostile(work)
    assert work.redcal("run").code == 0


def many_actions(work: Work) -> None:
    import numpy as np

    costs = np.random.default_rng(1).random((50, 6)).tolist()
    losses = {"wide": {"costs": costs, "actions": [f"take_the_way_number_{i}" for i in range(50)]}}
    use(work, wide(2_000, 6), losses, max_rounds=3)
    assert work.redcal("run").code == 3


def no_losses(work: Work) -> None:
    work.tree["losses"] = None
    work.tree["reconcile"] = {"algorithm": "reconcile", "alpha": 0.1, "eta": 0.05}
    work.ran()


def assert_sound(page: Page, width: int) -> None:
    assert page.problems() == []
    assert page.requests() == [REPORT.resolve().as_uri()]
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(CHARTS_WITHOUT_WORDS) == []
    assert page.evaluate(OVERLAPS) == []


LOOKS = [(width, dark) for width in (PHONE, DESKTOP) for dark in (False, True)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("case", "looks"),
    [
        (usual, LOOKS),
        (nasty, [(PHONE, False)]),
        (many_actions, [(PHONE, True)]),
        (no_losses, [(DESKTOP, True)]),
        *(
            pytest.param(case, LOOKS, marks=pytest.mark.slow)
            for case in (nasty, many_actions, no_losses)
        ),
    ],
)
def test_on_phone_and_desktop_light_and_dark(
    browser: Browser, work: Work, tmp_path: Path, case: object, looks: list[tuple[int, bool]]
) -> None:
    assert callable(case)
    case(work)
    for width, dark in looks:
        page = browser.page(REPORT, width, dark=dark)
        assert_sound(page, width)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert_sound(page, width)
        assert page.evaluate(PALE) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        red = int(ground.removeprefix("rgb(").split(",")[0])
        assert red < 40 if dark else red > 230
        picture = tmp_path / f"{width}_{'dark' if dark else 'light'}.png"
        page.screenshot(picture)
        assert picture.stat().st_size > 50_000
        page.close()


def test_printed(browser: Browser, work: Work, tmp_path: Path) -> None:
    work.ran()
    page = browser.page(REPORT, DESKTOP, dark=True)
    seen = "document.querySelector('details .checks').checkVisibility()"
    assert page.evaluate(seen) is False
    page.media("print", dark=True)
    # on paper everything is light and open
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert page.evaluate(seen) is True
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate(PALE) == []
    paper = tmp_path / "report.pdf"
    page.pdf(paper)
    assert paper.read_bytes().startswith(b"%PDF-")
    assert page.problems() == []


def test_on_the_smallest_phone(browser: Browser, work: Work) -> None:
    work.ran()
    page = browser.page(REPORT, 320)
    assert_sound(page, 320)

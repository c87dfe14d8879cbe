"""The site: built strictly, nothing loaded from elsewhere, right on phone and desktop."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, chromium_or_skip
from tests.docs.pages import DOCS, ROOT

# What a browser fetches by itself; a link that somebody may follow is none of these.
FETCHED = re.compile(
    r"<(?:script|img|source|iframe|link(?![^>]*rel=.?canonical))\b[^>]*"
    r"(?:src|srcset|href)=[\"']?(?:https?:)?//[^>]*>"
)
WIDER_THAN_THE_SCREEN = """
[...document.querySelectorAll('.md-content *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1
    && !e.closest('.md-typeset__scrollwrap, .md-typeset__table, pre, code, svg');
}).map(e => e.outerHTML.slice(0, 120))
"""


# Not --quiet: it hides warnings from --strict, too.
def build(to: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = ["mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(to)]
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    told = build(folder)
    assert told.returncode == 0, told.stdout + told.stderr
    return folder


def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path) -> None:
    config = tmp_path / "mkdocs.yml"
    own = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nnav: [index.md]\nplugins: []\n"
    config.write_text(own, encoding="utf-8")
    page = tmp_path / "pages" / "index.md"
    page.parent.mkdir()
    links = ("gone.md", "index.md#gone", "/gone.html", "gone.png")
    page.write_text("# A page\n\n" + "\n".join(f"[x]({link})" for link in links), encoding="utf-8")
    told = build(tmp_path / "site", config)
    assert told.returncode == 1
    noticed = [line for line in told.stderr.splitlines() if line.startswith("WARNING")]
    assert [link for link in links if not any(f"'{link}'" in line for line in noticed)] == []


def test_every_page_is_there(site: Path) -> None:
    sources = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert sources <= built
    assert len(sources) > 25


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text), sheet.name


def test_the_python_reference_has_the_parameters(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("driver_budget", "on_bad_rows", "ReconciledPair", "ModelFileError"):
        assert name in text


def test_readme_links_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"):
        page = ROOT / name
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                path, _, anchor = target.partition("#")
                assert (page.parent / path).exists(), (name, target)
                if anchor:
                    heads = re.findall(r"^#+ (.+)$", (ROOT / path).read_text("utf-8"), re.M)
                    assert anchor in [head.lower().replace(" ", "-") for head in heads]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(chromium_or_skip()) as found:
        yield found


FEW = ["index.html", "guide/getting-started.html", "reference/outputs.html", "results/paper.html"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_on_phone_and_desktop(site: Path, browser: Browser, which: str, width: int) -> None:
    paths = sorted(site.rglob("*.html")) if which == "all" else [site / name for name in FEW]
    for path in paths:
        page = browser.page(path, width, dark=width == 390)
        assert [x for x in page.requests() if not x.startswith(("file:", "data:"))] == [], path
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, path
        assert page.evaluate(WIDER_THAN_THE_SCREEN) == [], path
        page.close()

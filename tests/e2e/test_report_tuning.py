"""The report says how eta was chosen, where the configuration leaves it to the rows."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from redcal_spark import Reconciler, cli

RUN = ["-c", "out/demo.yaml", "--set", "reconcile.eta=auto"]


class Numbers(HTMLParser):
    """Every number of the page that says what it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "data" and given.get("data-n") is not None:
            self.values[str(given["data-n"])] = str(given["value"])


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--rows", "1500", "--quiet"]) == 0
    assert "How eta was chosen" not in Path("out/demo/triage_report.html").read_text()
    assert cli.main(["run", *RUN, "--quiet"]) in (0, 3)
    return Path("out/demo/triage_report.html").read_text()


def test_every_candidate_with_its_numbers(page: str) -> None:
    assert cli.main(["export", *RUN, "-o", "pair.json", "--quiet"]) == 0
    stored = json.loads(Path("pair.json").read_text())["tuned"]
    parser = Numbers()
    parser.feed(page)
    section = page[page.index('<section id="tuning"') :]
    section = section[: section.index("</section>")]
    rows = sum(stored["used"])
    losses = {}
    for candidate in stored["candidates"]:
        folds, rule = candidate["folds"], {1: "auto", 4: "4 x auto"}[candidate["stretch"]]
        of = f"tuning/{candidate['eta']:g}/{rule}"
        loss = sum(Fraction(fold["loss"]) for fold in folds)  # of two models under one loss
        losses[candidate["eta"], rule] = loss
        assert Fraction(parser.values[f"{of}/loss"]) == loss / (2 * rows)
        disputed = sum(fold["disputed"] for fold in folds)
        assert Fraction(parser.values[f"{of}/disputed"]) == Fraction(disputed, rows)
        assert f"{folds[0]['patches']}, {folds[1]['patches']}" in section
    assert len(losses) == 8 and section.count('class="pill good">taken') == 1
    # the lowest loss; ties: larger eta, then larger beta
    eta, rule = min(losses, key=lambda key: (losses[key], -key[0], key[1] == "auto"))
    assert f"Taken: eta {eta:g}, beta {rule}." in section
    assert Fraction(parser.values[f"tuning/{eta:g}/{rule}/above"]) == 0
    before = Fraction(stored["before"]["loss"]) / (2 * rows)
    assert Fraction(parser.values["tuning/before/loss"]) == before
    assert section.count("<svg role") == 3 and ", chosen by eta: auto" in page


def test_for_mail_too(page: str) -> None:
    assert cli.main(["report", *RUN, "-o", "report.md", "--quiet"]) == 0
    text = Path("report.md").read_text()
    lines = re.findall(r"^\| 0\.0\d+( \*\*taken\*\*)? \| (?:4 x )?auto \|", text, re.MULTILINE)
    assert len(lines) == 8 and sum(map(bool, lines)) == 1


def test_of_a_pair_in_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 1_200)
    one, two = np.clip(0.3 + 0.4 * y + rng.normal(0, 0.25, (2, 1_200)), 0, 1)
    made = Reconciler(losses={"lend": [[0, 5], [1, 0]]}, alpha=0.01, eta="auto", threads=1)
    made.fit(one, two, y).report(tmp_path / "pair.html")
    text = (tmp_path / "pair.html").read_text()
    assert text.count('class="pill good">taken') == 1 and "How eta was chosen" in text

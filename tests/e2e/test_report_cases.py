"""The report of unusual runs: hostile names, no holdout rows, very many of everything."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.certificate.certify import Certificate, Check
from redcal_spark.certificate.intervals import Interval
from redcal_spark.config.load import load_config
from redcal_spark.core.patches import PatchLog
from redcal_spark.report.data import LOSSES as SHOWN
from redcal_spark.report.data import Report
from redcal_spark.report.page import render
from redcal_spark.runs.job import Job
from tests.e2e.work import Work, scores, softmax, write
from tests.report_pages import Element, numbers, read_page

REPORT = Path("out/rows_report.html")
MOST_BYTES = 1_500_000
SCRIPT = "<script>alert('x')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
ARABIC = "إرسال إلى المنزل"
LONG = "a_name_that_goes_on_" * 12


def page() -> Element:
    return read_page(REPORT.read_text(encoding="utf-8"))


def report_of(work: Work) -> Report:
    """The data behind the page, to be changed."""
    config = load_config("config.yaml")
    job = Job(config, LocalBackend(DeltaRsStore()))
    return Report.of(job.store, job.tables, job.find())


def wide(rows: int, classes: int, seed: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.6, (rows, classes))
    one, two = (softmax(truth + rng.normal(0, 0.9, truth.shape)) for _ in range(2))
    label = (softmax(truth).cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    return pa.table(
        {
            "case": np.arange(rows),
            "outcome": label.clip(0, classes - 1),
            "fold": rng.choice(["train", "test"], rows),
            "a": pa.array(list(one)),
            "b": pa.array(list(two)),
        }
    )


def use(work: Work, table: pa.Table, losses: Any, **reconcile: Any) -> None:
    write(table)
    work.tree["input"].pop("classes", None)
    work.tree["losses"] = losses
    work.tree["reconcile"] |= reconcile


# --- names ----------------------------------------------------------------------------------------


def hostile(work: Work) -> None:
    """Names as nobody should choose them: markup, templates, right to left, far too long."""
    table = scores().rename_columns(["case", "outcome", "fold", "note", SCRIPT, LONG])
    outcome = [SCRIPT if x == "mild" else x for x in table["outcome"].to_pylist()]
    write(table.set_column(1, "outcome", pa.array(outcome)))
    work.tree["input"] |= {
        "model_1": SCRIPT,
        "model_2": LONG,
        "classes": [SCRIPT, "grave", "rare", "none"],
    }
    triage = work.tree["losses"]["triage"] | {"actions": [SCRIPT, ARABIC, LONG]}
    work.tree["losses"] = {IMAGE: triage, "{{ 7 * 7 }}": work.tree["losses"]["beds"]}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["redcal", "reconcile"])
def test_every_value_is_escaped(work: Work, algorithm: str) -> None:
    hostile(work)
    work.tree["reconcile"] = {"algorithm": algorithm, "alpha": 0.01, "eta": 0.01}
    told = work.redcal("run")
    assert told.code == 0, told.err
    text = REPORT.read_text(encoding="utf-8")
    shown = page()
    assert "<script" not in text
    tags = {element.tag for element in shown.all()}
    assert tags.isdisjoint({"script", "img", "iframe", "object", "form", "input", "base"})
    for element in shown.all():
        assert not [key for key in element.attributes if key.startswith("on")]
        for key in ("href", "src", "action", "xlink:href"):
            assert element.attributes.get(key, "#").startswith(("#", "data:image/svg+xml,"))
    words = shown.words
    for name in (SCRIPT, LONG, IMAGE, ARABIC, "{{ 7 * 7 }}"):
        assert name in words
    assert all(element.words for element in shown.all("bdi"))


def test_the_page_loads_and_runs_nothing(work: Work) -> None:
    work.ran()
    text = REPORT.read_text(encoding="utf-8")
    (policy,) = [
        m.attributes["content"]
        for m in page().all("meta")
        if m.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    for address in ("http://", "https://", "//cdn", "@import", "url("):
        found = text.replace("http://www.w3.org/2000/svg", "")  # a name, never fetched
        assert address not in found


# --- few of something -----------------------------------------------------------------------------


def test_no_holdout_rows(work: Work) -> None:
    del work.tree["input"]["split"]
    work.ran()
    shown = page()
    assert "No holdout rows" in shown.one("header").words
    assert not [of for of in numbers(shown) if of.startswith("holdout/") and of != "holdout/rows"]
    # scores that were fitted to these labels have no interval
    ends = [of for of in numbers(shown) if of.endswith(("/low", "/high"))]
    assert ends
    assert not [of for of in ends if "/after/" in of and not of.startswith("certificate")]


@pytest.mark.slow
def test_scores_that_the_guard_chose_by_these_rows_have_no_intervals_of_their_own(
    work: Work,
) -> None:
    for guard, known in (("report", True), ("best_prefix", False)):
        work.tree["reconcile"]["guard"] = guard
        assert work.redcal("run").code in (0, 3)  # the guard may cut
        ends = [of for of in numbers(page()) if of.endswith(("/after/low", "/after/high"))]
        assert bool([of for of in ends if of.startswith("holdout/")]) is known


def test_nothing_to_do(work: Work) -> None:
    work.tree["reconcile"]["eta"] = 0.9
    work.ran()
    shown = page()
    assert shown.one("h1").words == "Nothing had to be changed"
    assert not shown.all("section", id="patches")
    assert shown.one("ul", class_="tiles").words.count("±0 %") == 5
    assert "Nothing: all of it is below the limits." in shown.one("section", id="audit").words


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        ("capped", {"max_rounds": 1}),
        ("stalled", {"grid_bits": 1}),
        ("cut", {"eta": 0.004, "beta": 1e-5, "guard": "best_prefix"}),
    ],
)
def test_a_run_that_did_not_converge_says_so_first(
    work: Work, status: str, changes: dict[str, Any]
) -> None:
    work.tree["reconcile"] |= changes
    assert work.redcal("run").code == 3
    header = page().one("header")
    assert header.one("span", class_="pill").words == status
    (alert, *_) = header.all("div", role="alert")
    assert f"Not converged: {status}" in alert.words


# --- many of something ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_losses(work: Work) -> None:
    rng = np.random.default_rng(0)
    losses = {f"loss_{i}": {"costs": rng.random((3, 4)).tolist()} for i in range(110)}
    use(work, wide(400, 4), losses, max_rounds=2)
    work.redcal("run")
    shown = page()
    assert "98 losses with less disagreement before" in shown.words
    assert f"The {SHOWN} losses with most disagreement are shown at length" in shown.words
    assert f"{110 - SHOWN} more are not" in shown.words
    named = {of.split("/")[1] for of in numbers(shown) if "/pair/" in of}
    assert len(named) == SHOWN
    report = report_of(work)
    worst = sorted(range(110), key=lambda i: -report.apart("holdout", "before", i))[:SHOWN]
    assert named == {f"loss_{i}" for i in worst}
    assert "more; the ledger has them all" in shown.one("section", id="certificate").words
    assert REPORT.stat().st_size < MOST_BYTES


def test_fifty_actions(work: Work) -> None:
    costs = np.random.default_rng(1).random((50, 6)).tolist()
    use(work, wide(3_000, 6), {"wide": {"costs": costs}}, max_rounds=5)
    work.redcal("run")
    shown = page()
    told = numbers(shown)
    for when in ("before", "after"):
        cells = [of for of in told if of.startswith(f"holdout/wide/{when}/pair/")]
        assert len(cells) == 81  # eight actions and all others together
        assert sum(Fraction(next(iter(told[of]))[0]) for of in cells) == 1
    assert shown.words.count("42 others") >= 4
    assert "42 more actions" in shown.one("section", id="costs").words
    assert "42 more actions with smaller gaps" in shown.one("section", id="audit").words
    assert REPORT.stat().st_size < MOST_BYTES


@pytest.mark.slow
def test_a_thousand_classes(work: Work) -> None:
    costs = np.random.default_rng(2).random((4, 1_000)).tolist()
    use(work, wide(300, 1_000), {"deep": {"costs": costs}}, eta=0.05, max_rounds=5)
    work.redcal("run")
    assert "(4 × 1000 numbers)" in page().one("pre").text
    assert REPORT.stat().st_size < MOST_BYTES


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("count", [361, 20_000])
def test_thousands_of_patches(work: Work, count: int) -> None:
    work.ran()
    report = report_of(work)
    log = report.log
    many = PatchLog(
        replace(log[i % len(log)], step=i, rows=1 + (i * 7919) % 97) for i in range(count)
    )
    html = render(replace(report, log=many))
    assert len(html.encode()) < MOST_BYTES / 5
    chart = read_page(html).one("section", id="patches").one("svg", class_="chart")
    bars = sum(path.attributes["d"].count("M") for path in chart.all("path"))
    assert bars <= 2 * 360
    assert f"{count:,} patches in order" in chart.attributes["aria-label"]


# --- a promise that was not kept ------------------------------------------------------------------


def failing(split: Any = "holdout", relation: Any = "<=") -> Check:
    return Check.of(
        "largest_event",
        "no disagreement event has a mass above 2 eta",
        Fraction(1, 4),
        relation,
        Fraction(1, 50),
        split=split,
        loss="triage",
        interval=Interval(Fraction(1, 5), Fraction(3, 10), Fraction(95, 100), "Clopper-Pearson")
        if split == "holdout"
        else None,
    )


def test_a_broken_promise_is_loud(work: Work) -> None:
    work.ran()
    report = report_of(work)
    assert report.certificate is not None
    checks = (*report.certificate.checks, failing())
    shown = read_page(render(replace(report, certificate=Certificate(checks))))
    (alert, *_) = shown.one("header").all("div", role="alert")
    assert "bad" in alert.attributes["class"].split()
    assert "1 promise did not hold on the holdout rows" in alert.words
    assert "measured 0.25, promised ≤ 0.02 (triage, holdout rows)" in alert.words
    assert "did not hold" in shown.one("header").one("div", class_="words").words
    section = shown.one("section", id="certificate")
    (first, *_) = section.all("li", class_="check")
    assert first.one("span", class_="mark").words == "✕"
    assert not inside_details(first)
    assert "1 violated" in section.words


def test_a_contradiction_is_louder(work: Work) -> None:
    work.ran()
    report = report_of(work)
    shown = read_page(render(replace(report, certificate=Certificate((failing("fit"),)))))
    (alert, *_) = shown.one("header").all("div", role="alert")
    assert "This run contradicts itself: use nothing of it" in alert.words


def test_without_a_certificate_there_is_a_page_still(work: Work) -> None:
    work.ran()
    shown = read_page(render(replace(report_of(work), certificate=None)))
    assert "This run has no certificate." in shown.words


def test_a_lost_history_leaves_the_rest(work: Work) -> None:
    work.ran()
    shown = read_page(render(replace(report_of(work), history=pa.table({"step": []}))))
    assert not shown.all("section", id="steps")
    assert shown.all("section", id="patches")


def test_calibrations_that_the_grid_ended_are_no_end_of_work(work: Work) -> None:
    work.tree["reconcile"] |= {"algorithm": "decision_calibration", "beta": 1e-4, "grid_bits": 5}
    told = work.redcal("run")
    assert told.code == 0
    count = re.search(r"(\d+) calibrations? ended on a patch that rounds to nothing", told.out)
    assert count is not None and int(count[1]) > 0
    header = page().one("header").words
    assert "nothing was left to do" not in header
    assert f"{count[0]} on the patch grid, so that gaps above beta may be left" in header
    work.tree["reconcile"]["grid_bits"] = 26
    told = work.redcal("run", "--set", "reconcile.beta=0.2")
    assert "rounds to nothing" not in told.out
    assert "nothing was left to do" in page().one("header").words


def test_rows_that_the_guard_chose_by_are_not_called_unseen_alone(work: Work) -> None:
    chose = "by these the guard chose how many patches to keep"
    for guard, said in (("report", False), ("best_prefix", True)):
        work.tree["reconcile"]["guard"] = guard
        work.redcal("run", "--force")
        work.redcal("report", "-o", "mail.md")
        for words in (page().one("header").words, Path("mail.md").read_text("utf-8")):
            assert (chose in words) == said
        lead = page().one("section", id="certificate").words
        assert ("by which the guard chose" in lead) == said


def test_rows_in_dispute_that_nobody_decides(work: Work) -> None:
    work.tree["output"]["tie"] = None
    work.tree["reconcile"]["eta"] = 0.2
    work.ran()
    work.ran("report", "-o", "mail.md")
    assert "is null there (`output.tie: null`): somebody must decide them." in (
        Path("mail.md").read_text("utf-8")
    )


def test_what_got_worse_on_holdout_rows_is_told(work: Work) -> None:
    work.tree["reconcile"] |= {"eta": 0.002, "beta": 1e-5, "max_steps": 400}
    work.redcal("run")
    report = report_of(work)
    rose = [
        m
        for m in (1, 2)
        if report.brier("holdout", "after", m) > report.brier("holdout", "before", m)
    ]
    assert rose  # far below the noise, patches fit noise
    assert "Worse on rows that the fit never saw" in page().one("header").words


def test_mixed_up_classes_stand_on_top(work: Work) -> None:
    """The warning of the run: a report to sign that leaves it out looks right and is not."""
    told = work.redcal("run")
    assert "equal scores" not in told.out + REPORT.read_text(encoding="utf-8")
    work.tree["input"]["classes"].reverse()
    told = work.redcal("run")
    assert "  but equal scores for all classes would have a better Brier score than a" in told.out
    header = page().one("header").words
    assert "Worse than equal scores: are classes or rows mixed up?" in header
    assert "a better Brier score than a and b: are the classes in the order of the" in header
    work.redcal("report", "-o", "mail.md")
    assert "a better Brier score than `a` and `b`: are the" in Path("mail.md").read_text("utf-8")


def inside_details(element: Element) -> bool:
    parent = element.parent
    while parent is not None:
        if parent.tag == "details":
            return True
        parent = parent.parent
    return False


def test_every_chart_has_words(work: Work) -> None:
    work.ran()
    shown = page()
    charts = [svg for svg in shown.all("svg") if svg.parent is not None and svg.parent.tag != "svg"]
    # Brier twice; per loss the gap twice and the disagreement; a row per action and model; patches
    assert len(charts) == 2 + 2 * 3 + 2 * (3 + 2) + 1
    for svg in charts:
        assert svg.attributes["role"] == "img"
        assert len(svg.attributes["aria-label"]) > 20
    for element in shown.all(role="img"):
        assert element.attributes["aria-label"]
    for table in shown.all("table"):
        assert table.all("th", scope="col")
    for heading in ("h1", "h2"):
        assert shown.all(heading)
    ids = [e.attributes["id"] for e in shown.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for link in shown.one("nav").all("a"):
        assert link.attributes["href"].removeprefix("#") in ids

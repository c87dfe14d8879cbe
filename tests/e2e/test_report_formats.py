"""The report for the one who signs: moves, dispute, which model; as page, Markdown and PDF."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.report.markdown import cell, code
from redcal_spark.report.pdf import BROWSERS
from redcal_spark.runs.ledger import Ledger
from tests.browser import Browser, chromium_or_skip
from tests.e2e.test_decisions import THREE, three_models
from tests.e2e.test_report import page
from tests.e2e.work import LOSSES, Work, split_rows
from tests.report_pages import Element, numbers


def decisions(shown: Element) -> Element:
    return shown.one("section", id="decisions")


def test_markdown_has_what_the_page_has(work: Work) -> None:
    run = work.ran()
    told = work.redcal("report", "-o", "mail.md", "--json")
    assert told.json == {"run_id": run["run_id"], "report": "mail.md"}
    text = Path("mail.md").read_text("utf-8")
    assert text.startswith("# Reconciliation of `a` and `b`\n")
    assert "<" not in text.replace("| <", "").replace("< 0.01 %", ""), "no markup is left"
    fingerprint = work.runs()[-1]["fingerprint"]
    assert text.count(fingerprint) == 2 and "Name: ____" in text
    shown = numbers(page())
    rows = split_rows(work.table(), "test").to_pylist()
    for loss in LOSSES:
        for model in (1, 2):
            moved = sum(r[f"{loss}_{model}_before"] != r[f"{loss}_{model}_after"] for r in rows)
            assert moved, "else the test shows nothing"
            [(value, told_rows)] = shown[f"holdout/{loss}/moves/{model}/rows"]
            assert value == str(moved) and f"**{told_rows}**" in text
            [(_, cost)] = shown[f"holdout/{loss}/moves/{model}/cost"]
            assert f"**{cost}**" in text
        [(_, left)] = shown[f"holdout/{loss}/dispute/rows"]
        assert f"**Still in dispute:** {left} rows" in text
    lines = text.splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    beside = work.redcal("report", "--format", "md")
    assert beside.code == 0 and Path("out/rows_report.md").read_text("utf-8") == text


def test_names_cannot_become_markup() -> None:
    assert code("plain_name") == "`plain_name`"
    assert code("a|b\n# c") == "`a\\|b # c`"
    assert code("x`y``z") == "``` x`y``z ```"
    assert code("<b>") == "`<b>`"
    assert cell("[x](y) <b> | `c`") == "\\[x\\](y) \\<b\\> \\| \\`c\\`"


def test_names_that_look_like_markup(work: Work) -> None:
    triage = LOSSES["triage"] | {"actions": ["# go`home`", "a|b", "<script>x</script>"]}
    work.tree["losses"] = {"**l**": triage}
    work.ran()
    assert work.redcal("report", "-o", "x.md").code == 0
    text = Path("x.md").read_text("utf-8")
    assert "`` # go`home` ``" in text and "`a\\|b`" in text and "`<script>x</script>`" in text
    assert "`**l**`" in text


def test_formats_by_ending_and_by_name(work: Work) -> None:
    work.ran()
    assert work.redcal("report", "-o", "x.markdown").code == 0
    assert Path("x.markdown").read_text("utf-8").startswith("# ")
    told = work.redcal("report", "-o", "x.docx")
    assert told.code == 2 and "-o x.docx: a report is one of .html, .htm, .md, " in told.err
    assert not Path("x.docx").exists()
    assert work.redcal("report", "-o", "x", "--format", "md").code == 0
    assert Path("x").read_text("utf-8").startswith("# ")
    told = work.redcal("report", "-o", "x.html", "--format", "pdf")
    assert (told.code, told.out) == (2, "")
    assert "-o x.html ends as html, and --format says pdf: leave one out" in told.err
    assert not Path("x.html").exists()


def test_a_report_is_a_file(work: Work) -> None:
    told = work.redcal("report", "-o", "-")
    assert told.code == 2 and "-o -: a report is a file; name it" in told.err
    assert not Path("-").exists()


def test_pdf_without_a_browser_is_refused_by_name(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.ran()
    monkeypatch.setenv("PATH", str(work.folder))
    told = work.redcal("report", "-o", "x.pdf")
    assert (told.code, told.out) == (2, "")
    assert "redcal report: --format pdf: needs Chromium to print with" in told.err
    assert BROWSERS[0] in told.err and "print the HTML report from any browser" in told.err
    assert not Path("x.pdf").exists()
    broken = work.folder / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 5\n")
    broken.chmod(0o755)
    told = work.redcal("report", "-o", "x.pdf")
    assert told.code == 1 and "chromium did not print: no display" in told.err


def test_pdf_by_chromium(work: Work) -> None:
    chromium_or_skip()
    work.ran()
    told = work.redcal("report", "--format", "pdf")
    assert told.code == 0, told.err
    paper = Path("out/rows_report.pdf").read_bytes()
    assert paper.startswith(b"%PDF") and len(paper) > 20_000


@pytest.mark.slow
def test_the_place_to_sign_is_on_paper_only(work: Work) -> None:
    path = chromium_or_skip()
    work.ran()
    shown = "getComputedStyle(document.querySelector('.sign')).display"
    with Browser(path) as browser:
        tab = browser.page(Path("out/rows_report.html"))
        assert tab.evaluate(shown) == "none"
        tab.media("print")
        assert tab.evaluate(shown) == "block"
    sign = decisions(page()).one("div", class_="sign").words
    fingerprint = work.runs()[-1]["fingerprint"]
    assert all(word in sign for word in ("Name", "Date", "Signature", fingerprint))


def test_words_are_in_the_margin(work: Work) -> None:
    work.ran()
    terms = [x.words for x in decisions(page()).one("aside").all("dt")]
    assert {"Score", "Decision", "Holdout rows", "Certificate", "Fingerprint"} <= {*terms}


@pytest.mark.parametrize(
    ("tie", "words"),
    [
        ("off", "let output.tie decide. It adds the column triage_decision"),
        (None, "it is null (output.tie: null): somebody must decide them"),
        ("model_2", "that of b (output.tie: model_2), so that its cost is that model’s"),
        ("cheaper", "costs least by the mean of all models’ new scores (output.tie: cheaper)"),
    ],
)
def test_what_one_may_do_with_rows_in_dispute(work: Work, tie: Any, words: str) -> None:
    work.tree["output"]["tie"] = tie
    work.ran()
    assert words in decisions(page()).words


def test_the_report_of_three_models(work: Work) -> None:
    three_models(work)
    work.tree["output"]["tie"] = "other"
    assert work.redcal("run").code in (0, 3)
    shown = decisions(page())
    told = numbers(page())
    rows = split_rows(work.table(), "test").to_pylist()
    for loss in LOSSES:
        for model, called in enumerate(THREE, 1):
            moved = sum(r[f"{loss}_{called}_before"] != r[f"{loss}_{called}_after"] for r in rows)
            assert {v for v, _ in told[f"holdout/{loss}/moves/{model}/rows"]} == {str(moved)}
        apart = sum(len({r[f"{loss}_{called}_after"] for called in THREE}) > 1 for r in rows)
        assert {v for v, _ in told[f"holdout/{loss}/dispute/rows"]} == {str(apart)}
    assert "that of other (output.tie: other)" in shown.words
    sign = shown.one("div", class_="sign").words
    assert all(f"accept the new scores of {x}" in sign for x in THREE)
    assert work.redcal("report", "-o", "x.md").code == 0
    text = Path("x.md").read_text("utf-8")
    assert text.startswith("# Reconciliation of `champion`, `challenger` and `other`\n")


def test_without_holdout_rows_nobody_counted_moves(work: Work) -> None:
    del work.tree["input"]["split"]
    work.ran()
    shown = decisions(page())
    assert "it had no holdout rows (input.split holds rows out)" in shown.words
    assert "the models were fitted to these very rows" in shown.words
    rows = [r for r in work.table().to_pylist() if r["outcome"] is not None]
    told = numbers(page())
    for action, name in enumerate(LOSSES["triage"]["actions"]):
        for model in (1, 2):
            for when in ("before", "after"):
                of = f"fit/triage/net/{model}/{action}/{when}"
                if of in told:
                    count = sum(r[f"triage_{model}_{when}"] == name for r in rows)
                    assert {value for value, _ in told[of]} == {str(count)}
    assert any("/net/" in of for of in told)
    assert work.redcal("report", "-o", "x.md").code == 0
    assert "this run has no such count" in Path("x.md").read_text("utf-8")
    assert work.redcal("evaluate").code == 0


@pytest.mark.slow
def test_what_the_guard_left_out_is_not_among_the_moves(work: Work) -> None:
    """The patches that were kept moved these rows, and evaluate counts the same."""
    work.tree["reconcile"] |= {"guard": "best_prefix", "eta": 0.004, "alpha": 0.001}
    told = work.redcal("run", "--json")
    assert told.code == 3 and told.json["status"] == "cut", "a log that is cut"
    kept = json.loads(work.runs()[-1]["audits"])["holdout"]["after"]["moves"]
    rows = split_rows(work.table(), "test").to_pylist()
    assert kept["touched_either"] == sum(row["touched"] for row in rows)
    for loss, moves in zip(LOSSES, kept["losses"], strict=True):
        for model in (1, 2):
            own = [m for m in moves if m["model"] == model and m["before"] != m["after"]]
            changed = sum(r[f"{loss}_{model}_before"] != r[f"{loss}_{model}_after"] for r in rows)
            assert sum(move["rows"] for move in own) == changed
    assert "the guard chose by these very rows" in decisions(page()).words
    assert work.redcal("evaluate").code == 0


def test_the_money_of_all_moves_is_the_change_of_the_cost(work: Work) -> None:
    work.ran()
    moves = json.loads(work.runs()[-1]["audits"])["holdout"]["after"]["moves"]["losses"][0]
    total = sum((Fraction(m["cost_exact"]) for m in moves if m["model"] == 1), Fraction(0))
    before, after = (
        Fraction(
            json.loads(work.runs()[-1]["audits"])["holdout"][w]["losses"][0]["decision_loss_exact"][
                0
            ]
        )
        for w in ("before", "after")
    )
    assert total == (after - before) * split_rows(work.table(), "test").num_rows


def test_moves_that_do_not_add_up_are_not_shown(work: Work) -> None:
    """A count that cannot be right is no count."""
    work.ran()
    ledger = Ledger(DeltaRsStore(), "out/rows_runs")
    [row] = ledger.rows()
    audits = json.loads(row.audits or "")
    moves = audits["holdout"]["after"]["moves"]["losses"][0]
    next(move for move in moves if move["before"] != move["after"])["rows"] += 1
    assert ledger.replace(replace(row, audits=json.dumps(audits), previous_claim=row.claim))
    assert work.redcal("report").code == 0
    shown = decisions(page())
    assert "this run has no such count" in shown.words
    assert not any("holdout/triage/moves" in of and "matrix" in of for of in numbers(shown))
    assert any("holdout/beds/moves" in of for of in numbers(shown)), "the other loss is fine"


def test_a_run_that_changes_nothing(work: Work) -> None:
    work.tree["reconcile"] |= {"alpha": 1.0, "eta": 1.0}
    work.ran()
    shown = decisions(page())
    assert "Nothing was changed: scores and decisions are those of the models as given" in (
        shown.words
    )
    assert not shown.all("table") and "Which model to use" in shown.words

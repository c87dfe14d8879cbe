"""The certificate of every run, what tampering does to it, and the guard, through the commands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.certificate.certify import Certificate
from redcal_spark.runs.ledger import Ledger
from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, problem, scores, split_rows, write

REDONE = ("replay", "patches")  # only an evaluation goes another way


def checks(certificate: Any) -> dict[tuple[Any, ...], Any]:
    found = Certificate.from_json(certificate).checks
    return {(c.name, c.split, c.loss, c.model): c for c in found}


def same_but_redone(one: Any, two: Any) -> bool:
    kept = [
        {place: check for place, check in checks(x).items() if place[0] not in REDONE}
        for x in (one, two)
    ]
    return kept[0] == kept[1] and one["measures"] == two["measures"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "algorithm", ["redcal", "decision_calibration", "reconcile", "dc_then_redcal"]
)
def test_the_written_rows_alone_give_the_certificate_of_the_run(work: Work, algorithm: str) -> None:
    work.tree["reconcile"]["algorithm"] = algorithm
    told = work.ran()
    [row] = work.runs()
    assert json.loads(row["certificate"]) == told["certificate"]
    again = work.redcal("evaluate", "--json")
    assert again.code == 0
    assert again.json["run_id"] == told["run_id"]
    assert same_but_redone(told["certificate"], again.json["certificate"])
    for place, check in checks(again.json["certificate"]).items():
        if place[0] in REDONE:
            assert check.verdict == "holds"


def test_the_certificate_says_what_an_independent_count_says(work: Work) -> None:
    found = checks(work.ran()["certificate"])
    for split, fold in (("fit", "train"), ("holdout", "test")):
        before = split_rows(scores(), fold)
        given = problem(before)
        log = work.redcal("log", "--json").lines
        f = oracle.replay(given, log)
        n = before.num_rows
        for name, loss in LOSSES.items():
            quantised = oracle.quantise_loss(loss["costs"])
            acts = [
                [oracle.argmin(oracle.action_scores(quantised, row)) for row in model]
                for model in f
            ]
            threshold = int(Fraction("0.005") * 2**26 * 2 ** oracle.loss_bits(len(CLASSES)))
            counts: dict[tuple[int, int], int] = {}
            for i, (a, b) in enumerate(zip(*acts, strict=True)):
                one, two = (oracle.action_scores(quantised, model[i]) for model in f)
                if a != b and (one[b] - one[a] > threshold or two[a] - two[b] > threshold):
                    counts[a, b] = counts.get((a, b), 0) + 1
            largest = Fraction(max(counts.values(), default=0), n)
            assert found["largest_event", split, name, None].measured == largest


def tampered_patch(work: Work) -> None:
    table = work.table("out/rows_patches")
    rows = table.to_pylist()
    rows[0]["phi"][0] += 2**10
    write_deltalake("out/rows_patches", pa.Table.from_pylist(rows, table.schema), mode="overwrite")


def tampered_rows(work: Work, column: str, change: Any) -> None:
    """As someone would who has another tool, but not the run's name in the commit."""
    table = work.table()
    rows = table.to_pylist()
    for row in rows:
        if row["fold"] == "train" and row["outcome"] is not None:
            row[column] = change(row[column])
            break
    write_deltalake("out/rows", pa.Table.from_pylist(rows, table.schema), mode="overwrite")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("what", ["patch", "label", "score", "reconciled score", "count"])
def test_what_was_tampered_with_fails(work: Work, what: str) -> None:
    work.ran()
    if what == "patch":
        tampered_patch(work)
    elif what == "label":
        tampered_rows(work, "outcome", lambda name: "rare" if name != "rare" else "mild")
    elif what == "score":
        tampered_rows(work, "a", lambda p: [p[1], p[0], *p[2:]])
    elif what == "reconciled score":
        tampered_rows(work, "b_reconciled", lambda p: [p[0] + 2**-26, *p[1:]])
    else:
        table = work.table("out/rows_patches")
        rows = table.to_pylist()
        rows[0]["rows"] += 1
        changed = pa.Table.from_pylist(rows, table.schema)
        write_deltalake("out/rows_patches", changed, mode="overwrite")
    told = work.redcal("evaluate")
    assert told.code == 1
    assert "  differs " in told.out


def test_the_python_api_certifies_too(work: Work) -> None:
    pair = Reconciler(
        losses=LOSSES, alpha=0.005, eta=0.01, model_1="a", model_2="b", label="outcome",
        classes=CLASSES,
    ).fit(split_rows(scores(), "train"))  # fmt: skip
    assert pair.certificate is not None
    ours = checks(pair.certificate.to_json())
    told = {
        place: check
        for place, check in checks(work.ran()["certificate"]).items()
        if place[1] == "fit"
    }
    assert ours == told
    pair.save("model.json")
    kept = ReconciledPair.load("model.json").certificate
    assert kept is not None and checks(kept.to_json()) == ours


# --- the guard ----------------------------------------------------------------------------------


def overfitting(work: Work) -> None:
    """Few rows and a tiny beta."""
    write(scores(300, seed=7))
    work.tree["reconcile"] |= {"algorithm": "dc_then_redcal", "beta": 1e-5, "max_steps": 400}


def test_the_guard_reports_and_names_the_better_prefix(work: Work) -> None:
    overfitting(work)
    told = work.redcal("run")
    assert "raised the mean loss on holdout rows" in told.err
    assert "guard: best_prefix would keep the first" in told.err
    assert "beta: auto would be" in told.err
    numbers = re.search(r"rows from (\S+) to (\S+) .* keep the first (\d+)", told.err)
    assert numbers is not None
    low, high, kept = numbers.groups()
    for name in ("page.html", "page.md"):
        work.ran("report", "-o", name)
        words = " ".join(re.sub(r"<[^>]+>|`", "", Path(name).read_text("utf-8")).split())
        raised = f"raised the mean cost on holdout rows from {low} to {high} (mean of losses and"
        assert raised in words, name
        assert f"reconcile.guard: best_prefix would keep the first {kept}." in words, name
    work.tree["reconcile"]["guard"] = "off"
    quiet = work.redcal("run")
    assert "holdout rows from" not in quiet.err
    assert "beta: auto would be" in work.redcal("audit").err


def test_the_guard_keeps_the_best_prefix_and_all_that_follows_from_it(work: Work) -> None:
    overfitting(work)
    assert work.redcal("run").code == 3
    whole = work.redcal("log", "--json").lines
    history = work.table("out/rows_history").to_pylist()
    holdout: dict[int, float] = {}
    for name, loss in LOSSES.items():
        low = min(map(min, loss["costs"]))
        high = max(map(max, loss["costs"]))
        for point in history:
            if point["split"] == "holdout" and point["loss"] == name:
                share = (point["decision_loss"] - low) / (high - low)
                holdout[point["step"]] = holdout.get(point["step"], 0.0) + share
    best = min(holdout, key=lambda step: (round(holdout[step], 12), step))
    assert 0 < best < len(whole)

    work.tree["reconcile"]["guard"] = "best_prefix"
    told = work.redcal("run", "--json")
    assert told.code == 3
    assert told.json["status"] == "cut"
    assert told.json["patches"] == best
    assert told.json["certificate"]["candidates"] == len(
        holdout
    )  # its intervals pay for the choice
    kept = work.redcal("log", "--json").lines
    assert kept == whole[:best]
    work.redcal("export", "-o", "model.json")
    pair = ReconciledPair.load("model.json")
    assert (pair.status, len(pair.log)) == ("cut", best)
    written = work.table().sort_by("case")
    ours = pair.apply(scores(300, seed=7)).sort_by("case")
    assert written.select(ours.column_names).equals(ours)
    runs = work.runs()
    points = work.table("out/rows_history").to_pylist()
    assert max(p["step"] for p in points if p["run_id"] == runs[-1]["run_id"]) == best
    evaluated = work.redcal("evaluate", "--json")
    assert evaluated.code == 0
    assert same_but_redone(told.json["certificate"], evaluated.json["certificate"])
    assert "the guard left out patches" in work.redcal("run", "--force").out
    again = work.redcal("run")
    assert (again.code, "nothing to do" in again.out) == (3, True)
    assert "cut: the guard left out patches" in again.out


def test_delta_is_the_users_and_changes_no_patch(work: Work) -> None:
    first = work.ran()
    log = work.redcal("log", "--json").lines
    work.tree["reconcile"]["delta"] = 0.2
    second = work.ran()
    assert work.redcal("log", "--json").lines == log
    assert (first["certificate"]["delta"], second["certificate"]["delta"]) == ("1/20", "1/5")

    def widths(found: Any) -> list[float]:
        ends = [c["interval"] for c in found["checks"] if c["interval"]]
        return [end["high"]["value"] - end["low"]["value"] for end in ends]

    narrow, wide = (widths(x["certificate"]) for x in (second, first))
    assert all(a <= b for a, b in zip(narrow, wide, strict=True))
    assert sum(narrow) < sum(wide)
    work.tree["reconcile"]["delta"] = 1
    assert "reconcile.delta" in work.redcal("check").err


def test_a_prefix_needs_holdout_rows(work: Work) -> None:
    del work.tree["input"]["split"]
    work.tree["reconcile"]["guard"] = "best_prefix"
    told = work.redcal("run")
    assert told.code == 2
    assert "reconcile.guard: best_prefix needs holdout rows: set input.split" in told.err
    assert not Path("out").exists()


def test_runs_show_what_is_certified(work: Work) -> None:
    """In words, worst first; a certificate that cannot be read does not hide the other runs."""
    first = work.ran()
    work.ran("apply")
    verdicts = [c["verdict"] for c in first["certificate"]["checks"] if c["kind"] == "promise"]
    count = {verdict: verdicts.count(verdict) for verdict in verdicts}
    order = ("violated", "undecided", "not covered", "not done", "holds")
    words = [f"{count[v]} {'hold' if v == 'holds' else v}" for v in order if v in count]
    assert len(words) > 1
    heading, line, applied = work.redcal("runs").out.splitlines()
    assert heading.rstrip().endswith(" certificate")
    assert line.rstrip().endswith(f" {', '.join(words)}")
    assert applied.rstrip().endswith(" 600"), "an apply certifies nothing"
    ledger = Ledger(DeltaRsStore(), "out/rows_runs")
    row = ledger.rows()[0]
    assert ledger.replace(replace(row, certificate="{}", previous_claim=row.claim))
    assert work.redcal("runs").out.splitlines()[1].rstrip().endswith(" cannot be read")

"""`output.normalise`: scores that sum to 1 beside those that need not, through whole jobs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from redcal_spark.backends.local.backend import LocalBackend
from redcal_spark.backends.local.store import DeltaRsStore
from redcal_spark.config.load import load_config
from redcal_spark.runs.job import Job
from tests.e2e.work import Work, scores, write

ADDED = ["a_reconciled_normalised", "b_reconciled_normalised"]


def divided(row: list[float]) -> list[float]:
    total = sum(round(p * 2**26) for p in row)
    return [round(p * 2**26) / total for p in row]


def test_a_run_and_an_apply(work: Work) -> None:
    plain = work.ran()
    before = work.table().sort_by("case")
    work.tree["output"] |= {"normalise": True, "table": "out/more", "schema": "evolve"}
    run = work.ran()
    assert (run["patches"], run["metrics"]) == (plain["patches"], plain["metrics"])
    rows = work.table("out/more").sort_by("case")
    assert rows.column_names == [*before.column_names[:8], *ADDED, *before.column_names[8:]]
    assert rows.drop_columns(ADDED).equals(before)
    off = 0
    for row in rows.to_pylist():
        for model in "ab":
            assert row[f"{model}_reconciled_normalised"] == divided(row[f"{model}_reconciled"])
            off += abs(sum(row[f"{model}_reconciled"]) - 1) > 1e-3
    assert off  # else there would be nothing to see here
    work.ran("apply")
    assert work.table("out/more").sort_by("case").equals(rows)
    assert work.redcal("evaluate").code == 0


def test_what_is_said_of_sums_after_a_run(work: Work) -> None:
    said = "  patched scores need not sum to 1; output.normalise: true adds some that do\n"
    assert said in work.redcal("run").out
    assert said not in work.redcal("fit", "--force").out
    assert said not in work.redcal("run", "--set", "output.normalise=true", "--set",
                                   "output.schema=evolve").out  # fmt: skip
    assert said not in work.redcal("run", "-q", "--force").out


def test_what_the_report_says_of_sums(work: Work) -> None:
    work.tree["output"]["schema"] = "evolve"
    for given, said in (
        (False, "patched scores need not sum to 1; output.normalise: true adds some that do"),
        (True, "patched scores need not sum to 1; the columns …_normalised do"),
    ):
        work.tree["output"]["normalise"] = given
        page = work.ran()["report"]
        assert said in (work.folder / page).read_text("utf-8")


def binary() -> pa.Table:
    table = scores()
    one = {name: [row[1] for row in table[name].to_pylist()] for name in "ab"}
    label = [None if x is None else int(x == "grave") for x in table["outcome"].to_pylist()]
    columns = {"case": table["case"], "fold": table["fold"], "outcome": pa.array(label, pa.int64())}
    return pa.table(columns | one)


@pytest.fixture
def two_classes(work: Work) -> Work:
    write(binary())
    del work.tree["input"]["classes"]
    work.tree["losses"] = {"act": {"costs": [[0, 4], [1, 0]]}}
    return work


def test_one_column_is_refused_before_anything_runs(two_classes: Work) -> None:
    work = two_classes
    for command in ("check", "run"):
        told = work.redcal(command, "--set", "output.normalise=true")
        assert told.code == 2
        assert told.err == (
            f"redcal {command}: output.normalise: the scores are one column P(class 1) for each "
            "model, and P(class 0) is the rest: they sum to 1 as they are. Leave it out\n"
        )
    assert not list(work.folder.glob("out*"))
    assert "need not sum to 1" not in work.redcal("run").out
    assert work.runs()[0]["patches"]
    assert "need not sum to 1" not in (work.folder / "out/rows_report.html").read_text("utf-8")


def test_the_key_changes_nothing_while_it_is_not_set(work: Work) -> None:
    """Nor the digest by which the first release knew a configuration."""
    work.redcal("check")

    def digest(*overrides: str) -> Any:
        config = load_config("config.yaml", list(overrides))
        return Job(config, LocalBackend(DeltaRsStore())).digest

    assert digest() == digest("output.normalise=false") != digest("output.normalise=true")
    assert digest() == "58b5837adc8d52b60388dd62667be6473d662f34bf245f305f42abd8ceda4183"

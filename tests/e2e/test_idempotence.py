"""Fingerprints: what makes a run another run, and what does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.backends.local.store import DeltaRsStore
from tests.e2e.work import LOSSES, Work, scores, write


def mark(work: Work) -> str:
    """The fingerprint of a fit with the configuration and the data as they are now."""
    told = work.redcal("fit", "--json", "--force")
    assert told.code in (0, 3), told.err
    return str(work.runs()[-1]["fingerprint"])


def test_the_same_run_again_writes_nothing(work: Work) -> None:
    for command in ("run", "fit"):
        first = work.ran(command)
        before = work.files()
        told = work.redcal(command)
        assert told.code == 0
        assert told.out.startswith(f"nothing to do: run {first['run_id']} did just this")
        assert work.files() == before
        forced = work.ran(command, "--force")
        assert forced["run_id"] != first["run_id"]
        assert work.ran(command)["run_id"] == forced["run_id"]


@pytest.mark.parametrize("command", ["run", "fit"])
def test_a_capped_run_stays_capped_however_often_it_is_tried(work: Work, command: str) -> None:
    work.tree["reconcile"]["max_steps"] = 1
    first = work.redcal(command, "--json")
    assert (first.code, first.json["status"]) == (3, "capped")
    for options in ([], ["--quiet"], ["--json"], ["--wait"], ["--log-format", "json"]):
        again = work.redcal(command, *options)
        assert again.code == 3, options
        if not options:
            assert again.out.startswith("nothing to do: run ")
            assert "  capped: max_rounds or max_steps stopped it" in again.out
        if options == ["--json"]:
            told = (again.json["run_id"], again.json["status"], again.json["unchanged"])
            assert told == (first.json["run_id"], "capped", True)
    work.tree["reconcile"]["max_steps"] = 1_000
    assert [work.redcal(command).code for _ in range(2)] == [0, 0]


def eta(work: Work) -> None:
    work.tree["reconcile"]["eta"] = 0.011


def loss(work: Work) -> None:
    costs = [list(row) for row in work.tree["losses"]["beds"]["costs"]]
    costs[0][0] = 0.25
    work.tree["losses"] = LOSSES | {"beds": {"costs": costs}}


def loss_order(work: Work) -> None:
    work.tree["losses"] = dict(reversed(LOSSES.items()))


def one_row(work: Work) -> None:
    table = scores()
    labels = table["outcome"].to_pylist()
    labels[0] = "none" if labels[0] != "none" else "mild"
    write(table.set_column(1, "outcome", pa.array(labels)))


def target(work: Work) -> None:
    work.tree["output"]["table"] = "elsewhere/rows"
    work.tree["output"]["runs"] = "out/rows_runs"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("change", [eta, loss, loss_order, one_row, target])
def test_another_run(work: Work, change: Callable[[Work], None]) -> None:
    first = mark(work)
    assert mark(work) == first
    change(work)
    assert mark(work) != first


@pytest.mark.parametrize("name", ["RUNS_SCHEMA_VERSION", "SCHEMA_VERSION"])
def test_another_version_of_the_package_is_another_run(
    work: Work, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first = mark(work)
    monkeypatch.setattr(f"redcal_spark.runs.ledger.{name}", 99)
    assert mark(work) != first


def test_what_a_variable_stands_for_counts(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELD_OUT", "test")
    work.tree["input"]["split"]["holdout"] = "${HELD_OUT}"
    first = mark(work)
    monkeypatch.setenv("HELD_OUT", "later")
    assert mark(work) != first
    monkeypatch.setenv("HELD_OUT", "test")
    assert mark(work) == first
    assert "${HELD_OUT}" in work.runs()[0]["config"]


def threads(work: Work) -> None:
    work.tree["engine"] = {"name": "auto", "threads": 1}


def defaults(work: Work) -> None:
    work.tree["reconcile"] |= {"beta": "auto", "max_rounds": 10_000}
    work.tree["output"]["history"] = "out/rows_history"
    work.tree["losses"]["beds"]["actions"] = None


def loss_file(work: Work) -> None:
    Path("losses.yaml").write_text(yaml.safe_dump(LOSSES, sort_keys=False), encoding="utf-8")
    work.tree["losses"] = "losses.yaml"


@pytest.mark.parametrize("change", [threads, defaults, loss_file])
def test_the_same_run_said_otherwise(work: Work, change: Callable[[Work], None]) -> None:
    work.ran()
    change(work)
    assert work.ran()["unchanged"]


def test_rows_that_someone_else_overwrote_are_written_again(work: Work) -> None:
    work.ran()
    write_deltalake("out/rows", work.table().slice(0, 9), mode="overwrite")
    again = work.ran()
    assert again["outputs"]["out/rows"] == 2
    assert work.table().num_rows == 600
    eta(work)
    work.ran()
    work.tree["reconcile"]["eta"] = 0.01
    assert "unchanged" not in work.ran()  # the newest rows are of another eta
    assert work.ran()["unchanged"]
    work.redcal("apply")
    assert "unchanged" not in work.ran()


def vacuum() -> None:
    DeltaTable("out/rows").vacuum(0, dry_run=False, enforce_retention_duration=False)


def optimize() -> None:
    DeltaTable("out/rows").optimize.compact()


def properties() -> None:
    DeltaTable("out/rows").alter.set_table_properties({"delta.logRetentionDuration": "30 days"})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("tidy", [vacuum, optimize, properties])
def test_housekeeping_of_the_target_does_not_make_its_rows_anothers(
    work: Work, tidy: Callable[[], None]
) -> None:
    work.ran("run", "--force")
    last = work.ran("run", "--force")["run_id"]
    tidy()
    told = work.ran()
    assert (told["run_id"], told["unchanged"]) == (last, True)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("lost", ["patches", "history"])
def test_a_run_whose_tables_are_gone_is_not_done(work: Work, lost: str) -> None:
    first = work.ran()
    shutil.rmtree(f"out/rows_{lost}")
    again = work.ran()
    assert "unchanged" not in again and again["run_id"] != first["run_id"]
    assert work.redcal("log", "--json").code == 0
    assert work.ran()["unchanged"]


def test_appended_rows_outlive_the_history_that_tells_of_them(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.tree["output"]["mode"] = "append"
    work.ran()
    with monkeypatch.context() as patched:  # as when the table's log was cleaned up
        patched.setattr(DeltaRsStore, "written", lambda *_, **__: None)
        assert work.ran()["unchanged"]
    assert work.table().num_rows == 600


@pytest.mark.slow
def test_a_delta_input_is_known_by_its_version(work: Work) -> None:
    def fresh(table: pa.Table, **how: Any) -> None:
        write_deltalake("in/scores", table, **how)

    fresh(scores())
    work.tree["input"]["table"] = "in/scores"
    first = mark(work)
    assert mark(work) == first
    fresh(scores(5, seed=8), mode="append")
    second = mark(work)
    assert second != first
    work.tree["input"]["version"] = 0
    work.ran()
    fresh(scores(5, seed=9), mode="append")
    assert work.ran()["unchanged"]  # the version that was asked for is still the same

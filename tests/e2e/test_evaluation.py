"""`redcal evaluate` notices any change to anything that a run wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from redcal_spark.cli import main
from tests.e2e.work import Work, configuration, scores, write
from tests.tampering import KEYS, every_change, every_column, tamper

PLACE = 7  # of the row that is changed


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, whose tables every test copies."""
    folder = tmp_path_factory.mktemp("ran")
    with inside(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("redcal_spark.work._in_spark", lambda: False)
        write(scores(200))
        tree = configuration()
        tree["output"]["report"] = None
        Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        assert main(["run", "-c", "config.yaml", "--quiet"]) == 0
    return folder


def told_of(work: Work, *more: str) -> Any:
    told = work.redcal("evaluate", "--json", *more)
    assert told.err == ""
    return told.code, told.json


def test_every_column_and_rows_that_come_and_go(ran: Path, work: Work) -> None:
    """One evaluation of many changes, each in a row of its own, of all tables but the ledger."""
    work.tree["output"]["report"] = None
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    done = [one for name in KEYS if name != "rows_runs" for one in every_column("out", name)]
    code, told = told_of(work)
    assert code == 1
    assert [one for one in done if not one.named_in(told)] == []


@pytest.mark.parametrize("how", ["remove", "double", "run_id", "fit_rows", "holder", "certificate"])
def test_the_ledger_counts(ran: Path, work: Work, how: str) -> None:
    work.tree["output"]["report"] = None
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    column = None if how in ("remove", "double") else how
    done = tamper("out/rows_runs", "rows_runs", how if column is None else "change", column, 0)
    code, told = told_of(work)
    assert code == 1
    assert done.named_in(told)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_every_cell_and_every_row_counts(ran: Path, work: Work, name: str) -> None:
    work.tree["output"]["report"] = None
    path, missed = f"out/{name}", []
    place = 0 if name == "rows_runs" else PLACE
    for how, column in every_change(str(ran / path), name):
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree(ran, ".", dirs_exist_ok=True)
        done = tamper(path, name, how, column, place)
        code, told = told_of(work)
        if code != 1 or not done.named_in(told):
            missed.append((how, column, code))
    assert missed == []


def test_an_untouched_run_is_as_it_must_be(ran: Path, work: Work) -> None:
    work.tree["output"]["report"] = None
    shutil.copytree(ran, ".", dirs_exist_ok=True)
    code, told = told_of(work)
    assert (code, told["result"]) == (0, "ok")
    assert {one["what"]: one["result"] for one in told["checked"]} == dict.fromkeys(
        ("rows", "patches", "history", "metrics", "ledger", "certificate"), "ok"
    )

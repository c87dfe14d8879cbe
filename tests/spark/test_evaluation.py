"""`redcal evaluate` on Spark: the same answer as without, whoever changed what."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from redcal_spark.config_file import load_config
from redcal_spark.evaluation import evaluate
from redcal_spark.runs import Job
from redcal_spark.store.spark_work import OnSpark
from redcal_spark.terminal_evaluation import evaluation_json
from tests.e2e.work import configuration, scores, write
from tests.tampering import KEYS, Tampered, every_change, every_column, tamper

SMALL = [name for name in KEYS if name != "rows_runs"]


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def job(spark: Any) -> Job:
    return Job(load_config("config.yaml"), OnSpark(spark))


@pytest.fixture(scope="module")
def ran(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, whose tables every test copies."""
    folder = tmp_path_factory.mktemp("ran")
    with inside(folder):
        write(scores(200))
        tree = configuration()
        tree["output"]["report"] = None
        tree["engine"]["name"] = "spark"
        Path("config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        assert job(spark).run().row.status == "converged"
    return folder


def told_of(spark: Any) -> Any:
    return evaluation_json(evaluate(job(spark)))


def test_every_column_and_rows_that_come_and_go(ran: Path, spark: Any, tmp_path: Path) -> None:
    """One evaluation of many changes: each in a row of its own, of all tables but the ledger."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    done: list[Tampered] = []
    with inside(tmp_path):
        assert told_of(spark)["result"] == "ok"
        for name in SMALL:
            done += every_column("out", name)
        told = told_of(spark)
    assert told["result"] == "differs"
    assert [one for one in done if not one.named_in(told)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_every_cell_and_every_row_counts(ran: Path, spark: Any, tmp_path: Path, name: str) -> None:
    path, missed = f"out/{name}", []
    with inside(tmp_path):
        for how, column in every_change(str(ran / path), name):
            shutil.rmtree("out", ignore_errors=True)
            shutil.copytree(ran, ".", dirs_exist_ok=True)
            done = tamper(path, name, how, column, 0 if name == "rows_runs" else 7)
            told = told_of(spark)
            if told["result"] != "differs" or not done.named_in(told):
                missed.append((how, column, told["result"]))
    assert missed == []

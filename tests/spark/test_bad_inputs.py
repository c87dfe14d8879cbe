"""The corpus of bad inputs on the Spark store: the same exit codes and messages, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redcal_spark.cli import main
from tests.bad_inputs.sessions import CASES, Case, lay_out, told, unchanged

# These are about what the local engine cannot do, and about engines that are not there.
LOCAL = [
    case
    for case in CASES
    if case.name.endswith("on the local engine") or "engine.name=gpu" in case.command
]
SHARED = [case for case in CASES if case not in LOCAL]

# Where Spark must differ: the case, the words of the local engine, those on Spark, and why.
OTHERWISE: dict[str, tuple[str, str]] = {
    # rows have no numbers where many read them at once
    "values: a null id": ("first: row 4: None, row 8: None", "first: a row: None, a row: None"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad_inputs")
    lay_out(folder)
    return folder


@pytest.fixture
def clean(spark: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The corpus as the current folder; nothing in it may have changed in the end."""
    monkeypatch.chdir(corpus)
    with unchanged(corpus):
        yield corpus


def on_spark(case: Case) -> Case:
    there, here = OTHERWISE.get(case.name, ("", ""))
    assert there in case.message
    message = case.message.replace(there, here) if there else case.message
    return Case(case.name, f"{case.command} --engine spark", message, case.exit_code)


def test_nearly_all_of_the_corpus_is_run() -> None:
    assert len(LOCAL) == 5
    assert len(OTHERWISE) <= 3
    assert len(SHARED) >= 100
    assert OTHERWISE.keys() <= {case.name for case in SHARED}


# CI takes one in twelve of them, `make test-all` all
PARTS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if i % 12 else [])
    for i, case in enumerate(SHARED)
]


@pytest.mark.parametrize("case", PARTS)
def test_bad_input(case: Case, clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = on_spark(case)
    code = main(case.arguments)
    text = told(capsys)
    assert case.matches(text), text
    assert code == case.exit_code


@pytest.mark.parametrize("config", ["columns", "arrays", "binary", "joined"])
def test_as_they_stand_the_configurations_are_fine(
    config: str, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "-c", f"{config}.yaml", "--ids", "--engine", "spark"]) == 0
    assert capsys.readouterr().out.startswith(f"{config}.yaml: fine\n")


def test_bad_rows_on_apply(clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model comes from other rows; the rows at hand are bad."""
    fitted = ["-c", "arrays.yaml", "--engine", "spark", "--set", f"output.table={tmp_path}/fitted"]
    model = str(tmp_path / "model.json")
    assert main(["fit", *fitted]) in (0, 3)
    assert main(["export", *fitted, "-o", model]) == 0
    capsys.readouterr()
    tables = ["--set", "input.table=built/nan.parquet", "--set", f"output.table={tmp_path}/new"]
    assert main(["apply", "-c", "arrays.yaml", "--engine", "spark", *tables, "--model", model]) == 2
    assert told(capsys) == (
        "redcal apply: built/nan.parquet has rows that cannot be used:\n"
        "  column 'a': 2 rows with NaN or infinity; first: id 2: [nan, 0.5, 0.5], "
        "id 5: [0.5, nan, nan]\n"
        "  (input.on_bad_rows: skip passes such rows through untouched)\n"
    )
    # the rows are looked at while they are written; nothing is left of that
    assert list(tmp_path.glob("*new*")) == []

"""What users get wrong, through the command line: exit code, full message, nothing left behind.

The corpus is `tests/bad_inputs`: configurations, data, and sessions. tests/spark has it on Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redcal_spark.cli import main
from tests.bad_inputs.sessions import CASES, CORPUS, LOG_LINE, Case, lay_out, told, unchanged


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad_inputs")
    lay_out(folder)
    return folder


@pytest.fixture
def clean(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The corpus as the current folder; nothing in it may have changed in the end."""
    monkeypatch.chdir(corpus)
    with unchanged(corpus):
        yield corpus


def test_the_corpus_is_large_and_every_session_was_read() -> None:
    commands = sum(text.read_text().count("\n$ ") for text in CORPUS.glob("*.txt"))
    assert len(CASES) == commands >= 100
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.command for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input(case: Case, clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(case.arguments)
    text = told(capsys)
    assert case.matches(text), text
    assert code == case.exit_code


@pytest.mark.parametrize("config", ["columns", "arrays", "binary", "joined"])
def test_as_they_stand_the_configurations_are_fine(
    config: str, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "-c", f"{config}.yaml", "--ids"]) == 0
    assert capsys.readouterr().out.startswith(f"{config}.yaml: fine\n")


def test_a_byte_order_mark_is_no_mistake(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for table in ("data/good.csv", "data/bom.csv"):
        arguments = ["-c", "columns.yaml", "--set", f"input.table={table}", "--json"]
        assert main(["audit", *arguments]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


# The same through a process of its own: nothing but the message, no traceback, no warning.
PROCESSES = [
    "files: a truncated Parquet file",
    "values: NaN in arrays",
    "splits_and_joins: ids missing on either side",
    "config: a tag that would build a Python object",
    "outputs: the output is a file",
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name",
    [*PROCESSES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in PROCESSES[2:])],
)
def test_in_a_process(name: str, clean: Path) -> None:
    (case,) = (case for case in CASES if case.name == name)
    script = "import sys; from redcal_spark.cli import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *case.arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(CORPUS.parents[1])},
    )
    assert case.matches(LOG_LINE.sub("", run.stderr)), run.stderr
    assert (run.returncode, run.stdout) == (case.exit_code, "")


# --- what a file cannot show ----------------------------------------------------------------------


def test_a_file_that_may_not_be_read(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.csv"
    shutil.copy("data/good.csv", secret)
    secret.chmod(0o200)
    if os.access(secret, os.R_OK):  # root may read everything
        pytest.skip("this user may read every file")
    assert main(["run", "-c", "columns.yaml", "--set", f"input.table={secret}"]) == 2
    assert told(capsys) == f"redcal run: {secret}: cannot be read: Permission denied\n"


def test_an_output_that_may_not_be_written(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # root may write everywhere, so the answer is put into the mouth of the system
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert main(["run", "-c", "arrays.yaml"]) == 2
    assert told(capsys).splitlines()[0] == (
        "redcal run: output.table: out/result cannot be written: no permission in ."
    )


def test_bad_rows_on_apply(clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model comes from other rows; the rows at hand are bad."""
    fitted = ["-c", "arrays.yaml", "--set", f"output.table={tmp_path}/fitted"]
    model = str(tmp_path / "model.json")
    assert main(["fit", *fitted]) in (0, 3)
    assert main(["export", *fitted, "-o", model]) == 0
    capsys.readouterr()
    tables = ["--set", "input.table=built/nan.parquet", "--set", f"output.table={tmp_path}/new"]
    assert main(["apply", "-c", "arrays.yaml", *tables, "--model", model]) == 2
    assert told(capsys).startswith(
        "redcal apply: built/nan.parquet has rows that cannot be used:\n"
        "  column 'a': 2 rows with NaN or infinity; first: id 2: [nan, 0.5, 0.5], "
    )
    # the rows are looked at while they are written; nothing is left of that
    assert list(tmp_path.glob("*new*")) == []


def test_a_symbolic_link_does_not_hide_that_output_and_input_are_one(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(clean / "built" / "versions")
    tables = ["--set", "input.table=built/versions", "--set", f"output.table={tmp_path}/link"]
    assert main(["run", "-c", "arrays.yaml", *tables]) == 2
    assert "output.table: is the same table as input.table" in told(capsys)

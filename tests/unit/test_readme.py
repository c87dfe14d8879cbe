"""The README runs: its Python, configuration and commands; tables are as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from redcal_spark import cli
from redcal_spark.config_file import config_from_tree
from redcal_spark.config_yaml import parse_yaml
from redcal_spark.dashboard import METRICS
from redcal_spark.ledger import SCHEMA
from redcal_spark.records import HISTORY, PATCHES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = blocks("python")[0]
    exec(compile(first, "README.md", "exec"), {})
    assert (tmp_path / "pair.json").exists()
    told = capsys.readouterr().out.splitlines()
    assert int(re.findall(r"(\d+) patches", told[0])[0]) > 5  # an example of patches has some
    after_print = re.findall(r"^print.*  # (.*)$", first, re.MULTILINE)
    assert told == after_print + re.findall(r"^# (.*)$", first, re.MULTILINE)


def test_the_python_on_spark_is_python() -> None:
    for block in blocks("python")[1:]:
        compile(block, "README.md", "exec")


def test_the_configuration_is_one() -> None:
    (text,) = blocks("yaml")
    config = config_from_tree(parse_yaml(text, "README.md"))
    assert config.output.tables.runs == "out/scores_reconciled_runs"


def test_every_command_exists() -> None:
    known = cli._parser()
    lines = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("redcal")]
    assert len(commands) > 4
    for command in commands:
        known.parse_args(command)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("_patches", PATCHES.names),
        ("_history", HISTORY.names),
        ("_metrics", METRICS.names),
        ("_runs", SCHEMA.names),
    ],
)
def test_tables_are_as_described(table: str, names: list[str]) -> None:
    (line,) = [x for x in README.splitlines() if x.startswith(f"| `<table>{table}`")]
    described = line.split("|")[3].strip().strip("`").split(", ")
    assert described == names


def test_the_makefile_has_the_targets() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    for name in re.findall(r"`?make ([a-z-]+)", README):
        assert name in targets

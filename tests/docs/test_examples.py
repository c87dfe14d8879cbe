"""What `--help` shows: every command is in a group and has two examples, which run."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from redcal_spark import cli
from redcal_spark.cli.help import EXAMPLES, GROUPS, TOLD_APART
from redcal_spark.cli.parser import command_line
from tests import forked
from tests.docs.folder import prepare
from tests.docs.made import inside
from tests.e2e.killed import run as killed_run


def commands() -> dict[str, argparse.ArgumentParser]:
    parsers = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    known: dict[str, argparse.ArgumentParser] = next(parsers).choices
    return known


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "folder"
    folder.mkdir()
    prepare(folder)
    tree = yaml.safe_load((folder / "conf/my.yaml").read_text("utf-8"))
    tree["reconcile"] |= {"alpha": 0.001, "eta": 0.001}  # some patches, so that all have a result
    (folder / "conf/my.yaml").write_text(yaml.safe_dump(tree), "utf-8")
    with inside(str(folder)):
        assert cli.main(["run", "-c", "conf/my.yaml", "--quiet"]) == 0
        assert cli.main(["export", "-c", "conf/my.yaml", "-o", "model.json", "--quiet"]) == 0
    tree["output"] |= {"table": "out/touched", "rows": "touched"}
    (folder / "conf/touched.yaml").write_text(yaml.safe_dump(tree), "utf-8")
    return folder


def before(command: str, example: str) -> None:
    """What an example takes for given, beside the folder."""
    if command == "resume":
        arguments = ("after the scan", "fit", "-c", "conf/my.yaml", "--force")
        code, out, err = forked.call(killed_run, *arguments).ended()
        assert code == -signal.SIGKILL, f"{out}\n{err}"
    if command == "view":
        assert cli.main(["run", "-c", "conf/touched.yaml", "--quiet"]) == 0
    if command == "evaluate" and "--model" in example:
        apply = ["apply", "-c", "conf/my.yaml", "--model", "model.json", "--quiet"]
        assert cli.main(apply) == 0


@pytest.mark.parametrize("command", EXAMPLES)
def test_examples_run(
    command: str,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(prepared, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    monkeypatch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
    for example in EXAMPLES[command]:
        before(command, example)
        program, *arguments = shlex.split(example)
        assert (program, arguments[0]) == ("redcal", command)
        if example == "redcal demo":
            arguments += ["--rows", "4000"]
        capsys.readouterr()
        code = cli.main(arguments)
        told = capsys.readouterr()
        assert code == 0, (example, told.err)
        assert told.out, example


def test_every_command_has_a_group_and_two_examples() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len({*grouped})
    assert list(GROUPS) == ["try", "run", "inspect", "maintain"]
    known = commands()
    assert {*known} <= {*grouped}, "name its group in redcal_spark/cli/help.py"
    assert {*known} == {*EXAMPLES}, "give it two examples in redcal_spark/cli/help.py"
    for name, parser in known.items():
        shown = parser.format_help()
        one, two = EXAMPLES[name]
        assert one != two and shown.rstrip().endswith(f"examples:\n  {one}\n  {two}")


def test_the_overview(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        cli.main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: redcal [-h] [-C DIR] [--version] COMMAND ...\n")
    groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.MULTILINE)
    shown = {group: re.findall(r"^  (\w+)  ", body, re.MULTILINE) for group, body in groups}
    known = commands()
    for group, names in GROUPS.items():
        assert shown[group] == [name for name in names if name in known]
    for name in TOLD_APART:
        assert len(re.findall(rf"^  {name:<9}\S.*$", text, re.MULTILINE)) == 1
    assert all(len(line) <= 80 for line in text.splitlines()), "nothing wraps"
    monkeypatch.setenv("COLUMNS", "60")
    assert "usage: redcal run [-h] -c FILE" in known["run"].format_help()

"""Every fence of every page runs, or says in its title why it does not."""

from __future__ import annotations

import argparse
import copy
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

from redcal_spark import cli
from redcal_spark.cli.parser import command_line
from redcal_spark.config.load import config_from_tree
from redcal_spark.config.yaml_reader import parse_yaml
from tests.docs.folder import DEMO_ROWS, prepare, whole_config
from tests.docs.pages import NOT_RUN, ON_SPARK, ROOT, Fence, fences, name_of, pages

LANGUAGES = {"python", "yaml", "sh", "sql", "text"}
ALL = [fence for page in pages() for fence in fences(page)]
INLINE = re.compile(r"(?<!`)`(redcal [a-z][^`]*)`(?!`)")
MAKE = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)((?: [a-z]+(?:-[a-z]+)*)*)")


def here(language: str, page: str | None = None) -> list[Fence]:
    """Those that run without Spark."""
    return [
        fence
        for fence in ALL
        if fence.language == language
        and fence.runs
        and not fence.on_spark
        and page in (None, fence.page)
    ]


def pages_with(language: str) -> list[str]:
    return list(dict.fromkeys(fence.page for fence in here(language)))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "folder"
    folder.mkdir()
    prepare(folder)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy for one page, as the working folder."""
    made = tmp_path / "folder"
    shutil.copytree(prepared, made)
    monkeypatch.chdir(made)
    return made


def test_there_is_something_to_run() -> None:
    assert {fence.language for fence in ALL} == LANGUAGES
    assert len(here("sh")) > 8 and len(here("python")) > 3 and len(here("yaml")) > 6


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_fence_is_seen(page: Path) -> None:
    """A fence that is written otherwise would be no test."""
    lines = page.read_text(encoding="utf-8").splitlines()
    opened = sum(line.lstrip().startswith("```") for line in lines)
    assert opened == 2 * len(fences(page, made=True))


@pytest.mark.parametrize("fence", ALL, ids=str)
def test_it_runs_or_says_why_not(fence: Fence) -> None:
    assert fence.language in LANGUAGES
    if fence.title:
        assert fence.title.startswith((NOT_RUN, ON_SPARK))
    if not fence.runs:
        assert len(fence.title) > len(NOT_RUN) + 8


@pytest.mark.parametrize("page", pages_with("python"))
def test_python(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a comment behind a print, or on lines of its own, says is printed is printed."""
    names: dict[str, Any] = {}
    for fence in here("python", page):
        exec(compile(fence.text, str(fence), "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        said = re.findall(r"^print.*  # (.*)$", fence.text, re.MULTILINE)
        said += re.findall(r"^# (.*)$", fence.text, re.MULTILINE)
        assert not said or printed == said
    if "pair" in names:
        assert len(names["pair"].log) > 0, "an example without a patch shows nothing"


def test_python_that_does_not_run_is_python() -> None:
    for fence in ALL:
        if fence.language == "python":
            compile(fence.text, str(fence), "exec")


def merged(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}


@pytest.mark.parametrize("fence", here("yaml"), ids=str)
def test_yaml(fence: Fence) -> None:
    """A configuration, or a part of one."""
    tree = parse_yaml(fence.text, str(fence))
    assert isinstance(tree, dict) and tree
    base = {} if {"input", "output"} <= tree.keys() else copy.deepcopy(whole_config())
    if base and "models" in (tree.get("input") or {}):  # instead of these two
        del base["input"]["model_1"], base["input"]["model_2"]
    config_from_tree(merged(base, tree))


def commands(fence: Fence) -> list[list[str]]:
    text = fence.text.replace("\\\n", " ")
    found = (shlex.split(line, comments=True) for line in text.splitlines())
    return [words for words in found if words]


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fence in here("sh", page):
        for program, *arguments in commands(fence):
            assert program == "redcal", f"{fence}: {program} must run, or say why not"
            if arguments == ["demo"]:
                arguments += ["--rows", DEMO_ROWS]
            code = cli.main(arguments)
            assert code == 0, (str(fence), arguments, capsys.readouterr().err)
            capsys.readouterr()


@pytest.mark.parametrize("fence", here("sql"), ids=str)
def test_sql(fence: Fence, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the tables as they are when the page's commands before it have run."""
    for earlier in here("sh", fence.page):
        if earlier.line < fence.line:
            for _, *arguments in commands(earlier):
                assert cli.main(arguments) == 0, (str(earlier), arguments, capsys.readouterr().err)
    engine = QueryBuilder()
    for table in folder.joinpath("out").iterdir():
        if table.name.startswith("scores_reconciled") and table.is_dir():
            engine.register(table.name, DeltaTable(str(table)))
    assert len(engine.execute(fence.text).read_all()) > 0


def inline() -> list[tuple[str, str]]:
    return [
        (name_of(page), command)
        for page in pages()
        for command in INLINE.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "command"), inline())
def test_commands_in_sentences_exist(page: str, command: str) -> None:
    """`redcal run` in a sentence leaves out what every command needs."""
    if re.search(r"\.\.\.|<", command):
        return
    _, *words = shlex.split(command)
    if words[0].startswith("-"):
        return
    parser = command_line()
    (known,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for action in known.choices[words[0]]._actions:
        if action.required and not {*action.option_strings} & {*words}:
            if action.option_strings:
                words += [action.option_strings[0], "1"]
            elif len(words) == 1:
                words += [next(iter(action.choices or ["1"]))]
    parser.parse_args(words)


def test_make_targets_exist() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    for page in pages():
        shown = "\n".join(
            [
                *re.findall(r"`(make [^`]+)`", page.read_text(encoding="utf-8")),
                *(fence.text for fence in fences(page) if fence.language == "sh"),
            ]
        )
        for first, more in MAKE.findall(shown):
            assert {first, *more.split()} <= targets, name_of(page)

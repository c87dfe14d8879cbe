"""The fences of the pages that say "On Spark"."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from redcal_spark import cli
from tests.docs.folder import prepare
from tests.docs.pages import DOCS, Fence, fences, pages
from tests.docs.test_snippets import commands

pytestmark = pytest.mark.spark

FENCES = [fence for page in pages() for fence in fences(page) if fence.on_spark]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "folder"
    folder.mkdir()
    prepare(folder)
    (text,) = [f.text for f in fences(DOCS / "guide" / "streaming.md") if f.language == "yaml"]
    (folder / "conf" / "stream.yaml").write_text(text, encoding="utf-8")
    return folder


def test_there_is_something_to_run() -> None:
    assert {fence.language for fence in FENCES} == {"sh", "python"}


@pytest.mark.parametrize("fence", FENCES, ids=str)
def test_on_spark(
    fence: Fence,
    prepared: Path,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    if fence.language == "python":
        # Spark has a working folder of its own
        text = fence.text.replace('"data/', f'"{folder}/data/')
        exec(compile(text, str(fence), "exec"), {"spark": spark})
        return
    for program, *arguments in commands(fence):
        assert program == "redcal"
        code = cli.main(arguments)
        assert code == 0, (arguments, capsys.readouterr().err)

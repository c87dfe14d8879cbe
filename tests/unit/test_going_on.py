"""`make test-all` goes on where it stopped, on the same commit alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import going_on

pytest_plugins = ["pytester"]

TESTS = """
import pathlib, pytest
def test_good(): pass
def test_skipped(): pytest.skip("not here")
def test_bad(): assert pathlib.Path("mended").exists()
"""


@pytest.fixture
def again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pytest.Pytester:
    monkeypatch.setattr(going_on, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(going_on, "commit", lambda: "abc1234")
    pytester.makepyfile(test_three=TESTS)
    return pytester


def run(pytester: pytest.Pytester, *more: str) -> dict[str, int]:
    found = pytester.runpytest_inprocess("-p", "tests.going_on", *more).parseoutcomes()
    return {word: n for word, n in found.items() if word != "warnings"}


def test_only_what_failed_runs_again(again: pytest.Pytester) -> None:
    assert run(again) == {"passed": 1, "skipped": 1, "failed": 1}
    assert run(again) == {"failed": 1, "deselected": 2}
    again.path.joinpath("mended").touch()
    assert run(again, "--save", "all.json") == {"passed": 1, "deselected": 2}
    assert run(again) == {"deselected": 3}
    saved = json.loads(again.path.joinpath("all.json").read_text())
    assert saved["commit"] == "abc1234"
    (part,) = saved["parts"]
    assert part["lines"][0].startswith("2 passed, 1 skipped, 0 failed; ")


def test_another_commit_begins_anew(
    again: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(again)
    for name in ("def5678", "abc1234+", "abc1234+"):  # with changes nobody knows which
        monkeypatch.setattr(going_on, "commit", lambda name=name: name)
        assert run(again) == {"passed": 1, "skipped": 1, "failed": 1}


def test_a_line_that_was_cut_is_not_known(again: pytest.Pytester) -> None:
    run(again)
    kept = going_on.FOLDER / "abc1234.jsonl"
    whole = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(whole[:1]) + whole[1][:-5])
    assert run(again) == {"skipped": 1, "failed": 1, "deselected": 1}


def test_nothing_left_is_no_failure(again: pytest.Pytester) -> None:
    again.path.joinpath("mended").touch()
    run(again)
    assert again.runpytest_inprocess("-p", "tests.going_on").ret == pytest.ExitCode.OK

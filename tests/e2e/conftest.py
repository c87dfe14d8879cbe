"""Every test has a folder of its own with scores in it, and is in that folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.work import Work, scores, write


@pytest.fixture
def work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Work:
    monkeypatch.chdir(tmp_path)
    write(scores())
    return Work(tmp_path, capsys)

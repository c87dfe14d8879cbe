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
    # other tests may have left a Spark session in this process, and `auto` would take it
    monkeypatch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
    write(scores())
    return Work(tmp_path, capsys)

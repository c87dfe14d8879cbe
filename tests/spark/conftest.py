"""Fixtures of the Spark tests; the session is in tests/conftest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.faulty import Faults


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Faults:
    folder = tmp_path / "faults"
    folder.mkdir()
    return Faults(monkeypatch, folder)

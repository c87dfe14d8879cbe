"""Tables of all shapes, made once; every test is in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import rows
from tests.shapes.cells import Bench, outputs_before
from tests.shapes.make import Maker

VARIABLE = "REDCAL_TEST_SHAPES"  # a folder where tables are kept from one session to the next


@pytest.fixture(scope="session")
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Maker]:
    kept = os.environ.get(VARIABLE)
    folder = Path(kept) if kept else tmp_path_factory.mktemp("shapes")

    def session() -> Any:
        """Asked for when a table is made: kept ones need no Spark."""
        return request.getfixturevalue("spark")

    return {
        "inputs": Maker(session, folder / "inputs", rows.base()),
        "targets": Maker(session, folder / "targets", outputs_before()),
    }


@pytest.fixture
def bench(
    lake: dict[str, Maker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, capsys, lake["inputs"], lake["targets"])

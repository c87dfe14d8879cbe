"""Tables of all shapes, made once; every test is in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import rows
from tests.shapes.cells import Bench, outputs_before
from tests.shapes.make import QUICK, Maker

VARIABLE = "REDCAL_TEST_SHAPES"  # a folder where tables are kept from one session to the next


@pytest.fixture(scope="session")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    kept = os.environ.get(VARIABLE)
    folder = Path(kept) if kept else tmp_path_factory.mktemp("shapes")
    started: list[Any] = []

    def session() -> Any:
        if not started:
            started.append(request.getfixturevalue("spark"))
        return started[0]

    yield {
        "inputs": Maker(session, folder / "inputs", rows.base()),
        "targets": Maker(session, folder / "targets", outputs_before()),
    }
    for key in QUICK:
        for spark in started:
            spark.conf.unset(key)


@pytest.fixture
def bench(
    lake: dict[str, Maker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, capsys, lake["inputs"], lake["targets"])

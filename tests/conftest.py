"""One lazy Spark session a process; tests that use it are marked `spark`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import backends

os.environ["SPARK_SUBMIT_OPTS"] = backends.SHORT_LIVED  # also for processes of tests


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with backends.session(tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    """A place that all workers see; empty again after every test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return str(folder)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        here = Path(__file__).parent / "spark" in item.path.parents
        jvm = here or "spark" in getattr(item, "fixturenames", ())
        if jvm:
            item.add_marker("spark")
        # One process has all that starts a JVM: there is one at a time, and its session is shared.
        # The rest goes by file, so that what a module makes for all its tests is made once.
        item.add_marker(pytest.mark.xdist_group("spark" if jvm else item.path.name))
    if items and hasattr(items[0].config, "workerinput"):  # of xdist: the longest group begins
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)

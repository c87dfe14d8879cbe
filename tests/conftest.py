"""One lazy Spark session a process; tests that use it are marked `spark`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import backends
from tests.object_store import ObjectStore, binary, running

# also for processes of tests
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{backends.SHORT_LIVED} {backends.INTERPRETED}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with backends.session(tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A real S3 server on loopback; each test has its own folder in the bucket."""
    program = binary()
    if isinstance(program, str):
        pytest.skip(program)
    with running(program, tmp_path_factory.mktemp("object_store")) as store:
        yield store


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    """A place that all workers see; empty again after every test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return str(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases = Counter[str]()  # of every test so far
    for item in items:
        few = item.get_closest_marker("quick_cases")
        if few is not None and item.get_closest_marker("slow") is None:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > few.args[0]:
                item.add_marker("slow")
        here = Path(__file__).parent / "spark" in item.path.parents
        if here or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark") is not None:
            assert group_of(item.nodeid) == "spark", f"{item.nodeid}: name it in WITH_A_JVM"
    if items and hasattr(items[0].config, "workerinput"):  # of xdist: the longest groups begin
        items.sort(key=lambda item: group_of(item.nodeid) != "spark")
        if every_test(items[0].config):
            items.sort(key=lambda item: not item.nodeid.startswith(MATRIX))


WITH_A_JVM = (
    "tests/spark/",
    "tests/shapes/",
    "tests/versions/on_row.py",
    "tests/e2e/test_explain.py::test_on_spark_as_here",
    "tests/e2e/test_mlflow_server.py",
    "tests/faults/test_damage.py",
    "tests/faults/test_kills.py",
)

# On Spark half of the time of `make test-all`, which gives it a process with a JVM of its own.
MATRIX = "tests/contract/test_contract.py::test_every_engine_agrees[spark"


def group_of(test: str) -> str:
    """Tests of a group run in one process, one after another.

    All that starts a JVM is a group: there is one at a time, and its session is shared. The rest
    goes by file, so that what a module makes for all its tests is made once.
    """
    if test.startswith(WITH_A_JVM) or "[spark" in test:
        return "spark"
    return test.partition("::")[0]


def every_test(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("tests.going_on")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups by name: those that xdist knows itself do not work with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            if every_test(config) and nodeid.startswith(MATRIX):
                return "matrix"
            return group_of(nodeid)

    return ByGroup(config, log)

"""A seeded part of the fuzzing, and that its harness sees what it looks for.

All of it: `make fuzz CASES=20000 SEED=1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import base
from tests.fuzz.cases import TARGETS
from tests.fuzz.harness import Case, Worker, worker_for
from tests.fuzz.running import Seen, explore

CASES = {"config": 75, "model": 45, "csv": 45, "parquet": 45, "delta": 30, "doors": 30, "init": 30}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the watch on memory needs Linux"
)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    folder = tmp_path_factory.mktemp("fuzz")
    made = {target: worker_for(target, folder) for target in ("config", "doors")}
    yield made
    for worker in made.values():
        worker.close()


def test_every_target_has_its_share() -> None:
    assert CASES.keys() == TARGETS.keys()
    assert sum(CASES.values()) == 300


@pytest.mark.parametrize("target", TARGETS)
def test_hostile_input(target: str, workers: dict[str, Worker]) -> None:
    seen = Seen()
    explore(target, CASES[target], 20_260, workers.get(target, workers["config"]), seen)
    told = [f"{problem}: {case.arguments}" for problem, case in seen.examples.items()]
    assert told == []
    assert seen.cases == CASES[target]
    # some must get through, or nothing but the front door was tried
    assert seen.codes[0] + seen.codes[3] >= 2
    assert seen.codes[2] >= 2


# --- the harness ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    found = Worker(tmp_path_factory.mktemp("sick"), "tests.fuzz.sick:main", seconds=3.0)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("hang", "no answer within 3 s"),
        ("memory", "took 1,"),
        ("traceback", "Traceback (most recent"),
        ("silent", "failed without a word"),
        ("code", "exit code 7"),
        ("beside", "touched {folder}/case/work/config.yaml"),
        ("home", "touched {folder}/case/home/.profile"),
        ("outside", "touched {folder}/outside"),
        ("spawn", "did subprocess.Popen"),
        ("unpickle", "did pickle.find_class"),
        ("die", "the process died during the case, code -6"),
    ],
)
def test_the_harness_sees(command: str, problem: str, sick: Worker) -> None:
    result = sick.run(Case("sick", {"config.yaml": b""}, [command]))
    assert result.problems
    assert result.problems[0].startswith(problem.format(folder=sick.folder.resolve()))
    assert not (sick.folder / "outside").exists()


def test_the_kernel_keeps_native_code_inside(sick: Worker) -> None:
    result = sick.run(Case("sick", {}, ["native"]))
    if not sick.confined:
        pytest.skip("this kernel has no Landlock")
    assert (result.code, "Permission denied" in result.err) == (2, True), result.err
    assert not (sick.folder / "native").exists()


def test_what_is_fine_is_fine(sick: Worker) -> None:
    config = {"c.yaml": base.dumped(base.csv_config())}
    assert sick.run(Case("sick", {}, ["fine"])).problems == []
    assert sick.run(Case("sick", config, ["run", "-c", "c.yaml"])).problems == []
    # the same without a configuration that names it as an output
    elsewhere = Case("sick", config | {"d.yaml": b"x"}, ["run", "-c", "d.yaml"])
    assert sick.run(elsewhere).problems != []

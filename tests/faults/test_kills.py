"""A short form of `make test-faults KILLS=50 SEED=1`, and that it sees what it looks for.

It takes minutes. In every build executors and a worker are killed by tests/spark/on_cluster.py, and
a driver by tests/spark/test_runs.py.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests import backends
from tests.e2e.test_resume import outcome
from tests.faults.cases import CASES, Place, differences
from tests.faults.kills import KINDS, Kind, explore, locally, planned


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.skipif(backends.name() != "classic", reason="has a cluster of its own")
@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("driver",), ("worker", "network")])
def test_kills(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    plan = [kill for kill in planned(7, len(KINDS)) if kill.kind in kinds]
    said: list[str] = []
    told = explore([replace(kill, case=CASES[-1]) for kill in plan], tmp_path, said.append)
    assert told.problems == [], said
    assert told.kills == dict.fromkeys(kinds, 1)
    if "driver" in kinds:  # its run cannot have gone through
        assert told.resumed + told.again == 1


def test_a_seed_is_a_plan() -> None:
    plan = planned(1, 50)
    assert plan == planned(1, 50) != planned(2, 50)
    counts = Counter(kill.kind for kill in plan)
    assert counts.keys() == set(KINDS) and set(counts.values()) == {12, 13}
    assert {kill.case.name for kill in plan} == {case.name for case in CASES}
    assert all(0 < kill.moment < 1 for kill in plan)


def test_differences_are_seen(tmp_path: Path) -> None:
    place = Place(tmp_path)
    run = place.prepare(CASES[0], "local")
    assert locally(run) == 0
    expected = outcome(str(run))
    assert (differences(run, expected), place.left(run)) == ([], [])
    DeltaTable(run / "out/rows").update({"note": "'x'"}, predicate="case = 1234")
    log = DeltaTable(run / "out/rows_patches")
    last = log.to_pyarrow_table().slice(0, 1)
    assert differences(run, expected) == ["rows"]
    write_deltalake(run / "out/rows_patches", last, mode="append")
    assert differences(run, expected) == ["rows", "patches"]
    (place.scratch / "redcal_scratch_1").mkdir(parents=True)
    (run / "out/.rows.1.partial").mkdir()
    assert place.left(run) == ["scratch/redcal_scratch_1", f"{run.name}/out/.rows.1.partial"]
    shutil.rmtree(place.scratch)

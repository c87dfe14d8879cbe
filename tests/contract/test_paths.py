"""Every path that a fit on Spark can take, and that it was taken: equal logs, on every Spark.

Files are read by tasks; the rows of events come to the driver, or do not, or do until there is no
room for more; cells are in files or in a table; a fit goes on inside a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import backends
from tests.contract import cases
from tests.contract.cases import Scratch, expected, made
from tests.contract.engines import SparkFiles, check
from tests.helpers import log_of, prefix

REDCAL, EVERYWHERE = ("redcal", 2, 5), ("dc_then_redcal", 10, 5)
GROWING = ("redcal", 10, 5)  # events of its first two rounds fit nine tenths, that of the third not
JOBS = {"events", "event", "residuals", "rewrite"}  # passes that a driver without room makes
AT_DRIVER = "collect"


@dataclass(frozen=True)
class Road:
    """A fit, and how it must have gone. share: of the active rows that the driver may hold.

    cut: patches of a log from which it goes on, inside a round.
    """

    problem: tuple[str, int, int]
    share: float
    collects: bool
    jobs: bool
    cut: int = 0

    @property
    def budget(self) -> int:
        return int(self.share * expected(*self.problem).active_bytes)


ROADS = {
    "lazy": Road(REDCAL, 8, collects=True, jobs=False),
    "no budget": Road(REDCAL, 0, collects=False, jobs=True),
    "switch in the middle": Road(GROWING, 0.9, collects=True, jobs=True),
    "everywhere, no budget": Road(EVERYWHERE, 0, collects=False, jobs=True),
    "resumed, lazy": Road(REDCAL, 8, collects=True, jobs=True, cut=2),
    "resumed, no budget": Road(REDCAL, 0, collects=False, jobs=True, cut=2),
    "resumed, switch in the middle": Road(GROWING, 0.9, collects=True, jobs=True, cut=2),
}
QUICK = {
    ("lazy", "files"),
    ("lazy", "rows"),
    ("no budget", "files"),
    ("switch in the middle", "files"),
    ("resumed, lazy", "rows"),
    ("resumed, no budget", "files"),
}
if not backends.whole():
    QUICK = {("lazy", "rows"), ("resumed, no budget", "files")}


def every_road() -> Iterator[Any]:
    for name in ROADS:
        for scratch in ("files", "rows"):
            marks = [pytest.mark.spark]
            if (name, scratch) not in QUICK:
                marks.append(pytest.mark.slow)
            yield pytest.param(name, scratch, id=f"spark-{name}, {scratch}", marks=marks)


@pytest.mark.parametrize(("name", "scratch_of"), list(every_road()))
def test_every_road(
    name: str, scratch_of: Scratch, spark: Any, scratch: str, tmp_path: Path
) -> None:
    road = ROADS[name]
    problem, wanted = made(*road.problem), expected(*road.problem)
    start = prefix(log_of(wanted.pair)[: road.cut])
    backend = SparkFiles(spark, scratch, tmp_path, False, scratch_of, start)
    rows = backend.rows(cases.table(problem), 3, "shuffled")
    check(backend, problem, wanted, rows, road.budget)
    assert (AT_DRIVER in backend.passes) == road.collects, backend.passes
    assert bool(JOBS & {*backend.passes}) == road.jobs, backend.passes

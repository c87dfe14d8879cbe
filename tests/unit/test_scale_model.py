"""The scale bench: its cost model, its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from redcal_spark.config.schema import Read
from tests.bench import scale_cluster, scale_tell
from tests.bench.cost_model import CostModel, Line, Measured, Workload, fitted, tasks_of
from tests.bench.scale_data import Rows
from tests.bench.scale_found import Found
from tests.bench.scale_plan import Case


def made(latency: float, each: float, noise: Sequence[float] = (0.0,) * 6) -> list[Measured]:
    sizes = [1e6, 5e6, 4e7, 1e8, 5e8, 9e8]
    return [
        Measured(size, cores, (latency + each * size / cores) * (1 + off))
        for size, cores, off in zip(sizes, [2, 4, 2, 2, 8, 2], noise, strict=True)
    ]


def test_the_model_finds_known_coefficients() -> None:
    line = fitted(made(0.25, 1.2e-8))
    assert line.latency == pytest.approx(0.25)
    assert line.each == pytest.approx(1.2e-8)
    assert line.error == pytest.approx(0, abs=1e-9)
    noisy = fitted(made(0.25, 1.2e-8, (0.05, -0.05, 0.03, -0.04, 0.05, -0.02)))
    assert noisy.latency == pytest.approx(0.25, rel=0.1)
    assert noisy.each == pytest.approx(1.2e-8, rel=0.1)
    assert 0.01 < noisy.error < 0.06


def test_latency_is_never_below_nothing() -> None:
    alike = fitted([Measured(100, 2, 1.0), Measured(100, 2, 1.0)])
    assert alike.latency == 0
    assert alike.each == pytest.approx(0.02)
    low = fitted([Measured(100, 1, 1.0), Measured(200, 1, 4.0)])
    assert low.latency == 0 and low.each > 0
    with pytest.raises(ValueError, match="no passes"):
        fitted([])


def test_tasks_are_as_spark_makes_them() -> None:
    mib = 2**20
    assert tasks_of(1 * mib, 100) == 1
    assert tasks_of(40 * mib, 100) == 10  # no task under 4 MiB
    assert tasks_of(1_000 * mib, 100) == 100
    assert tasks_of(128_000 * mib, 100) == 1_000  # none over 128


def test_a_fit_by_hand() -> None:
    """Two rounds, one of them too large for the driver, on one core."""
    lines = Line(1, 2.0), Line(10, 0.5), Line(100, 3.0), Line(5, 0.25)
    model = CostModel(*lines, task=0.0, job=0.0)
    work = Workload(0.5, 8, 16, ((0.25, 3), (0.01, 9)), driver_budget=1_000)
    rows = 1_000  # 500 of them active: 4,000 bytes; events of 2,000 and 80 bytes
    scan, over_active, over_event = 1 + 2.0 * 1_000, 10 + 0.5 * 4_000, 10 + 0.5 * 2_000
    holdout = 100 + 3.0 * 500
    by_hand = scan + 2 * over_active + (1 + 3) * over_event + 5 + 0.25 * 80 + holdout
    assert model.fit_seconds(rows, 1, work) == pytest.approx(by_hand)
    roomy = Workload(0.5, 8, 16, work.rounds, driver_budget=4_000)
    at_driver = 5 + 0.25 * 2_080
    assert model.fit_seconds(rows, 1, roomy) == pytest.approx(scan + at_driver)
    slow = CostModel(*lines, task=7.0, job=100.0)
    assert slow.fit_seconds(rows, 1, roomy) == pytest.approx(scan + at_driver + 107)


def spark_results() -> list[Found]:
    """Made up: a scan by tasks takes 2 s + 4 core-seconds a million rows, one through the DataFrame
    three times that, a pass .5 s + 20 a GB, the
    holdout pass 8 core-seconds a million active rows, the driver .25 s + 50 a GB of an event;
    84 bytes a row, a tenth active, one round."""

    def told(rows: int, share: float, scan: float = 1, **more: Any) -> dict[str, Any]:
        active = round(rows * share)
        size = active * 84
        passes = [{"name": "events", "rows": active, "bytes": size, "seconds": 0.5 + 1e-8 * size}]
        phases = {
            "scan": (2 + 2e-6 * rows) * scan,
            "fit": 0.25 + 84e-9 * rows,
            "holdout": 4e-6 * active,
        }
        counters = {"scratch_bytes": 3 * size}
        return {
            "cores": 2, "seconds": 60.0, "bare": 20.0, "phases": phases, "passes": passes,
            "active_bytes": size, "counters": counters, "patches": 5, "table_bytes": 80 * rows,
            "rounds": [[rows // 50, 4]], "touched": rows, "peaks": {"driver": 2**28}, **more,
        }  # fmt: skip

    rows = Rows()
    reads: list[tuple[Read, float]] = [("direct", 1), ("spark", 3)]
    family = {"losses": 1, "actions": 10, "classes": 10, "bytes": 5_000, "seconds": 2e-4}
    return [
        *(
            Found(Case("fit", "spark", rows, n, series="rows", read=read), told(n, 0.1, scan))
            for read, scan in reads
            for n in (10**7, 10**8)
        ),
        *(
            Found(Case("worst", "spark", rows, n, series="worst"), told(n, 1.0))
            for n in (10**6, 10**7)
        ),
        Found(
            Case("driver", "spark", rows, 0, series="driver"),
            {"cores": 2, "task_seconds": 0.0008, "statistics": [family]},
        ),
    ]


def test_the_minutes_of_a_cluster() -> None:
    found = spark_results()
    model, frame = (scale_cluster.model_of(found, read) for read in scale_cluster.READS)
    assert model is not None and frame is not None
    assert frame.scan.each == pytest.approx(12e-6)
    assert frame.passes == model.passes
    assert model.scan.each == pytest.approx(4e-6)
    assert model.passes.latency == pytest.approx(0.5)
    assert model.passes.each == pytest.approx(2e-8)
    assert model.holdout.each == pytest.approx(8e-6)
    assert model.handed.latency == pytest.approx(0.25)
    assert model.handed.each == pytest.approx(5e-8)
    text = scale_tell.markdown(found)
    # a billion rows on 100 cores: 80 GB in 597 tasks; an event of 1.68 GB, 84.25 s at the driver
    scan = 1 + 2 + 4e-6 * 1e9 / 100 + 0.597
    assert minutes(text, "read by tasks", "1,000,000,000") == f"{(scan + 84.25) / 60:,.1f}"
    more = 2 * (2 + 4e-6 * 1e9 / 100)  # three times the scan, and the rest as before
    line = minutes(text, "through the DataFrame", "1,000,000,000")
    assert line == f"{(scan + more + 84.25) / 60:,.1f}"
    # ten billion: 5,961 tasks; 84 GB active in 626; an event of 16.8 GB in 126, too large for it
    scan = 1 + 2 + 4e-6 * 1e10 / 100 + 5.961
    over_active = 1 + 0.5 + 2e-8 * 84e9 / 100 + 0.626
    over_event = 1 + 0.5 + 2e-8 * 16.8e9 / 100 + 0.126
    spent = scan + 0.25 + 2 * over_active + 5 * over_event + 1 + 8e-6 * 1e9 / 100
    assert minutes(text, "read by tasks", "10,000,000,000") == f"{spent / 60:,.1f}"
    assert "10,000,000 rows, cores: 2, 5 patches: 60 s in all; 0.84 GB of packed rows, 2.52" in text


def minutes(text: str, scan: str, rows: str) -> str:
    """Of a fit of so many rows on 100 cores."""
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {scan} | {rows} |")]
    return line.split(" | ")[4]


def test_a_ratio_that_grows_is_told() -> None:
    small, large, *_ = spark_results()
    large.told["seconds"] = 100.0
    text = scale_tell.markdown([small, large])
    assert "| 5.00x | 1.67x, at most 1.2x: **missed** |" in text
    large.told["seconds"] = 72.0
    assert "| 3.60x | 1.20x |" in scale_tell.markdown([small, large])


def test_a_promise_about_memory_that_was_broken_is_told() -> None:
    one = spark_results()[0]
    one = replace(one, case=replace(one.case, kind="worst", series="worst"))
    assert "driver 256 MiB | driver 500 MiB | yes |" in scale_tell.markdown([one])
    one.told["peaks"] = {"driver": 2**28, "jvm": 2**31, "worker": 2**30}
    peaks = "driver 256 MiB, jvm 2,048 MiB, worker 1,024 MiB"
    told = f"| {peaks} | driver 500 MiB, worker 512 MiB | **NO** |"
    assert told in scale_tell.markdown([one])

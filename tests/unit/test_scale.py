"""The scale bench: its rows, its resuming, its cost model, its tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bench import data, scale, scale_data, scale_run, scale_tell
from tests.bench.cost_model import CostModel, Line, Measured, Workload, fitted, tasks_of
from tests.bench.scale_data import CannotDisagree, Rows, blocks_of, by_value, write
from tests.bench.scale_plan import FULL, QUICK, Case, plan
from tests.bench.timing import seconds

SMALL = Rows(classes=3, actions=4, disagreement=0.1, correlation=0.6)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 256 rows where there are three classes, and files of eight of them."""
    monkeypatch.setattr(scale_data, "CELLS", 1_024)
    monkeypatch.setattr(scale_data, "FILE_CELLS", 8 * 256 * 3)


def scores(table: pa.Table, name: str) -> Any:
    flat = table.column(name).combine_chunks().flatten().to_numpy()
    return flat.astype(np.float64).reshape(table.num_rows, -1)


# --- rows -----------------------------------------------------------------------------------------


def test_the_same_rows_in_whatever_pieces(tmp_path: Path) -> None:
    tables = []
    for group in (1, 2, 7):
        folder = tmp_path / str(group)
        write(SMALL, 5_000, folder, group)
        files = sorted(folder.iterdir())
        assert len(files) == {1: 3, 2: 3, 7: 3}[group]
        tables.append(pa.concat_tables([pq.read_table(file) for file in files]))
    assert tables[0].schema == data.table_schema(pa.float32())
    assert tables[0].column("id").to_pylist() == list(range(5_000))
    assert tables[0] == tables[1] == tables[2]
    assert not list(tmp_path.glob("*.part"))


def test_a_table_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    for rows in (700, 1_900):
        write(SMALL, rows, tmp_path / str(rows))
    short, long = (pq.read_table(tmp_path / str(rows)).sort_by("id") for rows in (700, 1_900))
    assert short == long.slice(0, 700)


def test_blocks_differ_and_so_do_seeds() -> None:
    one, two = (blocks_of(SMALL, 10**6).block(number).column("scores_a") for number in (0, 1))
    other = blocks_of(replace(SMALL, seed=2), 10**6).block(0).column("scores_a")
    assert len(one) == SMALL.block_rows == 256
    assert one != two
    assert one != other


@pytest.mark.parametrize(
    ("share", "correlation", "actions"), [(0.02, 0.9, 4), (0.1, 0.6, 4), (0.4, 0.2, 6)]
)
def test_the_rate_is_what_was_asked(share: float, correlation: float, actions: int) -> None:
    """On other rows than the noise was chosen on, by plain float64."""
    rows = Rows(3, actions, share, correlation, seed=5)
    costs = np.array(data.losses(1, 3, actions)[0].costs)
    table = blocks_of(rows, 10**9).group(range(200))
    one, two = ((scores(table, name) @ costs.T).argmin(axis=1) for name in ("scores_a", "scores_b"))
    measured = np.mean(one != two)
    # chance moves both the rows here and the sample; the noise has three digits
    chance = np.sqrt(share * (1 - share) * (1 / len(one) + 1 / scale_data.SAMPLE_ROWS))
    assert abs(measured - share) < 4 * chance + 2e-3 * share


def test_errors_correlate_as_asked() -> None:
    rows = Rows(3, 4, 0.05, 0.7)
    drawn = scale_data._draw(rows, 0, 50_000)
    errors = [np.log(scale_data.view(drawn.truth, e, 0.01) / drawn.truth) for e in drawn.errors]
    centred = [(e - e.mean(axis=1, keepdims=True)).ravel() for e in errors]
    assert np.corrcoef(*centred)[0, 1] == pytest.approx(0.7, abs=0.01)


def test_scores_are_probabilities_and_labels_follow_them() -> None:
    table = blocks_of(SMALL, 10**9).group(range(40))
    one, label = scores(table, "scores_a"), table.column("label").to_numpy()
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-6)
    assert (one >= 0).all()
    mean = one[np.arange(len(one)), label].mean()
    assert mean > (one**2).sum(axis=1).mean() * 0.9 > 1 / 3


def test_what_cannot_be_reached_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CannotDisagree, match=r"at most .* not 50%; lower the correlation"):
        blocks_of(Rows(3, 2, 0.5, 0.95), 10)
    arguments = ["--rows", "10", "--classes", "3", "--actions", "2", "--disagreement", "0.5", "x"]
    with pytest.raises(SystemExit):
        scale_data.main(arguments)
    assert "lower the correlation" in capsys.readouterr().err


def test_a_worker_needs_no_tests(tmp_path: Path) -> None:
    """What Spark sends is enough for a process that cannot import this folder."""
    from pyspark import cloudpickle

    made = blocks_of(SMALL, 1_000)
    with by_value():
        sent = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    (tmp_path / "sent").write_bytes(sent)
    script = (
        "import sys; sys.modules['tests'] = None\n"
        "import pickle, pyarrow as pa, pyspark.cloudpickle\n"
        "made = pickle.load(open('sent', 'rb'))\n"
        "numbers = pa.RecordBatch.from_arrays([pa.array([3, 0])], names=['id'])\n"
        "table = pa.Table.from_batches(made([numbers]))\n"
        "with pa.OSFile('made.arrow', 'wb') as f, pa.ipc.new_file(f, table.schema) as out:\n"
        "    out.write_table(table)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    with pa.OSFile(str(tmp_path / "made.arrow")) as file:
        assert pa.ipc.open_file(file).read_all() == made.group([3, 0])


def test_the_command_writes_a_table(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--rows", "300", "--classes", "3", "--actions", "4", "--correlation", "0.6"]
    assert scale_data.main([*arguments, str(out)]) == 0
    write(SMALL, 300, tmp_path / "same")
    assert pq.read_table(out) == pq.read_table(tmp_path / "same")


# --- resuming -------------------------------------------------------------------------------------


class Recorder:
    """Stands for the processes that measure: says which case it was asked for."""

    def __init__(self, failing: str = "nothing"):
        self.failing = failing
        self.seen: list[str] = []

    def __call__(self, case: Case, folder: Path) -> dict[str, Any]:
        assert case.table is None or (folder / "tables" / case.table).is_dir()
        self.seen.append(case.name)
        if self.failing in case.name:
            raise ValueError("no room")
        return {"seconds": 1.0}


CASES = [
    Case("fit", "local", SMALL, 300, series="rows"),
    Case("apply", "local", SMALL, 300, series="apply"),
    Case("fit", "local", SMALL, 600, series="rows"),
]


def test_a_rerun_makes_only_what_is_missing(tmp_path: Path) -> None:
    first, again, third = Recorder("apply"), Recorder(), Recorder()
    assert scale.measure_all(CASES, tmp_path, first) == [CASES[1]]
    assert len(first.seen) == 3
    assert scale.measure_all(CASES, tmp_path, again) == []
    assert again.seen == [CASES[1].name]
    assert scale.measure_all(CASES, tmp_path, third) == []
    assert third.seen == []
    assert list((tmp_path / "tables").iterdir()) == []


def test_half_a_line_does_not_count(tmp_path: Path) -> None:
    scale.measure_all(CASES[:1], tmp_path, Recorder())
    results = tmp_path / "results.jsonl"
    results.write_text(results.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    again = Recorder()
    scale.measure_all(CASES[:1], tmp_path, again)
    assert again.seen == [CASES[0].name]
    assert scale.Results(results).of(CASES[0]) == {"seconds": 1.0}


def test_another_case_of_the_same_name_is_measured(tmp_path: Path) -> None:
    scale.measure_all(CASES[:1], tmp_path, Recorder())
    again = Recorder()
    scale.measure_all([Case("fit", "local", SMALL, 300, repeats=2, series="rows")], tmp_path, again)
    assert len(again.seen) == 1


def test_a_case_survives_json() -> None:
    for case in (*plan(FULL), *plan(QUICK)):
        assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_the_plan_is_what_was_promised() -> None:
    cases = plan(FULL)
    assert len({case.name for case in cases}) == len(cases)
    fits = [(c.engine, c.count) for c in cases if c.series == "rows"]
    assert sorted(fits) == sorted(
        (engine, count) for engine in ("local", "spark") for count in (10**6, 10**7, 10**8)
    )
    assert [c.rows.classes for c in cases if c.series == "d"] == [2, 10, 100, 1_000]
    assert len({c.count * c.rows.row_bytes for c in cases if c.series == "d"}) == 1
    assert [c.losses for c in cases if c.series == "losses"] == [1, 10, 100]
    assert [c.rows.disagreement for c in cases if c.series == "disagreement"] == [0.01, 0.1, 0.5]
    assert [c.rows.actions for c in cases if c.series == "K"] == [2, 10, 50]
    applied = [(c.engine, c.count) for c in cases if c.series == "apply"]
    assert sorted(applied) == sorted(
        (engine, count) for engine in ("local", "spark") for count in (10**6, 10**7)
    )
    assert {c.cores for c in cases if c.kind == "worst" and c.count == 10**6} == {1, 2}
    (largest,) = [c for c in cases if c.kind == "worst" and c.count == 10**7]
    assert largest.parameters["algorithm"] == "dc_then_redcal"
    assert largest.parameters["max_steps"] == 40


# --- one measurement ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fit", "apply"])
def test_a_measurement_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Any) -> None:
    case = Case(kind, "local", SMALL, 3_000, series="rows")
    scale.make_table(case, tmp_path)
    assert scale_run.main([json.dumps(case.to_json()), str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seconds"] > 0 and told["bare"] > 0
    assert told["peaks"]["process"] > 10**7
    assert told["patches"] > 0
    assert not (tmp_path / "run").exists()
    if kind == "fit":
        one = scale_tell.Found(case, told)
        assert 0.05 < one.active_rows / case.count < 0.15  # nearly all rows that disagree
        patched = [1 + after for _, after in told["rounds"]]
        assert sum(patched) == told["patches"]
        text = scale_tell.markdown([one])
        assert f"| local | 3,000 | {seconds(told['seconds'])} |" in text
        assert scale_tell.write_chart([one], tmp_path / "chart.svg")


# --- the cost model -------------------------------------------------------------------------------


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


def spark_results() -> list[scale_tell.Found]:
    """Made up: a scan takes 2 s + 4 core-seconds a million rows, a pass .5 s + 20 a GB, the
    holdout pass 8 core-seconds a million active rows, the driver .25 s + 50 a GB of an event;
    84 bytes a row, a tenth active, one round."""

    def told(rows: int, share: float, **more: Any) -> dict[str, Any]:
        active = round(rows * share)
        size = active * 84
        passes = [{"name": "events", "rows": active, "bytes": size, "seconds": 0.5 + 1e-8 * size}]
        phases = {"scan": 2 + 2e-6 * rows, "fit": 0.25 + 84e-9 * rows, "holdout": 4e-6 * active}
        counters = {"scratch_bytes": 3 * size}
        return {
            "cores": 2, "seconds": 60.0, "bare": 20.0, "phases": phases, "passes": passes,
            "active_bytes": size, "counters": counters, "patches": 5, "table_bytes": 80 * rows,
            "rounds": [[rows // 50, 4]], "touched": rows, "peaks": {"driver": 2**28}, **more,
        }  # fmt: skip

    rows = Rows()
    family = {"losses": 1, "actions": 10, "classes": 10, "bytes": 5_000, "seconds": 2e-4}
    return [
        *(
            scale_tell.Found(Case("fit", "spark", rows, n, series="rows"), told(n, 0.1))
            for n in (10**7, 10**8)
        ),
        *(
            scale_tell.Found(Case("worst", "spark", rows, n, series="worst"), told(n, 1.0))
            for n in (10**6, 10**7)
        ),
        scale_tell.Found(
            Case("driver", "spark", rows, 0, series="driver"),
            {"cores": 2, "task_seconds": 0.0008, "statistics": [family]},
        ),
    ]


def test_the_minutes_of_a_cluster() -> None:
    found = spark_results()
    model = scale_tell.model_of(found)
    assert model is not None
    assert model.scan.each == pytest.approx(4e-6)
    assert model.passes.latency == pytest.approx(0.5)
    assert model.passes.each == pytest.approx(2e-8)
    assert model.holdout.each == pytest.approx(8e-6)
    assert model.handed.latency == pytest.approx(0.25)
    assert model.handed.each == pytest.approx(5e-8)
    text = scale_tell.markdown(found)
    # a billion rows on 100 cores: 80 GB in 597 tasks; an event of 1.68 GB, which the driver takes
    scan = 1 + 2 + 4e-6 * 1e9 / 100 + 0.597
    (line,) = [x for x in text.splitlines() if x.startswith("| 1,000,000,000 |")]
    assert line.split(" | ")[3] == f"{(scan + 0.25 + 5e-8 * 1.68e9) / 60:,.1f}"
    # ten billion: 5,961 tasks; 84 GB active in 626; an event of 16.8 GB in 126, too large for it
    scan = 1 + 2 + 4e-6 * 1e10 / 100 + 5.961
    over_active = 1 + 0.5 + 2e-8 * 84e9 / 100 + 0.626
    over_event = 1 + 0.5 + 2e-8 * 16.8e9 / 100 + 0.126
    spent = scan + 0.25 + 2 * over_active + 5 * over_event + 1 + 8e-6 * 1e9 / 100
    (line,) = [x for x in text.splitlines() if x.startswith("| 10,000,000,000 |")]
    assert line.split(" | ")[3] == f"{spent / 60:,.1f}"
    assert "10,000,000 rows, cores: 2, 5 patches: 60 s in all; 0.84 GB of packed rows, 2.52" in text


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

"""The scale bench: its rows, its plan, its resuming, and one measurement."""

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
from tests.bench.scale_data import CannotDisagree, Rows, blocks_of, by_value, write
from tests.bench.scale_found import Found
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


def test_more_models_and_weights_are_more_columns_of_the_same_rows() -> None:
    narrow, wide = (
        blocks_of(rows, 10**6).group([0, 3])
        for rows in (SMALL, replace(SMALL, models=4, weights=5))
    )
    assert wide.schema == data.table_schema(pa.float32(), 4, weighted=True)
    assert wide.select(narrow.schema.names) == narrow
    weights = wide.column("weight").to_numpy()
    assert set(weights) == {1, 2, 3, 4, 5}
    assert weights[:256].tolist() != weights[256:].tolist()
    views = [scores(wide, name) for name in wide.schema.names if name.startswith("scores_")]
    assert len(views) == 4
    assert all((one != other).any() for one in views for other in views if one is not other)


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

    def __init__(self, failing: str = "nothing", logs: Sequence[str] = ()):
        self.failing = failing
        self.logs = list(logs)
        self.seen: list[str] = []

    def __call__(self, case: Case, folder: Path) -> dict[str, Any]:
        assert case.table is None or (folder / "tables" / case.table).is_dir()
        self.seen.append(case.name)
        if self.failing in case.name:
            raise ValueError("no room")
        return {"seconds": 1.0} | ({"log": self.logs.pop(0)} if self.logs else {})


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


def test_logs_that_differ_are_a_failure_until_they_are_measured_again(tmp_path: Path) -> None:
    local = CASES[0]
    direct = replace(local, engine="spark", read="direct")
    cases = [local, direct, replace(direct, read="spark"), CASES[2]]
    run = Recorder(logs=["same", "same", "other", "of another table"])
    assert scale.measure_all(cases, tmp_path, run) == [cases[2]]
    assert scale.measure_all(cases, tmp_path, Recorder()) == [cases[2]]
    assert len(run.seen) == 4
    found = scale.Results(tmp_path / "results.jsonl").found(cases)
    (told,) = scale_tell._logs(found)
    assert told == f"Patch logs: 3 fits of 1 tables, of which **some differ**: {cases[2].name}"
    (told,) = scale_tell._logs(found[:2])
    assert "2 fits of 1 tables" in told and "all logs are the same" in told
    assert scale_tell._logs(found[:1]) == []


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
    fits = [(c.count, c.how) for c in cases if c.series == "rows"]
    assert fits == [
        (count, how)
        for count in (10**6, 10**7, 10**8)
        for how in ("local", "spark direct", "spark DataFrame")
    ]
    models = [(c.rows.models, c.how) for c in cases if c.series == "models"]
    assert models == [(m, how) for m in (2, 4, 8) for how in ("local", "spark direct")]
    weights = [(c.rows.weights, c.how) for c in cases if c.series == "weights"]
    assert weights == [(w, how) for w in (0, 5) for how in ("local", "spark direct")]
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


def measured(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    scale.make_table(case, folder)
    assert scale_run.main([json.dumps(case.to_json()), str(folder / "run")]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize("kind", ["fit", "apply"])
def test_a_measurement_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Any) -> None:
    case = Case(kind, "local", SMALL, 3_000, series="rows")
    told = measured(case, tmp_path, capsys)
    assert told["seconds"] > 0 and told["bare"] > 0
    assert told["peaks"]["process"] > 10**7
    assert told["patches"] > 0
    assert not (tmp_path / "run").exists()
    if kind == "fit":
        one = Found(case, told)
        assert 0.05 < one.active_rows / case.count < 0.15  # nearly all rows that disagree
        patched = [1 + after for _, after in told["rounds"]]
        assert sum(patched) == told["patches"]
        text = scale_tell.markdown([one])
        assert f"| local | 3,000 | {seconds(told['seconds'])} |" in text
        assert scale_tell.write_chart([one], tmp_path / "chart.svg")


def test_models_and_weights_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four models for twice the time of two cost the same for each two of them."""
    found = []
    for series, rows, seconds_told in (
        ("models", SMALL, 2.0),
        ("models", replace(SMALL, models=4), 4.0),
        ("weights", SMALL, 2.0),
        ("weights", replace(SMALL, weights=5), 3.0),
    ):
        case = Case("fit", "local", rows, 3_000, series=series)
        told = measured(case, tmp_path, capsys)
        one = Found(case, told)
        assert told["patches"] > 0
        assert 0.05 < one.active_rows / case.count < 0.3
        told |= {"seconds": seconds_told}
        told["phases"]["scan"] = seconds_told / 2
        found.append(one)
    assert found[0].told["log"] == found[2].told["log"] != found[3].told["log"]
    models, weights = scale_tell._columns(found)
    assert [line.split(" | ")[:3] for line in models.splitlines()[2:]] == [
        ["| 2", "local", "3,000"],
        ["| 4", "local", "3,000"],
    ]
    assert models.splitlines()[3].endswith("| 1.00x | 1.00x |")
    assert weights.splitlines()[2].startswith("| no weights | local |")
    assert weights.splitlines()[3].startswith("| weights 1 to 5 | local |")
    assert weights.splitlines()[3].endswith("| 1.50x | 1.50x |")

"""A model and tables that an earlier version wrote: every command reads them as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from redcal_spark import ReconciledPair
from redcal_spark.cli import main
from redcal_spark.errors import ModelFileError

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "model.json").exists())
# The configuration of the fixtures in the keys of today.
CONFIG = """\
input:
  table: tables/scores
  id: case
  label: outcome
  classes: [mild, grave, rare]
  model_1: a
  model_2: b
  split: {column: fold, fit: train, holdout: test}
losses:
  triage: {actions: [home, ward], costs: [[0, 2, 3], [1, 0, 0.5]]}
reconcile: {algorithm: dc_then_redcal, alpha: 0.01, eta: 0.05}
output: {table: tables/rows, report: null}
engine: {name: local}
"""


@pytest.fixture(params=VERSIONS)
def earlier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of what a version left, as the working folder."""
    folder = tmp_path / "left"
    shutil.copytree(HERE / request.param, folder)
    (folder / "now.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def redcal_of(folder: Path) -> str:
    """The release that wrote the run, without its last number."""
    (written,) = set(DeltaTable(folder / "tables/rows_runs").to_pyarrow_table()["package_version"])
    return str(written).rpartition(".")[0]


def model(folder: Path) -> Any:
    return json.loads((folder / "model.json").read_text(encoding="utf-8"))


def log_today(folder: Path) -> list[Any]:
    """The log of then with the field that came later: of two models, the one not patched."""
    log = []
    for patch in model(folder)["log"]:
        other = None if patch["kind"] == "calibrate" else 3 - patch["model"]
        log.append(patch | {"other": other})
    return log


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([*arguments[:1], "-c", "now.yaml", *arguments[1:]])
    return code, capsys.readouterr().out


def the_run(capsys: pytest.CaptureFixture[str]) -> Any:
    code, out = told(capsys, "runs", "--json")
    assert code == 0
    (row,) = map(json.loads, out.splitlines())
    return row


def test_there_is_a_version_to_read() -> None:
    assert {"0.1", "0.2"} <= {*VERSIONS}


def test_the_model_gives_the_scores_that_it_gave_then(earlier: Path) -> None:
    pair = ReconciledPair.load("model.json")
    assert len(pair.log) == len(model(earlier)["log"]) > 10
    then = DeltaTable("tables/rows").to_pyarrow_table().sort_by("case")
    now = pair.apply(DeltaTable("tables/scores").to_pyarrow_table()).sort_by("case")
    for column in ("a_reconciled", "b_reconciled", "triage_1_after", "triage_2_after", "touched"):
        assert now[column].to_pylist() == then[column].to_pylist(), column


def test_the_ledger_and_the_log(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = the_run(capsys)
    assert row["holdout_rows"] > 10 and "holdout" in row["metrics"]
    assert (row["status"], row["patches"]) == ("converged", len(model(earlier)["log"]))
    code, out = told(capsys, "log", "--json", "--run", row["run_id"])
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == log_today(earlier)


def test_the_report(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = the_run(capsys)["run_id"]
    assert told(capsys, "report", "--run", run, "-o", "page.html")[0] == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert run in page and '"holdout/rows"' in page and "No holdout rows" not in page


def test_the_rows_are_evaluated(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = told(capsys, "evaluate", "--json")
    assert not [each for each in json.loads(out)["checked"] if each["findings"]]
    assert code in (0, 3)  # nothing was changed; 3: what this version can't check on old tables


def test_what_python_saved_is_read_with_what_was_measured(earlier: Path) -> None:
    if not (earlier / "pair.json").exists():  # 0.1 kept nothing beside the model
        assert redcal_of(earlier) == "0.1"
        return
    pair = ReconciledPair.load("pair.json")
    table = DeltaTable("tables/scores").to_pyarrow_table()
    assert pair.apply(table).column("touched").to_pylist().count(True) > 0
    assert pair.certificate is not None and pair.history is not None
    assert pair.history.numbers.num_rows > 0
    # as if a later release measured more than this one did
    data = json.loads((earlier / "pair.json").read_text(encoding="utf-8"))
    for row in data["evidence"]["measured"]["history"]:
        del row["calibration_gap"]
    again = ReconciledPair.from_json(data)
    assert again.history is not None
    assert set(again.history.numbers["calibration_gap"].to_pylist()) == {None}
    data["evidence"]["measured"]["history"][0]["rows"] += 0.5
    with pytest.raises(ModelFileError):
        ReconciledPair.from_json(data)


def test_the_keys_of_then_are_read(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A config file that nobody touched: the run is found by it, and nothing is refused."""
    old_word = "judge: test" in (earlier / "config.yaml").read_text(encoding="utf-8")
    assert old_word == (redcal_of(earlier) == "0.1")
    capsys.readouterr()
    assert main(["check", "-c", "config.yaml", "--set", "output.schema=evolve"]) == 0
    assert main(["evaluate", "-c", "config.yaml"]) in (0, 3)


def test_apply_writes_the_same_scores(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = the_run(capsys)["run_id"]
    then = DeltaTable("tables/rows").to_pyarrow_table().sort_by("case")
    for arguments, table in (
        (("--model", "model.json", "--set", "output.table=again/rows"), "again/rows"),
        (("--run", run, "--set", "output.schema=evolve"), "tables/rows"),
    ):
        capsys.readouterr()
        assert main(["apply", "-c", "now.yaml", *arguments]) == 0
        assert "other settings" not in capsys.readouterr().err  # keys that came later are none
        now = DeltaTable(table).to_pyarrow_table().sort_by("case")
        for column in ("a_reconciled", "b_reconciled"):
            assert now[column].to_pylist() == then[column].to_pylist(), (table, column)


def test_the_next_run_goes_into_the_same_tables(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    then = log_today(earlier)
    assert told(capsys, "run", "--force", "--set", "output.schema=evolve")[0] == 0
    code, out = told(capsys, "runs", "--json")
    old, new = map(json.loads, out.splitlines())
    assert new["run_id"] != old["run_id"]
    code, out = told(capsys, "log", "--json", "--run", new["run_id"])
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == then

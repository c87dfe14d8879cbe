"""What others see of a run: logs as JSON, exit codes, the metrics table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder

from redcal_spark.cli import main
from redcal_spark.runs.tables import METRICS
from tests.e2e.work import LOSSES, Work, scores, write

ROOT = Path(__file__).parents[2]


def lines(err: str) -> list[dict[str, Any]]:
    """Every line of standard error, as JSON with what each must have."""
    found = [json.loads(line) for line in err.split("\n")[:-1]]
    assert err == "" or err.endswith("\n")
    for line in found:
        assert datetime.fromisoformat(line["time"]).tzinfo == UTC
        assert {"level", "logger", "message"} <= line.keys()
        known = {"time", "level", "logger", "message", "run_id", "phase", "round", "step"}
        assert line.keys() <= known | {"exception"}
    return found


# --- logs -----------------------------------------------------------------------------------------


def test_a_whole_run_is_told_in_json_lines(work: Work) -> None:
    told = work.redcal("run", "--log-format", "json", "--verbose")
    assert told.code == 0, told.err
    found = lines(told.err)
    [row] = work.runs()
    phases = [line["phase"] for line in found if line.get("phase")]
    assert list(dict.fromkeys(phases)) == ["scan", "fit", "holdout", "write", "apply"]
    assert {line["run_id"] for line in found if "phase" in line} == {row["run_id"]}
    rounds = [line for line in found if line["message"].startswith("round ")]
    assert [line["round"] for line in rounds] == list(range(row["rounds"]))
    log = work.redcal("log", "--json").lines
    last = {patch["round"]: patch["step"] for patch in log}
    assert [line["step"] for line in rounds] == list(last.values())
    assert found[-1]["message"].startswith(f"converged: {row['patches']} patches")
    assert {line["level"] for line in found} <= {"DEBUG", "INFO", "WARNING"}


def test_results_and_log_at_once(work: Work) -> None:
    told = work.redcal("run", "--json", "--log-format", "json")
    assert told.json["status"] == "converged"
    assert any("round" in line for line in lines(told.err))
    told = work.redcal("run", "--json", "--force")  # as text, one of them is enough
    assert all(" WARNING " in line for line in told.err.splitlines())


def test_text_is_as_it_was(work: Work) -> None:
    told = work.redcal("run")
    line = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) .+")
    assert all(line.fullmatch(x) for x in told.err.splitlines())


@pytest.mark.slow
def test_on_a_pipe_with_awkward_texts(work: Work) -> None:
    """In a process of its own: nothing but our lines is on standard error. Warnings are lines."""
    table = scores()
    off = [[x * 0.99 for x in row] for row in table["a"].to_pylist()]  # sums are not 1
    write(table.set_column(4, "a", pa.array(off, pa.list_(pa.float64()))))
    odd = LOSSES["triage"] | {"actions": ["zu\u2028hause", 'st"ation\\', "ärztin ✓"]}
    work.tree["losses"] = {"triage": odd}
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    options = ["--json", "--log-format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "redcal_spark.cli", "run", "-c", "config.yaml", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = lines(done.stderr)
    assert any(line["level"] == "WARNING" and "sum" in line["message"] for line in found)
    assert any("ärztin ✓" in line["message"] for line in found)


@pytest.mark.slow
def test_warnings_of_libraries_are_lines(work: Work) -> None:
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    script = (
        "import sys, warnings\n"
        "from redcal_spark.runs import run\n"
        "from redcal_spark.cli import main\n"
        "made = run.history_table\n"
        "def warned(*a):\n"
        "    warnings.warn('two\\nlines')\n"
        "    return made(*a)\n"
        "run.history_table = warned\n"
        "sys.exit(main(['run', '-c', 'config.yaml', '--log-format', 'json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    [line] = [x for x in lines(done.stderr) if x["logger"] == "py.warnings"]
    assert "two\nlines" in line["message"]
    assert (line["level"], line["phase"]) == ("WARNING", "write")


@pytest.mark.parametrize("verbose", [False, True])
def test_failures_are_lines(work: Work, monkeypatch: pytest.MonkeyPatch, verbose: bool) -> None:
    options = ["--log-format", "json", *(["--verbose"] if verbose else [])]
    told = work.redcal("run", *options, "--set", "input.label=nope", "--set", "input.id=no")
    assert (told.code, told.out) == (2, "")
    [line] = [x for x in lines(told.err) if x["level"] == "ERROR"]
    assert "column 'nope' not found" in line["message"] and "\n" in line["message"]

    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("redcal_spark.runs.run.history_table", broken)
    told = work.redcal("run", *options)
    assert told.code == 1
    *_, line = lines(told.err)
    assert (line["level"], line["phase"]) == ("ERROR", "write")
    assert line["run_id"] == work.runs()[-1]["run_id"]
    assert "unexpected ZeroDivisionError: boom" in line["message"]
    assert ("Traceback" in line.get("exception", "")) == verbose


def test_wrong_use_is_a_line(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--log-format", "json", "--nope"], ["--fail-on=x", "--log-format=json"]):
        with pytest.raises(SystemExit) as ended:
            main(["run", "-c", "config.yaml", *arguments])
        assert ended.value.code == 2
        [line] = lines(capsys.readouterr().err)
        assert line["level"] == "ERROR"


def test_quiet_is_quiet(work: Work) -> None:
    told = work.redcal("run", "--quiet", "--log-format", "json")
    assert (told.code, told.out) == (0, "")
    assert {line["level"] for line in lines(told.err)} <= {"WARNING"}
    told = work.redcal("run", "--quiet", "--log-format", "json", "--set", "input.label=nope")
    assert [line["level"] for line in lines(told.err)] == ["ERROR"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "command",
    ["check", "audit", "fit", "apply", "evaluate", "log", "export", "runs", "explain", "resume"],
)
def test_every_command_takes_it(work: Work, command: str) -> None:
    work.ran("run")
    more = ["--id", "1000"] if command == "explain" else []
    told = work.redcal(command, "--log-format", "json", *more)
    assert told.code == (2 if command == "resume" else 0), told.err
    lines(told.err)


# --- alerts ---------------------------------------------------------------------------------------


def test_fail_on_what_is_named(work: Work) -> None:
    one_step = ["--set", "reconcile.max_steps=1"]
    assert work.redcal("run", *one_step).code == 3
    assert work.redcal("run", *one_step).code == 3  # nothing to do, and still capped
    for command in (["run", "--force"], ["run"], ["fit"]):
        told = work.redcal(*command, *one_step, "--fail-on", "stalled,capped")
        assert told.code == 1
        assert (
            f"redcal {command[0]}: --fail-on capped: max_rounds or max_steps stopped it" in told.err
        )
        assert "stalled" not in told.err
    told = work.redcal("run", *one_step, "--fail-on", "stalled, cut", "--force", "--json")
    assert (told.code, told.json["status"], told.err) == (3, "capped", "")


def test_fail_on_rows_and_on_nothing_new(work: Work) -> None:
    told = work.redcal("run", "--fail-on", "unlabelled,bad_rows,unchanged,held,certificate")
    assert told.code == 1
    unlabelled = scores()["outcome"].null_count
    assert f"--fail-on unlabelled: {unlabelled} rows have no label yet" in told.err
    assert "bad_rows" not in told.err and "unchanged" not in told.err
    told = work.redcal("run", "--fail-on", "unchanged")
    assert (told.code, "nothing has changed since the last run" in told.err) == (1, True)
    assert work.redcal("run", "--fail-on", "bad_rows,held").code == 0


def turned(rows: int = 800) -> pa.Table:
    """The models differ on every row. On fitting rows the second is right, on others the first."""
    fold = np.where(np.arange(rows) % 2, "test", "train")
    one, two = [0.97, 0.01, 0.01, 0.01], [0.01, 0.97, 0.01, 0.01]
    return pa.table(
        {
            "case": pa.array(np.arange(rows)),
            "outcome": pa.array(np.where(fold == "train", "grave", "mild")),
            "fold": pa.array(fold),
            "a": pa.array([one] * rows, pa.list_(pa.float64())),
            "b": pa.array([two] * rows, pa.list_(pa.float64())),
        }
    )


def test_fail_on_a_statement_that_is_violated(work: Work) -> None:
    """Nothing else is wrong with such a run: it converged, and what it wrote is so."""
    write(turned())
    del work.tree["losses"]["beds"]
    told = work.redcal("run", "--json")
    assert (told.code, told.json["status"]) == (0, "converged")
    checks = told.json["certificate"]["checks"]
    found = {(x["name"], x["model"]) for x in checks if x["verdict"] == "violated"}
    # 1 for 0 on every holdout row, whose label is "mild": ward, not home
    assert ("loss_fell", 1) in found and ("loss_fell", 2) not in found
    for more in ((), ("--force",)):  # a run that has nothing to do is told as the one that did it
        told = work.redcal("run", "--fail-on", "capped,certificate", *more)
        assert told.code == 1
        assert "--fail-on certificate: violated on the holdout rows: " in told.err
        assert "loss_fell" in told.err and "capped" not in told.err
    assert work.redcal("run", "--fail-on", "capped,stalled,cut").code == 0


def test_what_is_undecided_fails_nothing(work: Work) -> None:
    told = work.redcal("run", "--json", "--fail-on", "certificate")
    verdicts = {check["verdict"] for check in told.json["certificate"]["checks"]}
    assert told.code == 0 and "undecided" in verdicts and "violated" not in verdicts


def test_unknown_names_are_refused_with_the_known_ones(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        work.redcal("run", "--fail-on", "capped,nope")
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "'nope' is unknown" in told
    for name in ("capped", "stalled", "cut", "certificate", "bad_rows", "unlabelled", "held"):
        assert name in told.rpartition("there are:")[2]


# --- the metrics table ----------------------------------------------------------------------------

SCHEMA = {
    "run_id": "string", "command": "string", "status": "string",
    "measured_at": "timestamp[us, tz=UTC]", "kind": "string", "name": "string", "number": "int64",
    "split": "string", "stage": "string", "model": "int32", "loss": "string", "value": "double",
    "counted": "int64", "bytes": "int64", "segment": "string", "segment_kind": "string",
    "segment_value": "string",
}  # fmt: skip


def test_the_schema_is_pinned(work: Work) -> None:
    assert {f.name: str(f.type) for f in METRICS} == SCHEMA
    work.ran()
    stored = work.delta("out/rows_metrics").to_pyarrow_dataset().schema
    assert {f.name: str(f.type) for f in stored} == SCHEMA


def test_the_numbers_are_those_of_the_run(work: Work) -> None:
    run = work.ran()
    [row] = work.runs()
    assert run["outputs"]["out/rows_metrics"] == 0
    table = work.table("out/rows_metrics").to_pylist()
    assert {r["run_id"] for r in table} == {run["run_id"]}
    assert {(r["command"], r["status"]) for r in table} == {("run", "converged")}

    counted = {r["name"]: r["counted"] for r in table if r["kind"] == "count"}
    for name in ("rows", "fit_rows", "holdout_rows", "unlabelled_rows", "patches", "rounds"):
        assert counted[name] == row[name]
    assert counted["rows_scanned"] == 1200
    assert counted["jobs"] == counted["scratch_bytes"] == counted["checks_violated"] == 0
    names = ("jobs", "rows_scanned", "rows_written", "scratch_bytes", "passes")
    counters = {k: counted[k] for k in names}
    assert counted["rows_written"] == 600
    assert json.loads(row["counters"]) == counters
    assert all(r["value"] == r["counted"] for r in table if r["kind"] == "count")

    passes = {r["name"]: r for r in table if r["kind"] == "pass"}
    assert [passes[name]["number"] for name in ("scan", "holdout", "apply")] == [0, 1, 2]
    assert passes["scan"]["counted"] == passes["apply"]["counted"] == 600
    assert 0 < passes["holdout"]["counted"] <= row["holdout_rows"]
    phases = {r["name"]: r["value"] for r in table if r["kind"] == "phase"}
    timings = json.loads(row["timings"])
    assert {k: round(v, 3) for k, v in phases.items()} == timings
    for name in ("scan", "holdout", "apply"):
        assert passes[name]["value"] == pytest.approx(phases[name], abs=0.05)

    quality = {
        (r["split"], r["stage"], r["name"], r["model"], r["loss"]): (r["value"], r["counted"])
        for r in table
        if r["kind"] == "quality"
    }
    assert len(quality) == sum(r["kind"] == "quality" for r in table)  # each number once
    for split, stages in json.loads(row["metrics"]).items():
        for stage, found in stages.items():
            for m in found:
                place, loss, model = (split, stage), m["loss"], m["model"]
                assert quality[(*place, "brier", model, None)] == (m["brier"], None)
                for name in ("decision_loss", "loss_gap", "calibration_gap"):
                    assert quality[(*place, name, model, loss)] == (m[name], None)
                for name in ("largest_event", "disagreement"):
                    wanted = m[name], m[f"{name}_rows"]
                    assert quality[(*place, name, None, loss)] == wanted


def test_a_merge_reads_all_rows_though_it_writes_few(work: Work) -> None:
    work.tree["output"]["mode"] = "merge"
    for _ in range(2):
        run_id = work.ran("run", "--force")["run_id"]
    table = work.table("out/rows_metrics").to_pylist()
    [apply] = [r for r in table if (r["run_id"], r["name"]) == (run_id, "apply") and r["counted"]]
    assert apply["counted"] == 600
    assert json.loads(work.runs()[-1]["counters"])["rows_scanned"] == 1200


def queries() -> list[str]:
    text = (ROOT / "docs/guide/scheduled-runs.md").read_text(encoding="utf-8")
    return re.findall(r"```sql\n(.*?)```", text, re.DOTALL)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("segments", [None, ["outcome"]])
def test_the_dashboard_queries_of_the_pages_run(work: Work, segments: list[str] | None) -> None:
    """Where the metrics have numbers of segments, too, the answers are of all rows."""
    work.tree["input"]["segments"] = segments
    run = work.ran()
    work.redcal("apply")
    work.redcal("run", "--set", "input.label=note")  # fails
    engine = QueryBuilder()
    for name in ("metrics", "runs"):
        engine = engine.register(f"scores_reconciled_{name}", DeltaTable(f"out/rows_{name}"))
    trend, passes = (
        pa.table(engine.execute(query.strip().rstrip(";")).read_all()).to_pylist()
        for query in queries()
    )
    assert [(r["run_id"], r["loss"]) for r in trend] == [
        (run["run_id"], "beds"), (run["run_id"], "triage")
    ]  # fmt: skip
    holdout = {m["loss"]: m["disagreement"] for m in run["metrics"]["holdout"]["after"]}
    assert {r["loss"]: r["after"] for r in trend} == holdout
    assert all(r["before"] > r["after"] for r in trend)
    assert {r["name"]: r["passes"] for r in passes} == {"scan": 1, "holdout": 1, "apply": 2}
    assert all(isinstance(r["seconds"], float) for r in passes)


def test_a_run_without_losses_has_numbers_too(work: Work) -> None:
    work.tree["reconcile"] = {"algorithm": "reconcile", "alpha": 0.2, "eta": 0.05, "max_steps": 3}
    work.tree["losses"] = None
    assert work.redcal("run").code in (0, 3)
    found = [r for r in work.table("out/rows_metrics").to_pylist() if r["kind"] == "quality"]
    names = [(r["name"], r["model"]) for r in found if (r["split"], r["stage"]) == ("fit", "after")]
    assert sorted(names, key=str) == [("brier", 1), ("brier", 2), ("largest_event", None)]


def test_a_failed_run_counts_in_the_ledger_alone(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("redcal_spark.runs.run.history_table", broken)
    assert work.redcal("run").code == 1
    [failed] = work.runs()
    assert json.loads(failed["counters"])["rows_scanned"] == 600
    assert json.loads(failed["timings"]).keys() >= {"scan", "fit", "holdout"}
    assert not Path("out/rows_metrics").exists()

"""Recipes of docs/guide/deploying.md: a task that is ended ends its run; Airflow and Dagster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from tests import wheels
from tests.docs.pages import DOCS, fences
from tests.e2e.test_signals import WORDS
from tests.e2e.work import Work, configuration, scores, write
from tests.helpers import until

PLACE, CONFIG = "/srv/triage", "conf/job.yaml"
UV = Path(sys.executable).parent / "uv"
PATIENCE = 900  # seconds


def recipe(scheduler: str | None = None) -> str:
    """The function of the page, and a scheduler's task that calls it."""
    found = [f.text for f in fences(DOCS / "guide" / "deploying.md") if f.language == "python"]
    function = next(text for text in found if "def reconcile" in text).rpartition("\nprint(")[0]
    task = [text for text in found if scheduler and f"from {scheduler} import" in text]
    assert len(task) == (scheduler is not None)
    return "\n".join([function, *task])


TIMED_OUT = """
import signal
def out_of_time(*_):
    raise TimeoutError("of the task")
signal.signal(signal.SIGALRM, out_of_time)
reconcile("run", "-c", "config.yaml", "--quiet")
"""


@pytest.mark.slow
def test_a_task_that_is_out_of_time_ends_its_run(work: Work) -> None:
    """Schedulers raise an error in the task: what it started must not live on."""
    write(scores(50_000))
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", recipe() + TIMED_OUT], stderr=subprocess.PIPE, text=True
    )
    until(lambda: DeltaTable.is_deltatable("out/rows_runs") and bool(work.runs()))
    process.send_signal(signal.SIGALRM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "TimeoutError: of the task" in err, err
    [row] = work.runs()
    assert (row["status"], row["error"]) == ("failed", WORDS["TERM"])
    work.ran("run")


# --- the schedulers themselves --------------------------------------------------------------------


def scheduler(package: str, folder: Path) -> Path:
    """An environment with a scheduler and our wheel; or a skip, where no index has it."""
    python = folder / "venv" / "bin" / "python"
    uv = [str(UV), "pip", "install", "--quiet", "--python", str(python), package]
    wheels.run([str(UV), "venv", "--quiet", "--python", sys.executable, "venv"], folder)
    wheel = wheels.build(folder / "sources")
    done = subprocess.run([*uv, str(wheel)], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        pytest.skip(f"{package} cannot be installed: {done.stderr[-300:]}")
    return python


def night(folder: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the recipes have it; the recipe, which names that folder."""
    monkeypatch.chdir(folder)
    write(scores())
    job = folder / CONFIG
    job.parent.mkdir()
    job.write_text(yaml.safe_dump(configuration("scores.parquet")), "utf-8")
    module = folder / "dags" / "triage.py"
    module.parent.mkdir()
    assert PLACE in task and CONFIG in task
    module.write_text(task.replace(PLACE, str(folder)), "utf-8")
    return module


def spoil(folder: Path) -> None:
    (folder / CONFIG).write_text("input: {}", "utf-8")


def on_airflow(python: Path, folder: Path) -> tuple[str, str]:
    """The state in which one run of the DAG ends, and the log of its task.

    The command is not waited for once it has said so: it may not end at all.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    airflow = str(python.parent / "airflow")
    if not (folder / "airflow.db").exists():
        subprocess.run([airflow, "db", "migrate"], env=env, check=True, capture_output=True)
    log = folder / "airflow.log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [airflow, "dags", "test", "triage"], env=env, stdout=file, stderr=file
        )
    try:
        until(lambda: "DagRun Finished" in log.read_text() or process.poll() is not None, PATIENCE)
    finally:
        process.kill()
        process.wait()
    said = log.read_text(encoding="utf-8")
    assert "DagRun Finished" in said, said[-3_000:]
    return said.rpartition("DagRun Finished")[2].partition("state=")[2].partition(",")[0], said


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = scheduler("apache-airflow>=3", tmp_path)
    night(tmp_path, recipe("airflow.sdk"), monkeypatch)
    state, said = on_airflow(python, tmp_path)
    assert state == "success" and "Returned value was: done" in said, said[-3_000:]
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 600
    spoil(tmp_path)
    state, said = on_airflow(python, tmp_path)
    assert state == "failed" and "AirflowFailException" in said, said[-3_000:]
    assert "new_state=failed" in said and "up_for_retry" not in said.lower()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = scheduler("dagster", tmp_path)
    module = night(tmp_path, recipe("dagster"), monkeypatch)
    env = {"DAGSTER_HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "1"}
    once = [str(python.parent / "dagster"), "asset", "materialize"]
    once += ["--select", "triage", "-f", str(module)]
    done = wheels.run(once, tmp_path, env=env)
    assert "STEP_SUCCESS" in done.stderr + done.stdout
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 600
    spoil(tmp_path)
    failed = wheels.run(once, tmp_path, code=1, env=env)
    said = failed.stdout + failed.stderr
    assert "configuration or input" in said and "STEP_FAILURE" in said, said[-3_000:]
    assert "STEP_UP_FOR_RETRY" not in said

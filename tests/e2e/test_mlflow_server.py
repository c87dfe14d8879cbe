"""A real tracking server and registry on loopback, in an environment of its own, with SQLite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import redcal_spark.mlflow
from redcal_spark import ReconciledPair, cli
from tests.backends import free_port
from tests.unit.test_mlflow import as_lists, demo_config, lending, routing, same
from tests.versions.environments import UV

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*Any type hint"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PATIENCE = 300.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The full package: it must not meet ours, whose pyarrow is newer than it allows."""
    given = os.environ.get("REDCAL_MLFLOW_ENV")  # one that was made before
    if given is not None:
        return Path(given)
    folder = tmp_path_factory.mktemp("mlflow") / "env"
    venv.create(folder)
    made = subprocess.run(
        [
            *(str(UV), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")),
            f"mlflow=={mlflow.__version__}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"mlflow cannot be installed here: {made.stderr.strip()[-200:]}")
    return folder


@contextmanager
def answering(command: list[str], address: str, log: Path, **options: Any) -> Iterator[None]:
    """A server, until it is no longer needed."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, **options)
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(address):
                assert process.poll() is None, log.read_text()[-2_000:]
                assert time.monotonic() < deadline, log.read_text()[-2_000:]
                time.sleep(0.3)
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def server(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    address = f"http://127.0.0.1:{free_port()}"
    command = [
        *(str(environment / "bin" / "mlflow"), "server", "--host", "127.0.0.1"),
        *("--port", address.rpartition(":")[2], "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/store.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    with answering(command, f"{address}/health", folder / "log.txt", cwd=folder):
        mlflow.set_tracking_uri(address)
        mlflow.set_registry_uri(address)
        os.environ["MLFLOW_TRACKING_URI"] = address
        yield address
    del os.environ["MLFLOW_TRACKING_URI"]
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


@pytest.mark.parametrize("case", [lending, routing])
def test_logged_registered_and_loaded(case: Any, server: str) -> None:
    pair, frame = case()
    name = f"pair_{case.__name__}"
    mlflow.set_experiment("reconciled")
    redcal_spark.mlflow.log_model(pair, "pair", input_example=frame[:3], registered_model_name=name)
    client = mlflow.MlflowClient()
    client.set_registered_model_alias(name, "champion", "1")
    loaded = redcal_spark.mlflow.load_model(f"models:/{name}@champion")
    assert loaded.log == pair.log and loaded.certificate == pair.certificate
    same(mlflow.pyfunc.load_model(f"models:/{name}@champion").predict(frame), pair, frame)


def test_served(server: str, tmp_path: Path) -> None:
    pair, frame = lending()
    mlflow.set_experiment("served")
    redcal_spark.mlflow.log_model(pair, "pair", registered_model_name="served")
    address = f"http://127.0.0.1:{free_port()}"
    command = [
        *(sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/served/1"),
        *("--env-manager", "local", "-h", "127.0.0.1", "-p", address.rpartition(":")[2]),
        *("--workers", "1"),
    ]
    rows = frame[["model_1", "model_2"]][:50]
    # MLflow starts uvicorn by its name, as one finds it in an environment that is active
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with answering(
        command, f"{address}/ping", tmp_path / "log.txt", env={**os.environ, "PATH": path}
    ):
        asked = json.dumps(
            {"dataframe_split": json.loads(rows.to_json(orient="split", double_precision=15))}
        )
        request = urllib.request.Request(
            f"{address}/invocations", asked.encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            new = json.loads(answer.read())["predictions"]
    sent = pd.DataFrame(
        json.loads(asked)["dataframe_split"]["data"], columns=["model_1", "model_2"]
    )
    expected = pair.apply(sent.assign(id=range(len(sent))))
    for name in ("model_1_reconciled", "model_2_reconciled", "lend_1_after"):
        assert [row[name] for row in new] == expected[name].tolist()
    assert any(expected["touched"])


def test_a_job_logs_there(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--rows", "1500", "--quiet"]) == 0
    given = demo_config(experiment="nightly", registered_model="nightly_pair")
    for _ in range(2):  # the second time there is nothing to do
        assert cli.main(["run", *given, "--quiet"]) == 0
    runs = mlflow.search_runs(experiment_names=["nightly"], output_format="list")
    assert len(runs) == 1 and runs[0].info.status == "FINISHED"
    versions = mlflow.MlflowClient().search_model_versions("name = 'nightly_pair'")
    assert [version.run_id for version in versions] == [runs[0].info.run_id]
    pair = redcal_spark.mlflow.load_model("models:/nightly_pair/1")
    assert runs[0].data.metrics["patches"] == len(pair.log) > 0
    saved = tmp_path / "pair.json"
    assert cli.main(["export", *given, "-o", str(saved), "--quiet"]) == 0
    assert ReconciledPair.load(saved).log == pair.log
    artifacts = Path(mlflow.artifacts.download_artifacts(run_id=runs[0].info.run_id, dst_path="x"))
    written = {path.name for path in (artifacts / "redcal").iterdir()}
    assert written >= {"report.html", "patches.jsonl"}


def test_a_function_on_spark(server: str, spark: Any) -> None:
    for case in (lending, routing):
        pair, frame = case()
        name = f"udf_{case.__name__}"
        mlflow.set_experiment("udf")
        redcal_spark.mlflow.log_model(pair, "pair", registered_model_name=name)
        scores = "double" if pair.binary else "array<double>"
        kind = f"model_1_reconciled {scores}, model_2_reconciled {scores}"
        made = mlflow.pyfunc.spark_udf(
            spark, f"models:/{name}/1", result_type=kind, env_manager="local"
        )
        given = frame[["model_1", "model_2"]][:200]
        plain = [[as_lists([x])[0] for x in row] for row in given.itertuples(index=False)]
        rows = spark.createDataFrame(plain, f"model_1 {scores}, model_2 {scores}")
        found = rows.select(made("model_1", "model_2").alias("new")).select("new.*").toPandas()
        expected = pair.apply(frame[:200])
        for column in ("model_1_reconciled", "model_2_reconciled"):
            assert as_lists(found[column]) == as_lists(expected[column])

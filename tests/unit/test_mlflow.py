"""Pairs in MLflow without a server: logged to files, loaded, predicted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import redcal_spark.mlflow
from redcal_spark import ReconciledPair, Reconciler, cli
from redcal_spark.errors import ModelFileError, RedcalError, UsageError
from redcal_spark.registry import models
from tests.helpers import refused

# MLflow warns of type hints of its own, and that files are a store of the past.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Any type hint"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@cache
def lending() -> tuple[ReconciledPair, pd.DataFrame]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 1_500)
    one, two = np.clip(0.3 + 0.4 * y + rng.normal(0, 0.25, (2, 1_500)), 0, 1)
    frame = pd.DataFrame({"id": range(1_500), "model_1": one, "model_2": two, "label": y})
    losses = {"lend": {"costs": [[0, 5], [1, 0]], "actions": ["approve", "refuse"]}}
    made = Reconciler(losses=losses, alpha=0.01, eta=0.02, id="id", threads=1)
    return made.fit(frame, holdout=0.3), frame.drop(columns="label")


@cache
def routing() -> tuple[ReconciledPair, pd.DataFrame]:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 1_500)
    scores = rng.random((2, 1_500, 3)) + 0.6 * np.eye(3)[y]
    one, two = (x / x.sum(axis=1, keepdims=True) for x in scores)
    losses = {"route": [[0, 2, 4], [1, 0, 1], [3, 2, 0]]}
    frame = pd.DataFrame({"model_1": list(one), "model_2": list(two)})
    pair = Reconciler(losses=losses, alpha=0.01, eta=0.01, threads=1).fit(one, two, y)
    return pair, frame


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of files; MLflow asks to allow it."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri(f"file:{tmp_path / 'mlruns'}")
    mlflow.set_registry_uri(f"file:{tmp_path / 'mlruns'}")
    yield tmp_path
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


def as_lists(column: Any) -> list[Any]:
    return [x.tolist() if hasattr(x, "tolist") else x for x in column]


def same(predicted: pd.DataFrame, pair: ReconciledPair, frame: pd.DataFrame) -> None:
    """To the bit what `apply` adds."""
    applied = pair.apply(frame)
    new = [name for name in applied.columns if name not in frame.columns]
    assert list(predicted.columns) == new
    assert predicted.index.equals(frame.index)
    for name in new:
        assert as_lists(predicted[name]) == as_lists(applied[name]), name


@pytest.mark.parametrize("case", [lending, routing])
def test_logged_loaded_and_predicted(case: Any, tracking: Path) -> None:
    pair, frame = case()
    info = redcal_spark.mlflow.log_model(pair, "pair", input_example=frame[:3])
    loaded = redcal_spark.mlflow.load_model(info.model_uri)
    assert loaded.log == pair.log and loaded.certificate == pair.certificate
    assert loaded.history == pair.history
    predicting = mlflow.pyfunc.load_model(info.model_uri)
    same(predicting.predict(frame), pair, frame)
    bad = frame[:2].assign(model_1=[None, frame["model_1"].iloc[1]])
    with pytest.raises((RedcalError, mlflow.exceptions.MlflowException)):
        predicting.predict(bad)
    signature = info.signature
    assert signature is not None
    assert signature.inputs.input_names() == ["model_1", "model_2"]
    assert signature.outputs.input_names()[:2] == ["model_1_reconciled", "model_2_reconciled"]


def test_what_a_run_has(tracking: Path) -> None:
    pair, frame = lending()
    with mlflow.start_run() as run:
        info = redcal_spark.mlflow.log_model(
            pair, "pair", input_example=frame[:3], registered_model_name="lending"
        )
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.params["algorithm"] == "redcal" and logged.params["eta"] == "0.02"
    assert logged.params["beta"] == str(float(pair.resolved.beta))  # type: ignore[arg-type]
    assert logged.metrics["patches"] == len(pair.log)
    summary = pair.summary().to_pandas().set_index(["split", "measure", "model"])["after"]
    cost = summary["holdout", "mean cost", "model_1"]
    assert logged.metrics["holdout/mean_cost/lend/model_1/after"] == cost
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path="got"))
    lines = (folder / "redcal" / "patches.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == pair.log.to_json()
    assert (folder / "redcal" / "report.html").read_text().startswith("<!doctype html>")
    model = Path(mlflow.artifacts.download_artifacts(info.model_uri, dst_path="model"))
    requirements = (model / "requirements.txt").read_text()
    assert "redcal-spark<1,>=" in requirements and "==" not in requirements
    assert not list(model.rglob("*.pkl")) and "cloudpickle" not in requirements
    assert redcal_spark.mlflow.load_model("models:/lending/1").log == pair.log


def test_rows_are_counted_whatever_their_weights() -> None:
    """As the ledger has them, whose name the number has."""
    rng = np.random.default_rng(3)
    one, two = rng.random((2, 400))
    weight = rng.integers(0, 5, 400) / 2
    made = Reconciler(losses={"t": [[0, 5], [1, 0]]}, alpha=0.01, eta=0.05, weight_unit=0.5)
    pair = made.fit(one, two, rng.integers(0, 2, 400), weight=weight)
    assert pair.rows == 2 * weight.sum()
    assert models.metrics(pair)["fit_rows"] == np.count_nonzero(weight)


def test_other_models_are_refused(tracking: Path) -> None:
    Path("other.py").write_text("def _load_pyfunc(path):\n    return None\n")
    Path("data.txt").write_text("x")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="other",
            loader_module="other",
            data_path="data.txt",
            code_paths=["other.py"],
            pip_requirements=["pandas"],
        )
    words = refused(ModelFileError, lambda: redcal_spark.mlflow.load_model(info.model_uri))
    assert "not a model of redcal_spark" in words


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    words = refused(UsageError, models.mlflow_or_refusal)
    assert "pip install 'redcal-spark[mlflow]'" in words


# --- jobs -----------------------------------------------------------------------------------------


def demo_config(**mlflow_keys: Any) -> list[str]:
    text = Path("out/demo.yaml").read_text()
    keys = ", ".join(f"{key}: {value}" for key, value in mlflow_keys.items())
    whole = text.replace("output: {table:", f"output: {{mlflow: {{{keys}}}, table:")
    assert whole != text
    Path("conf.yaml").write_text(whole)
    return ["-c", "conf.yaml"]


def test_redcal_run_logs_once(tracking: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--rows", "1500", "--quiet"]) == 0
    given = demo_config(experiment="triage", registered_model="triage_pair")
    assert cli.main(["check", *given]) == 0
    capsys.readouterr()
    for _ in range(2):  # the second time there is nothing to do, and nothing is logged again
        assert cli.main(["run", *given, "--json"]) == 0
    first, second = (json.loads(x) for x in capsys.readouterr().out.splitlines())
    assert second["unchanged"] and first["mlflow_run"] == second["mlflow_run"]
    runs = mlflow.search_runs(experiment_names=["triage"], output_format="list")
    assert [run.info.run_id for run in runs] == [first["mlflow_run"]]
    assert runs[0].data.tags["redcal.run_id"] == first["run_id"]
    assert runs[0].data.metrics["patches"] > 0
    pair = redcal_spark.mlflow.load_model("models:/triage_pair/1")
    assert pair.certificate is not None and pair.history is not None
    assert len(pair.log) == runs[0].data.metrics["patches"]
    artifacts = Path(mlflow.artifacts.download_artifacts(run_id=first["mlflow_run"], dst_path="x"))
    assert first["run_id"] in (artifacts / "redcal" / "report.html").read_text()


def test_the_history_that_is_logged_is_of_all_rows(tracking: Path) -> None:
    """Those of segments are in the run's table, and no evidence of the model has them."""
    assert cli.main(["demo", "--rows", "1500", "--quiet"]) == 0
    given = demo_config(experiment="triage", registered_model="triage_pair")
    assert cli.main(["run", *given, "--quiet", "--set", "input.segments=[cohort]"]) == 0
    pair = redcal_spark.mlflow.load_model("models:/triage_pair/1")
    assert pair.history is not None
    numbers = pair.history.to_arrow()
    stored = DeltaTable("out/demo/triage_history").to_pyarrow_table()
    assert len(numbers) < len(stored) and len(stored.filter(pc.is_valid(stored["segment"])))
    places = numbers.select(["split", "step", "loss", "model"]).to_pylist()
    assert len({tuple(place.values()) for place in places}) == len(places)


def test_a_server_that_is_not_there(
    tracking: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--rows", "600", "--quiet"]) in (0, 3)
    given = demo_config(experiment="triage")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    assert cli.main(["run", *given, "--quiet"]) == 1
    told = capsys.readouterr().err
    assert "is finished and its tables are written, but MLflow at http://127.0.0.1:9" in told
    assert "the same command tries again" in told


def test_names_that_must_not_be_stored(
    tracking: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--rows", "600", "--quiet"]) in (0, 3)
    given = demo_config(experiment="triage")
    config = Path("conf.yaml")
    text = config.read_text()
    column = next(line.split(":")[1].strip() for line in text.splitlines() if "model_1:" in line)
    monkeypatch.setenv("SCORES", column)
    config.write_text(text.replace(f"model_1: {column}", "model_1: ${SCORES}"))
    assert cli.main(["check", *given]) == 2
    assert "output.mlflow: columns, losses or actions are named by variables" in (
        capsys.readouterr().err
    )

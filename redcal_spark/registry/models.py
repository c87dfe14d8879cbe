"""Pairs as models of MLflow: logged, registered, loaded."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from redcal_spark import __version__
from redcal_spark.core.output_columns import OutputNames
from redcal_spark.errors import ModelFileError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.registry import served
from redcal_spark.settings import called_from_python

if TYPE_CHECKING:
    from mlflow.models import ModelSignature
    from mlflow.models.model import ModelInfo

FILE = "pair.json"
KIND = "redcal_spark"  # the key of our own part of a model's metadata
# A range: whoever serves the model takes the newest release that reads its file.
REQUIREMENTS = (
    f"redcal-spark>={__version__.partition('.dev')[0]}.dev0,<1",
    "mlflow-skinny>=3.1",  # else MLflow pins itself, the full package
    "pandas>=2.2,<3",
)

WriteReport = Callable[[Path], Any]


def mlflow_or_refusal() -> Any:
    """The client, if it is installed."""
    try:
        import mlflow
        import mlflow.pyfunc
    except ModuleNotFoundError as err:
        raise UsageError(
            f"this needs MLflow's client ({err.name} is not installed): "
            "pip install 'redcal-spark[mlflow]'"
        ) from err
    return mlflow


@called_from_python
def log_model(
    pair: ReconciledPair,
    name: str = "pair",
    *,
    input_example: Any = None,
    registered_model_name: str | None = None,
    report: bool = True,
    **options: Any,
) -> ModelInfo:
    """Log a pair as a model of MLflow, with its parameters, metrics, patch log and report.

    It goes to the active run, or to a new one. `mlflow.pyfunc` loads it: `predict` takes a data
    frame with the score columns and gives new scores and actions.

    name: of the model within the run. input_example: a data frame of a few rows; by default one
    row with equal scores.
    registered_model_name: also register it; a three-part name goes to Unity Catalog as it is.
    report: log the report, too, where jinja2 is installed. options: others of
    `mlflow.pyfunc.log_model`.

    ```python
    info = redcal_spark.mlflow.log_model(pair, "pair", input_example=frame)
    ```
    """
    mlflow = mlflow_or_refusal()
    with _run(mlflow), tempfile.TemporaryDirectory() as folder:
        mlflow.log_params(parameters(pair))
        mlflow.log_metrics(metrics(pair))
        for path in _artifacts(pair, Path(folder, "run"), pair.report if report else None):
            mlflow.log_artifact(str(path), "redcal")
        return _logged(mlflow, pair, name, folder, input_example, registered_model_name, options)


def _logged(
    mlflow: Any,
    pair: ReconciledPair,
    name: str,
    folder: str,
    example: Any,
    registered: str | None,
    options: Mapping[str, Any],
) -> ModelInfo:
    path = Path(folder, FILE)
    pair.save(path)
    columns = served.served(pair).pair.columns.names(label=False)
    example = _example(pair) if example is None else example[columns]
    usual = {
        "pip_requirements": list(REQUIREMENTS),
        "signature": signature_of(pair),
        "metadata": {KIND: {"version": __version__, "file": FILE}},
    }
    logged: ModelInfo = mlflow.pyfunc.log_model(
        name=name,
        loader_module=served.__name__,
        data_path=str(path),
        input_example=example,
        registered_model_name=registered,
        **usual | dict(options),
    )
    return logged


@called_from_python
def load_model(model_uri: str) -> ReconciledPair:
    """The pair that `log_model` logged: `models:/name/1`, `models:/name@alias`, `runs:/id/pair`.

    ```python
    pair = redcal_spark.mlflow.load_model(info.model_uri)
    ```
    """
    mlflow = mlflow_or_refusal()
    with tempfile.TemporaryDirectory() as folder:
        at = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri, dst_path=folder))
        files = sorted(at.rglob(FILE))
        if len(files) != 1:
            raise ModelFileError(
                f"{model_uri}: not a model of redcal_spark: it has no file {FILE}; "
                "mlflow.pyfunc.load_model loads models of other kinds"
            )
        return ReconciledPair.load(files[0])


@contextmanager
def _run(mlflow: Any) -> Iterator[None]:
    """The active run, or a new one."""
    if mlflow.active_run() is not None:
        yield
    else:
        with mlflow.start_run():
            yield


# --- what is logged -------------------------------------------------------------------------------


def parameters(pair: ReconciledPair) -> dict[str, Any]:
    """The parameters by name, beta as resolved; and what the fit came to."""
    given = pair.parameters
    beta = pair.resolved.beta
    return {
        "algorithm": given.algorithm,
        "alpha": given.alpha,
        "eta": given.eta,
        "beta": None if beta is None else float(beta),
        "adaptive_beta": given.adaptive_beta,
        "grid_bits": given.grid_bits,
        "models": ", ".join(pair.models),
        "losses": ", ".join(loss.name for loss in pair.losses.losses),
        "status": pair.status,
    }


def metrics(pair: ReconciledPair) -> dict[str, float]:
    """Counts, and every line of the summary before and after."""
    numbers: dict[str, float] = {
        "patches": len(pair.log),
        "rounds": pair.log.rounds,
        "fit_rows": pair.counted,
    }
    if pair.certificate is not None:
        counts = pair.certificate.counts
        numbers |= {f"checks_{key.replace(' ', '_')}": count for key, count in counts.items()}
    for line in pair.summary().lines if pair.evidence is not None else ():
        parts = (line.split, line.measure.replace(" ", "_"), line.loss, line.model)
        # MLflow takes letters, digits and a few signs in a name
        name = "/".join(re.sub(r"[^\w. -]", "_", part) for part in parts if part is not None)
        numbers |= {f"{name}/before": float(line.before), f"{name}/after": float(line.after)}
    return numbers


def _artifacts(pair: ReconciledPair, folder: Path, report: WriteReport | None) -> Iterator[Path]:
    """The patch log as `redcal log --json` has it, the certificate, and the report."""
    folder.mkdir()
    log = folder / "patches.jsonl"
    log.write_text("".join(f"{patch.to_line()}\n" for patch in pair.log), encoding="utf-8")
    yield log
    if pair.certificate is not None:
        lines = folder / "certificate.txt"
        lines.write_text("\n".join(pair.certificate.lines()) + "\n", encoding="utf-8")
        yield lines
    if report is not None and (page := _report(report, folder / "report.html")) is not None:
        yield page


def _report(write: WriteReport, path: Path) -> Path | None:
    try:
        write(path)
    except UsageError:  # no jinja2, or nothing was measured: the rest says enough
        return None
    return path


def signature_of(pair: ReconciledPair) -> ModelSignature:
    """Score columns in, new scores and actions out."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array

    columns, names = pair.columns, OutputNames(pair.columns, pair.losses)
    arrays = not pair.binary

    def scores(own: list[str]) -> list[Any]:
        array = arrays and len(own) == 1
        return [ColSpec(Array(DataType.double) if array else DataType.double, x) for x in own]

    models = range(1, columns.n_models + 1)
    given = [spec for model in models for spec in scores(list(columns.of_model(model)))]
    new = [spec for model in models for spec in scores(names.of_model(model))]
    for name in names.all(False)[len(names.raw) :]:
        flag = name == names.touched or name in map(names.agree, _loss_names(pair))
        new.append(ColSpec(DataType.boolean if flag else DataType.string, name))
    skip = ParamSpec(served.ON_BAD_ROWS, DataType.string, "error")
    return ModelSignature(Schema(given), Schema(new), ParamSchema([skip]))


def _example(pair: ReconciledPair) -> Any:
    """A row on which nothing is known, as a data frame of pandas; nobody's scores go along."""
    share = 1 / pair.n_classes
    rows: dict[str, list[Any]] = {}
    for model in range(1, pair.columns.n_models + 1):
        own = pair.columns.of_model(model)
        array = not pair.binary and len(own) == 1
        rows |= {name: [[share] * pair.n_classes if array else share] for name in own}
    return pa.table(rows).to_pandas()


def _loss_names(pair: ReconciledPair) -> list[str]:
    return [loss.name for loss in pair.losses.losses]

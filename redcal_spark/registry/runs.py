"""Runs of jobs in MLflow: what `redcal run` logs where `output.mlflow` says so."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from redcal_spark.backends.location import Location
from redcal_spark.config.schema import Mlflow
from redcal_spark.errors import RunError, UsageError
from redcal_spark.model.evidence import COUNTS, SCHEMA, Evidence, History
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.registry import models
from redcal_spark.report.data import Report
from redcal_spark.report.write import write_report
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.tables import history_of

TAG = "redcal.run_id"


def check(job: Job) -> None:
    """Refuse beforehand what could not be logged: no client, or names that must not be stored."""
    if job.config.output.mlflow is None:
        return
    models.mlflow_or_refusal()
    problem = job.problem
    names = [asdict(problem.columns), problem.losses.to_json(quantised=False)]
    if job.config.hidden.stored_json(text := json.dumps(names)) != text:
        raise UsageError(
            "output.mlflow: columns, losses or actions are named by variables ${NAME}, whose "
            "values are stored nowhere, and a registered model needs them: write these names out, "
            "or leave out output.mlflow"
        )


def log_run(job: Job, row: RunRow) -> str | None:
    """Log a finished run, once, and register its model; the id of MLflow's run, if it is wanted.

    The tables are written by then: a failure leaves them as they are, and the same command tries
    again.
    """
    wanted = job.config.output.mlflow
    if wanted is None or row.command != "run":
        return None
    mlflow = models.mlflow_or_refusal()
    try:
        return _known(mlflow, wanted, row) or _log(mlflow, wanted, job, row)
    except UsageError:
        raise
    except Exception as err:  # a server that is not there, a name it does not allow, and so on
        raise RunError(
            f"output.mlflow: run {row.run_id} is finished and its tables are written, but MLflow "
            f"at {mlflow.get_tracking_uri()} did not take it: {_first_line(err)}; the same "
            "command tries again"
        ) from err


def _known(mlflow: Any, wanted: Mlflow, row: RunRow) -> str | None:
    """The id of MLflow's run, if it has this run already, whole."""
    experiment = mlflow.get_experiment_by_name(wanted.experiment)
    if experiment is None:
        return None
    text = f"tags.`{TAG}` = '{row.run_id}' AND attributes.status = 'FINISHED'"
    runs = mlflow.search_runs(
        [experiment.experiment_id], filter_string=text, output_format="list", max_results=1
    )
    return str(runs[0].info.run_id) if runs else None


def _log(mlflow: Any, wanted: Mlflow, job: Job, row: RunRow) -> str:
    pair = _measured(job, row)
    experiment = mlflow.set_experiment(wanted.experiment)
    tags = {TAG: row.run_id, "redcal.fingerprint": row.fingerprint, "redcal.status": row.status}
    with (
        mlflow.start_run(
            experiment_id=experiment.experiment_id, run_name=row.run_id, tags=tags
        ) as run,
        tempfile.TemporaryDirectory() as folder,
    ):
        models.log_model(pair, "pair", registered_model_name=wanted.registered_model, report=False)
        page = Path(folder, "report.html")
        try:
            write_report(Report.of(job.store, job.tables, row), Location(str(page)))
            mlflow.log_artifact(str(page), "redcal")
        except UsageError as err:
            job.listener.note(f"no report in MLflow: {err}")
        return str(run.info.run_id)


def _measured(job: Job, row: RunRow) -> ReconciledPair:
    """The model of a run with what the run measured, from its tables."""
    pair = job.pair_of(row)
    table = history_of(job.store, job.tables.history, row)
    if table is None or row.audits is None:
        return pair
    numbers = pa.table(table.select(SCHEMA.names).cast(SCHEMA))
    counts = {name: int(getattr(row, name) or 0) for name in COUNTS}
    history = History(numbers, pair.models)
    return replace(pair, evidence=Evidence(history, json.loads(row.audits), counts, row.started_at))


def _first_line(err: Exception) -> str:
    return (str(err).splitlines() or [type(err).__name__])[0]

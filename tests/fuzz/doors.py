"""What opens model files without being a command: a model made into SQL, a model of MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

import redcal_spark.mlflow
from redcal_spark import ReconciledPair
from redcal_spark.errors import RedcalError
from redcal_spark.registry.models import mlflow_or_refusal

mlflow_or_refusal()  # seconds that no case shall be charged


def sql(table: str, dialect: str) -> str:
    return ReconciledPair.load("m.json").to_sql(table, dialect)


def mlflow(model: str) -> str:
    return repr(redcal_spark.mlflow.load_model(model))


DOORS: dict[str, Callable[..., str]] = {"sql": sql, "mlflow": mlflow}


def main(arguments: Sequence[str]) -> int:
    try:
        print(DOORS[arguments[0]](*arguments[1:]))
    except RedcalError as err:
        print(err, file=sys.stderr)
        return 2
    return 0

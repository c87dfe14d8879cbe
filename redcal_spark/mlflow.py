"""`redcal_spark.mlflow`: pairs in MLflow's tracking and registry.

import redcal_spark.mlflow

redcal_spark.mlflow.log_model(pair, "pair", registered_model_name="lending")
pair = redcal_spark.mlflow.load_model("models:/lending@champion")
"""

from redcal_spark.registry.models import load_model, log_model

__all__ = ["load_model", "log_model"]

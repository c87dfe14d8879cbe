"""`from redcal_spark.session import get_session`: the Spark session that the package would use."""

from redcal_spark.backends.spark.session import get_session

__all__ = ["get_session"]

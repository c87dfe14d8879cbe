"""The Spark backend: classic, Connect and serverless alike. Only here is pyspark imported."""

import sys

try:  # before any of the modules here, whichever of them a worker meets first
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as err:
    from redcal_spark.errors import UsageError

    raise UsageError(  # in a worker, whose Python is not ours
        f"the Python of Spark's workers, {sys.executable}, cannot be used ({err}): they need numpy "
        "and pyarrow. Install both there, or name a Python that has them with PYSPARK_PYTHON "
        "before Spark starts"
    ) from None

"""A Spark Connect server until standard input ends: `python -m tests.spark.server PORT`."""

from __future__ import annotations

import sys

from redcal_spark.session import local_session
from tests.backends import stopped

if __name__ == "__main__":
    settings = {
        "master": "local[2]",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": sys.argv[1],
        # code that one client ships is not another's
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    }
    with stopped(local_session(**settings)):
        print("ready", flush=True)
        sys.stdin.read()

"""A Spark Connect server until standard input ends: `python -m tests.spark.server PORT`.

It answers every line with the number of sessions that clients have not given back.
"""

from __future__ import annotations

import sys

from redcal_spark.backends.spark.session import local_session
from tests.backends import stopped

SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"  # a Scala object

if __name__ == "__main__":
    settings = {
        "master": "local[2]",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": sys.argv[1],
        # code that one client ships is not another's
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    }
    with stopped(local_session(**settings)) as session:
        print("ready", flush=True)
        found = session._jvm.org.apache.spark.util.Utils.classForName(SERVICE, True, False)
        service = found.getField("MODULE$").get(None)
        for _ in sys.stdin:
            print(service.sessionManager().listActiveSessions().size(), flush=True)

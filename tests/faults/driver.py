"""A driver on a cluster that runs one `redcal` command after another, until it is killed.

`python -m tests.faults.driver MASTER WORKER_PYTHON ADDRESS`: commands come as lines of JSON on
standard input, exit codes go as lines to standard output. What `redcal` says goes to standard
error.
"""

from __future__ import annotations

import json
import os
import sys

from delta import configure_spark_with_delta_pip

from redcal_spark.backends.spark.session import LOCAL
from redcal_spark.cli import main
from redcal_spark.runs import patch_writer
from tests.backends import ON_CLUSTER, cluster_session, stopped

SETTINGS = (
    {key: value for key, value in LOCAL.items() if not key.startswith("spark.driver.")}
    | ON_CLUSTER
    | {
        "spark.sql.files.maxPartitionBytes": "64k",  # a task a file
        "spark.sql.shuffle.partitions": "4",
        # Spark waits two minutes for a host that does not answer; these runs are shorter.
        "spark.network.timeout": "15s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeatInterval": "2s",
        "spark.rpc.askTimeout": "60s",
    }
)


def serve(url: str, python: str, address: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    patch_writer.EVERY, patch_writer.SHARE = 0.5, 1  # a short run leaves something to go on from
    made = cluster_session(url, python, SETTINGS, address, configure_spark_with_delta_pip)
    with stopped(made):
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            folder, command = json.loads(line)
            os.chdir(folder)
            print(main(command), file=answers, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])

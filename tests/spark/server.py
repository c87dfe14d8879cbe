"""A Spark Connect server until standard input ends: `python -m tests.spark.server PORT`."""

from __future__ import annotations

import sys

from tests import backends

if __name__ == "__main__":
    with backends.stopped(backends.connect(port=int(sys.argv[1]))):
        print("ready", flush=True)
        sys.stdin.read()

"""`spark-submit jobs/run.py -c conf/x.yaml`: what `redcal run` does, on Spark."""

from __future__ import annotations

import sys

from redcal_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--engine", "spark", *sys.argv[1:]]))

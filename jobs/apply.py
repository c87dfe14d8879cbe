"""`spark-submit jobs/apply.py -c conf/x.yaml`: what `redcal apply` does, on Spark."""

from __future__ import annotations

import sys

from redcal_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["apply", "--engine", "spark", *sys.argv[1:]]))

"""`spark-submit jobs/fit.py -c conf/x.yaml`: what `redcal fit` does, on Spark."""

from __future__ import annotations

import sys

from redcal_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["fit", "--engine", "spark", *sys.argv[1:]]))

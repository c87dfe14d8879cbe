"""The command line: `redcal`."""

from redcal_spark.cli.entry import main

__all__ = ["main"]

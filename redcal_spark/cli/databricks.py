"""What a Databricks job calls: `redcal` as a wheel task.

A wheel task calls a function and does not look at what it returns, so that a failure must be
raised. It must not exit either: not every runtime takes `sys.exit(0)` for success.
"""

from __future__ import annotations

import sys

from redcal_spark.cli import main
from redcal_spark.errors import RunError

MEANING = {
    1: "it failed",
    2: "wrong use, configuration or input",
    3: "it finished, but capped, stalled or cut",
}


def task() -> None:
    """Run the command that the task's parameters spell; raise unless it ends with 0."""
    try:
        code: object = main()
    except SystemExit as err:  # argparse ends so, also after --help
        code = err.code
    if code:
        command = " ".join(["redcal", *sys.argv[1:2]])
        why = MEANING.get(code, "") if isinstance(code, int) else str(code)
        raise RunError(f"{command} ended with exit code {code}: {why}; its output says more")

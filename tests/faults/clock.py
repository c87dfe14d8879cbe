"""`redcal` with a clock that can be set: `python -m tests.faults.clock MOMENT COMMAND ...`.

A file says by how many seconds it is off; what strikes at the moment may write it. All that this
package asks for the time of day is told so; Delta has a clock of its own.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from redcal_spark.backends.spark import scratch
from redcal_spark.cli import log_lines, main
from redcal_spark.model import evidence
from redcal_spark.runs import claim, ledger, monitor, prune, tables
from tests.e2e import killed

FILE = "REDCAL_TEST_CLOCK"
ASKING = (claim, tables, ledger, log_lines, prune, scratch, evidence, monitor)


class Clock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        off = float(Path(os.environ[FILE]).read_text("utf-8"))
        return datetime.now(tz) + timedelta(seconds=off)


if __name__ == "__main__":
    for module in ASKING:
        vars(module)["datetime"] = Clock
    moment, *command = sys.argv[1:]
    sys.exit(main(command) if moment == "never" else killed.run(moment, *command))

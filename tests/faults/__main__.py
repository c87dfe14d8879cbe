"""`make test-faults SEED=1 KILLS=50`: disturbed runs on a cluster, and what came of them."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.results import save_printed
from tests.bench.timing import machine
from tests.faults.kills import explore, planned


def _end(*_: object) -> None:
    """What was started is stopped, and whoever is impatient cannot stop that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a new folder to work in, which is kept")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep it: docs/results/faults.json"
    )
    options = parser.parse_args()
    start = time.monotonic()
    signal.signal(signal.SIGTERM, _end)

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="redcal-faults-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        if options.keep is not None:
            folder = options.keep.resolve()
            folder.mkdir(parents=True)
        told = explore(planned(options.seed, options.kills), folder, say)
    print("\n".join(told.lines()), flush=True)
    if options.save is not None:
        command = f"make test-faults KILLS={options.kills} SEED={options.seed}"
        save_printed(options.save, command, machine(), "\n".join(told.lines()))
    return 1 if told.problems else 0


if __name__ == "__main__":
    sys.exit(main())

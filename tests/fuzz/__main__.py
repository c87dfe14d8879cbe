"""`make fuzz CASES=20000 SEED=1`: many cases, and a count of what came of them."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.results import save_printed
from tests.bench.timing import machine
from tests.fuzz.cases import SHARES, TARGETS
from tests.fuzz.harness import worker_for
from tests.fuzz.running import Seen, explore


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("fuzz_found"),
        help="a folder for cases that go wrong, to be run by hand (%(default)s)",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="a result file to write")
    options = parser.parse_args()
    printed = []

    def say(line: str) -> None:
        print(line, flush=True)
        printed.append(line)

    chosen = options.target or list(TARGETS)
    whole = sum(SHARES[name] for name in chosen)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="redcal-fuzz-") as folder:
        for name in chosen:
            worker = worker_for(name, Path(folder))
            start = time.monotonic()
            seen = Seen()
            explore(name, -(-options.cases * SHARES[name] // whole), options.seed, worker, seen)
            say(_line(name, seen, time.monotonic() - start))
            failed += sum(seen.problems.values())
            for number, (problem, case) in enumerate(seen.examples.items()):
                place = options.keep / f"{name}-{options.seed}-{number}"
                shutil.rmtree(place, ignore_errors=True)
                case.save(place)
                print(f"  {seen.problems[problem]} x {problem[:300]!r}: {place}", flush=True)
            worker.close()
        how = "the kernel allowed no" if worker.confined else "Python was watched for any"
        say(f"{how} write outside of the folder of a case")
    if options.save is not None:
        command = f"make fuzz CASES={options.cases} SEED={options.seed}"
        save_printed(options.save, command, machine(), "\n".join(printed))
    return 1 if failed else 0


def _line(name: str, seen: Seen, seconds: float) -> str:
    codes = sorted(seen.codes.items(), key=str)
    told = ", ".join(f"exit {code}: {count:,}" for code, count in codes)
    most = f"slowest {seen.slowest:.2f} s, largest {seen.largest / 2**20:.0f} MiB"
    wrong = sum(seen.problems.values())
    return f"{name:<8} {seen.cases:,} cases in {seconds:.0f} s ({told}); {most}; {wrong} went wrong"


if __name__ == "__main__":
    sys.exit(main())

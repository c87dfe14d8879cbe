"""`python -m tests.bench`: everything; or name sections and measurements.

`python -m tests.bench paper` is apart: the paper's experiments, which measure no speed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from redcal_spark.backends.threads import blas
from tests.bench import core, paper, spark, tables
from tests.bench.results import save_printed
from tests.bench.timing import Result, machine, table

Measurement = Callable[[bool], Result]


def _sized(module: Any) -> dict[str, Measurement]:
    """A module's measurements, by whether they should be quick."""

    def sized(run: Callable[[Any], Result]) -> Measurement:
        return lambda quick: run(module.QUICK if quick else module.Sizes())

    return {name: sized(run) for name, run in module.MEASUREMENTS.items()}


SECTIONS: dict[str, dict[str, Measurement]] = {
    "core": _sized(core),
    "tables": _sized(tables),
    "spark": _sized(spark),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given_here = sys.argv[1:] if arguments is None else arguments
    if given_here[:1] == ["paper"]:
        return paper.main(given_here[1:])
    names = [*SECTIONS, *(name for section in SECTIONS.values() for name in section)]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep it: docs/results/bench.json"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in names]
    if unknown:
        parser.error(f"no {', '.join(unknown)}; there are: {', '.join(names)}")

    print(machine(), flush=True)
    if given.quick:
        print("quick: sizes too small for the ratios to mean anything")
    printed = []
    for section, measurements in SECTIONS.items():
        chosen = {
            name: run
            for name, run in measurements.items()
            if not given.names or section in given.names or name in given.names
        }
        if chosen:
            printed.append(_told(section, chosen, given.quick))
            print(printed[-1], flush=True)
    if given.save is not None:
        quick = ["--quick"] if given.quick else []
        command = " ".join(["python -m tests.bench", *given.names, *quick])
        save_printed(given.save, command, machine(), "\n\n".join(printed))
    return 0


def _told(section: str, measurements: dict[str, Measurement], quick: bool) -> str:
    results = []
    with blas().limit(limits=1, user_api="blas"):
        for name, run in measurements.items():
            print(f"measuring {section}: {name} ...", file=sys.stderr, flush=True)
            results.append(run(quick))
    threads = "all cores" if section == "tables" else "one thread unless said"
    lines = [f"\n{section}, {threads}, best of interleaved repeats\n"]
    ratios = [ratio for result in results for ratio in result.ratios]
    if quick:
        ratios = [replace(ratio, target=None) for ratio in ratios]
    if ratios:
        lines.append(table(ratios) + "\n")
    lines += [f"- {note}" for result in results for note in result.notes]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

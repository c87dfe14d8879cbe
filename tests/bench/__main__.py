"""`python -m tests.bench`: everything; or name sections and measurements.

With `--work FOLDER` tables and results are kept there, and what was measured is not measured again.
`python -m tests.bench paper` is apart: the paper's experiments, which measure no speed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from redcal_spark.backends.threads import blas
from tests.bench import core, cost, paper, segment_columns, serving, spark, speed, splits, tables
from tests.bench.results import commit, save_printed
from tests.bench.timing import Ratio, Result, machine, table

Measurement = Callable[[bool, Path | None], Result]


def _sized(module: Any, runs: Mapping[str, Callable[[Any], Result]]) -> dict[str, Measurement]:
    """Measurements by whether they should be quick, and where tables are kept, if anywhere."""

    def sized(run: Callable[[Any], Result]) -> Measurement:
        def measure(quick: bool, work: Path | None) -> Result:
            sizes = module.QUICK if quick else module.Sizes()
            if work is not None and hasattr(sizes, "tables"):
                sizes = replace(sizes, tables=work / "tables")
            return run(sizes)

        return measure

    return {name: sized(run) for name, run in runs.items()}


SECTIONS: dict[str, dict[str, Measurement]] = {
    "core": {
        **_sized(core, core.MEASUREMENTS | segment_columns.MEASUREMENTS),
        **_sized(serving, serving.MEASUREMENTS),
    },
    "tables": _sized(tables, tables.MEASUREMENTS),
    "spark": _sized(spark, spark.MEASUREMENTS),
    "speed": {
        **_sized(speed, speed.MEASUREMENTS | cost.MEASUREMENTS),
        **_sized(splits, splits.MEASUREMENTS),
    },
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
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="keep tables and results; go on where it was"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in names]
    if unknown:
        parser.error(f"no {', '.join(unknown)}; there are: {', '.join(names)}")

    print(machine(), flush=True)
    if given.work is not None:
        given.work.mkdir(parents=True, exist_ok=True)
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
            printed.append(_told(section, chosen, given.quick, given.work))
            print(printed[-1], flush=True)
    if given.save is not None:
        quick = ["--quick"] if given.quick else []
        command = " ".join(["python -m tests.bench", *given.names, *quick])
        save_printed(given.save, command, machine(), "\n\n".join(printed))
    return 0


def _told(
    section: str, measurements: dict[str, Measurement], quick: bool, work: Path | None
) -> str:
    results = []
    with blas().limit(limits=1, user_api="blas"):
        for name, run in measurements.items():
            kept = None if work is None else work / f"{name}{'.quick' if quick else ''}.json"
            if kept is not None and kept.exists():
                results.append(_read(kept))
                continue
            print(f"measuring {section}: {name} ...", file=sys.stderr, flush=True)
            if kept is None:
                results.append(run(quick, None))
            elif len(measurements) > 1:  # in a process of its own: what others held is not its own
                _apart(name, quick, kept.parent)
                results.append(_read(kept))
            else:
                results.append(run(quick, work))
                made = f"{name}: commit {commit()}, {machine().split(';')[1].strip()}"
                told = replace(results[-1], notes=[*results[-1].notes, made])
                results[-1] = told
                kept.write_text(json.dumps(asdict(told)), encoding="utf-8")
    threads = "one thread unless said" if section in ("core", "spark") else "all cores"
    lines = [f"\n{section}, {threads}, best of interleaved repeats\n"]
    ratios = [ratio for result in results for ratio in result.ratios]
    if quick:
        ratios = [replace(ratio, target=None) for ratio in ratios]
    if ratios:
        lines.append(table(ratios) + "\n")
    lines += [f"- {note}" for result in results for note in result.notes]
    return "\n".join(lines)


def _apart(name: str, quick: bool, work: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", name, "--work", str(work)]
    quickly = ["--quick"] if quick else []
    subprocess.run([*command, *quickly], check=True, stdout=subprocess.DEVNULL)


def _read(kept: Path) -> Result:
    told = json.loads(kept.read_text(encoding="utf-8"))
    return Result([Ratio(**ratio) for ratio in told["ratios"]], told["notes"])


if __name__ == "__main__":
    sys.exit(main())

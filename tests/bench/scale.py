"""`make bench-scale`: how cost and memory grow. A run that was stopped goes on where it was.

    python -m tests.bench.scale [FOLDER] [--quick] [--markdown]

Every measurement that is done is a line of FOLDER/results.jsonl, and is not made again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.bench import scale_data
from tests.bench.results import save_printed
from tests.bench.scale_found import Found, that_differ
from tests.bench.scale_plan import FULL, QUICK, Case, plan
from tests.bench.scale_tell import markdown, write_chart
from tests.bench.timing import machine

ROOT = Path(__file__).parents[2]
SERIES = list(dict.fromkeys(case.series for case in plan(FULL)))
MOST_SECONDS = 1_800  # of one measurement; it hangs otherwise

Measure = Callable[[Case, Path], dict[str, Any]]


class Results:
    """The lines of a file: what was measured, of which case, and on what machine."""

    def __init__(self, path: Path):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.lines: list[dict[str, Any]] = [line for text in lines if (line := _whole(text))]

    def of(self, case: Case) -> dict[str, Any] | None:
        """The last that was found, if the case was then what it is now."""
        own = [x["result"] for x in self.lines if x["case"] == case.to_json()]
        return own[-1] if own else None

    def add(self, case: Case, result: dict[str, Any], took: float) -> None:
        line = {"case": case.to_json(), "result": result, "took": took, "machine": machine()}
        self.lines.append(json.loads(json.dumps(line)))
        with self.path.open("a+b") as file:
            cut = file.tell() and not self.path.read_bytes().endswith(b"\n")
            file.write(b"\n" * bool(cut) + json.dumps(line).encode() + b"\n")

    def found(self, cases: Sequence[Case]) -> list[Found]:
        return [Found(case, told) for case in cases if (told := self.of(case)) is not None]


def _whole(text: str) -> dict[str, Any] | None:
    """A line, unless writing it was cut short."""
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return line


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """In a process of its own, which has its own memory and JVM."""
    command = [sys.executable, "-m", "tests.bench.scale_run", json.dumps(case.to_json())]
    told = subprocess.run(
        [*command, str(folder / "run")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=MOST_SECONDS,
    )
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def measure_all(cases: Sequence[Case], folder: Path, run: Measure = measure) -> list[Case]:
    """What is not there yet, one after the other; returns the cases that failed.

    One whose patches are not those of another engine or scan has failed, whenever it was measured.
    A table is made when it is needed and removed when nothing needs it any more.
    """
    results, failed = Results(folder / "results.jsonl"), []
    waiting = [case for case in cases if results.of(case) is None]
    tell(f"{len(cases) - len(waiting)} of {len(cases)} measurements are there already")
    for place, case in enumerate(waiting):
        tell(f"measuring {place + 1} of {len(waiting)}: {case.name}")
        start = perf_counter()
        try:
            make_table(case, folder)
            results.add(case, run(case, folder), perf_counter() - start)
        except (subprocess.SubprocessError, ValueError, LookupError) as err:
            tell(f"FAILED: {case.name}: {err}")
            failed.append(case)
        tell(f"  {perf_counter() - start:.0f} s")
        later = {other.table for other in waiting[place + 1 :]}
        if case.table is not None and case.table not in later:
            shutil.rmtree(folder / "tables" / case.table, ignore_errors=True)
    for one in that_differ(results.found(cases)):
        tell(f"FAILED: {one.case.name}: its patch log is not that of other fits of the table")
        failed.append(one.case)
    return failed


def make_table(case: Case, folder: Path) -> None:
    if case.table is None or (path := folder / "tables" / case.table).exists():
        return
    start = perf_counter()
    scale_data.write(case.rows, case.count, path)
    size = sum(file.stat().st_size for file in path.iterdir())
    tell(f"  {case.count:,} rows written, {size / 1e9:.2f} GB, {perf_counter() - start:.0f} s")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("folder", nargs="?", default="bench_scale", help="%(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--markdown", action="store_true", help="only tell what is there")
    parser.add_argument("--only", nargs="+", choices=SERIES, default=SERIES, help="%(choices)s")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep it: docs/results/scale.json"
    )
    given = parser.parse_args(arguments)
    folder = Path(given.folder).absolute() / ("quick" if given.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    cases, failed = plan(QUICK if given.quick else FULL), []
    if not given.markdown:
        tell(machine())
        failed = measure_all([case for case in cases if case.series in given.only], folder)
    results = Results(folder / "results.jsonl")
    found = results.found(cases)
    if given.quick:
        print("quick: sizes too small for the figures to mean anything\n")
    print(markdown(found))
    if given.save is not None:
        save_printed(given.save, "make bench-scale", machine(), markdown(found))
    if write_chart(found, folder / "chart.svg"):
        tell(f"chart: {folder / 'chart.svg'}")
    tell(f"{len(found)} of {len(cases)} measured, {sum(x['took'] for x in results.lines):.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make test-versions`: every row of the table in an environment of its own, once.

Environments and outcomes are in out/versions; --save writes docs/results/versions.json, where an
engine that was not run now keeps what an earlier commit got, and says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import backends
from tests.bench.results import commit
from tests.versions.environments import ROOT, Unmade, code_digest, make
from tests.versions.rows import ENGINES, ROWS, Row
from tests.versions.table import Outcome, save, saved

FOLDER = ROOT / "out" / "versions"
PATIENCE = 3_000  # seconds for a process of tests
STEPS = "tests/versions/on_row.py"
# Releases of Spark and of libraries that were not made for each other warn of what will change.
QUIET = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def main() -> int:
    options = _options()
    by_name = {row.name: row for row in ROWS}
    chosen = [by_name[name] for name in options.rows or by_name]
    digest = code_digest()
    if options.quick:
        return max(_quick(row) for row in chosen)
    before = {} if options.save is None else saved(options.save)
    for row in chosen:
        left = [one for one in options.engines or ENGINES if one in row.engines]
        outcome = _known(row)
        if outcome is None and row.name in before:
            _keep(row, before[row.name])
        if not options.again and outcome is not None:
            left = [one for one in left if not outcome.good_for(digest, [one])]
        if not left:
            print(f"{row.name}: done before", flush=True)
            continue
        start = time.monotonic()
        outcome = _ran(row, digest, left)
        took = time.monotonic() - start
        print(f"{row.name}, {' '.join(left)}: {outcome.told}, {took:.0f} s", flush=True)
    known = before | {row.name: found for row in ROWS if (found := _known(row)) is not None}
    if options.save is not None:
        save(options.save, known)
    bad = [row.name for row in chosen if not known[row.name].good_for(digest, row.engines)]
    print(f"{len(chosen) - len(bad)} of {len(chosen)} rows passed" + f": not {bad}" * bool(bad))
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *(row.name for row in ROWS)], metavar="ROW")
    parser.add_argument("--quick", action="store_true", help="a few steps on classic Spark alone")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, help="these alone; all by default")
    parser.add_argument("--again", action="store_true", help="rows that passed, too")
    parser.add_argument("--save", type=Path, metavar="FILE", help="docs/results/versions.json")
    return parser.parse_args()


def _quick(row: Row) -> int:
    """For every build: the row's Spark runs, merges and streams; nothing is kept of it."""
    try:
        made = make(row, FOLDER / row.name)
    except Unmade as err:
        print(f"{row.name}: {err}")
        return 1
    steps = _tested(row, made.python, "classic", "spark", "test_run or test_merge or test_stream")
    found = Outcome({"classic": steps}, added=list(made.added), replaced=list(made.replaced))
    print(f"{row.platform}, Spark {row.spark}, Delta {row.delta}: {found.told}")
    return 0 if found.good else 1


def _known(row: Row) -> Outcome | None:
    path = FOLDER / f"{row.name}.json"
    return Outcome(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _ran(row: Row, digest: str, engines: Sequence[str]) -> Outcome:
    """What is found is kept engine by engine: the next time it goes on from there."""
    found = _known(row) or Outcome()
    try:
        made = make(row, FOLDER / row.name)
    except Unmade as err:
        found.problem = str(err)
        _keep(row, found)
        return found
    found.problem = None
    found.added, found.replaced = list(made.added), list(made.replaced)
    for engine in engines:
        kind, marks = ("classic", "not spark") if engine == "local" else (engine, "spark")
        found.steps[engine] = _tested(row, made.python, kind, marks)
        found.digests[engine], found.commits[engine] = digest, commit()
        _keep(row, found)
    return found


def _keep(row: Row, outcome: Outcome) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{row.name}.json"
    path.write_text(json.dumps(vars(outcome), indent=1), encoding="utf-8")


def _tested(row: Row, python: Path, kind: str, marks: str, only: str = "") -> dict[str, str]:
    """What became of every step: in a process of its own."""
    name = "quick" if only else f"{kind}-{marks.replace(' ', '-')}"
    report = FOLDER / row.name / f"{name}.xml"
    report.unlink(missing_ok=True)
    warnings = [part for text in QUIET for part in ("-W", text)]
    paths = [STEPS, "-k", only] if only else [STEPS, "tests/contract"]
    command = [str(python), "-m", "pytest", *paths, "-q", *warnings]
    command += ["-m", f"({marks}) and not slow", f"--junitxml={report}", "-p", "no:cacheprovider"]
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_REMOTE", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    with open(report.with_suffix(".log"), "w", encoding="utf-8") as log:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env
            | {backends.VARIABLE: kind, backends.FEW: "1"}
            | {"SPARK_SUBMIT_OPTS": backends.SHORT_LIVED},
            stdout=log,
            stderr=log,
            timeout=PATIENCE,
        )
    if not report.exists():
        return {"start": f"exit code {done.returncode}, see {log.name}"}
    return _steps(ET.parse(report).getroot())


def _steps(report: Any) -> dict[str, str]:
    """Step by step; the cases of the contract together; `one_then_other` is two steps."""
    found: dict[str, list[str]] = {}
    for case in report.iter("testcase"):
        ours = "versions" in case.get("classname", "")
        name = case.get("name").partition("[")[0].removeprefix("test_") if ours else "contract"
        for step in name.split("_then_"):
            found.setdefault(step, []).append(_of_case(case))
    return {step: _together(told) for step, told in found.items()}


def _of_case(case: Any) -> str:
    for kind in ("failure", "error", "skipped"):
        if (part := case.find(kind)) is not None:
            return f"{kind}: {case.get('name')}: {part.get('message', '')[:300]}"
    return "ok"


def _together(told: list[str]) -> str:
    bad = [text for text in told if not text.startswith(("ok", "skipped"))]
    good = sum(text == "ok" for text in told)
    return "; ".join(bad) if bad else f"ok ({good})" if good > 1 else "ok" if good else "-"


if __name__ == "__main__":
    sys.exit(main())

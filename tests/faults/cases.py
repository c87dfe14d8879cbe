"""What is run and disturbed: small tables in many files, and what undisturbed runs leave."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from tests.e2e.test_resume import outcome
from tests.e2e.work import configuration, scores

ROWS, FILES = 2_400, 6
COMMAND = ["run", "-c", "config.yaml"]


@dataclass(frozen=True)
class Case:
    """A configuration. merge: into a table that is there already."""

    name: str
    reconcile: dict[str, Any]
    engine: dict[str, Any] = field(default_factory=dict)
    merge: bool = False


CASES = (
    Case("every step distributed", {"eta": 0.08}, {"driver_budget": 0}),
    Case(
        "calibrated first, every step distributed",
        {"algorithm": "dc_then_redcal", "eta": 0.04, "max_steps": 5},
        {"driver_budget": 0},
    ),
    Case("read through the DataFrame", {"eta": 0.01}, {"read": "spark"}),
    Case("some events handed over", {"eta": 0.005}, {"driver_budget": 12_000}),
    Case("handed over and merged", {"eta": 0.005}, merge=True),
)


class Place:
    """A folder of inputs, and one below it for every run."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.scratch = folder / "scratch"
        table = scores(ROWS)
        for number in range(FILES):
            part = table.slice(number * ROWS // FILES, ROWS // FILES)
            write_deltalake(folder / "scores", part, mode="append")
        self._made = 0

    def prepare(self, case: Case, engine: str = "spark") -> Path:
        """A new folder in which the case can be run."""
        self._made += 1
        made = self.folder / f"run-{self._made}"
        made.mkdir()
        if case.merge:
            # some of these are in the input, the others must stay
            write_deltalake(made / "out/rows", pa.table({"case": range(500, 500 + ROWS // 2)}))
        tree = configuration(str(self.folder / "scores"))
        tree["reconcile"] |= case.reconcile
        tree["engine"] = {"name": engine, "scratch": str(self.scratch)} | case.engine
        if case.merge:
            tree["output"] |= {"mode": "merge", "schema": "evolve"}
        (made / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
        return made

    def left(self, run: Path) -> list[str]:
        """What should not be there after a run: scratch, and tables that are half made.

        Not of runs before it: a late task may make a folder of theirs anew, which the next run
        into that table removes.
        """
        scratch = sorted(self.scratch.iterdir()) if self.scratch.exists() else []
        partial = run.glob("out/.*.partial")
        return [str(path.relative_to(self.folder)) for path in (*scratch, *partial)]

    def forget(self, run: Path) -> None:
        shutil.rmtree(run)


def differences(run: Path, expected: dict[str, Any]) -> list[str]:
    """The tables in which a run differs from another one."""
    found = outcome(str(run))
    return [name for name, table in expected.items() if found[name] != table]

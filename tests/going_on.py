"""`make test-all` goes on where it stopped: on one commit, what passed is not run again.

    make test-all SAVE=docs/results/test_all.json

Outcomes are in out/test_all/COMMIT.jsonl. A commit with changes beside it is nothing to go on from.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.bench.results import ROOT, commit, save_printed
from tests.bench.timing import machine

FOLDER = ROOT / "out" / "test_all"
WORST = ("failed", "skipped", "passed")  # of a test's three phases the first of these counts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--save", metavar="FILE", help="docs/results/test_all.json")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(GoingOn(config), "redcal_going_on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = getattr(config, "workerinput", {}).get("redcal_done")
    if known is None and (here := config.pluginmanager.get_plugin("redcal_going_on")) is not None:
        known = here.done
    done = frozenset(known or ())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


class GoingOn:
    """In the process that sees all outcomes."""

    def __init__(self, config: pytest.Config) -> None:
        self._save: str | None = config.getoption("--save")
        self._commit = commit()
        self._path = FOLDER / f"{self._commit}.jsonl"
        if self._commit.endswith("+"):
            self._path.unlink(missing_ok=True)
        self._known = [json.loads(line) for line in self._lines()]
        self.done = sorted({one["test"] for one in self._known if one["outcome"] != "failed"})
        self._phases: dict[str, list[pytest.TestReport]] = {}
        FOLDER.mkdir(parents=True, exist_ok=True)

    def _lines(self) -> list[str]:
        if not self._path.exists():
            return []
        whole = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [line for line in whole if line.endswith("\n")]  # the last one may have been cut

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["redcal_done"] = self.done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when in ("setup", "call"):  # else its end, or that of a process that died
            return
        found = {phase.outcome for phase in phases}
        outcome = next(one for one in WORST if one in found)
        seconds = round(sum(phase.duration for phase in phases), 3)
        line = {"test": report.nodeid, "outcome": outcome, "seconds": seconds}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._known.append(line)
        del self._phases[report.nodeid]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.done:
            session.exitstatus = pytest.ExitCode.OK  # all of it passed before

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        last = {one["test"]: one["outcome"] for one in self._known}
        count = Counter(last.values())
        hours = sum(one["seconds"] for one in self._known) / 3_600
        told = [
            ", ".join(f"{count[outcome]:,} {outcome}" for outcome in reversed(WORST))
            + f"; {hours:.1f} hours of tests, three at a time",
            *(f"failed: {test}" for test, outcome in sorted(last.items()) if outcome == "failed"),
        ]
        terminalreporter.section("all of this commit, with what ran before")
        terminalreporter.write_line("\n".join(told))
        if self._save is not None:
            text = "\n".join(told)
            save_printed(Path(self._save), "make test-all", machine(), text, self._commit)

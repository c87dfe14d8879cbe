"""Runs that are disturbed at seeded moments, and what came of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests import backends
from tests.e2e.test_resume import outcome
from tests.faults.cases import CASES, COMMAND, Case, Place, differences
from tests.faults.network import Network, network
from tests.faults.processes import (
    ROOT,
    Driver,
    executors,
    fetch_jars,
    stopped,
    wait_for_executors,
)

Kind = Literal["executor", "worker", "driver", "network"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WORKER_TIMEOUT = 15  # seconds until the master gives up a worker
CUTS = (3.0, 25.0)  # some are mended before anyone gives anyone up
PATIENCE = 900.0  # seconds for a run, on a machine that has other things to do


@dataclass(frozen=True)
class Kill:
    """moment: as a part of the time that the run takes undisturbed. cut: seconds."""

    kind: Kind
    case: Case
    worker: int
    moment: float
    cut: float


def planned(seed: int, kills: int) -> list[Kill]:
    """The kinds take turns, in a random order; all else is drawn."""
    rng = random.Random(seed)
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    rng.shuffle(kinds)
    return [
        Kill(kind, rng.choice(CASES), rng.randrange(2), rng.uniform(0.02, 0.98), rng.uniform(*CUTS))
        for kind in kinds
    ]


@dataclass
class Told:
    """What came of it all."""

    how: str
    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    late: int = 0  # runs that ended before they were struck, and were made again
    resumed: int = 0
    again: int = 0  # runs that had to be started from the beginning, or had nothing left to do
    lost: float = 0.0  # seconds
    problems: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        through = sum(self.kills.values()) - self.resumed - self.again
        return [
            f"{self.runs} runs, {sum(self.kills.values())} kills: {kinds} ({self.how})",
            f"{through} runs went through, {self.resumed} were resumed from a part of their log, "
            f"{self.again} were run again; {self.late} more had ended before they were struck",
            f"{self.lost:.0f} s lost; {len(self.problems)} differences",
        ]


class Site:
    """A cluster whose parts are killed and come back, and its driver."""

    def __init__(self, found: backends.Cluster, net: Network, folder: Path):
        self._cluster = found
        self._net = net
        self._folder = folder
        self.drivers = [self._driver()]

    @property
    def driver(self) -> Driver:
        return self.drivers[0]

    def _driver(self) -> Driver:
        return Driver(self._cluster, self._net.hosts[0], self._folder)

    def ready(self) -> None:
        """All that was killed is there again."""
        for number, worker in enumerate(self._cluster.workers):
            if worker.poll() is not None:
                self._cluster.restart(number)
        if not wait_for_executors(self._cluster):  # a driver may have given up asking
            self.driver.stop()
            self.drivers[:] = [self._driver()]
            assert wait_for_executors(self._cluster), "the cluster did not come back"

    def strike(self, kill: Kill) -> Callable[[], None]:
        """Returns what ends it: a cut must be mended."""
        worker = self._cluster.workers[kill.worker]
        if kill.kind == "driver":
            self.driver.kill()
            return lambda: None
        if kill.kind == "network":
            there = [*executors(worker.pid), worker.pid]
            self._net.cut(kill.worker, there)
            return lambda: self._net.mend(kill.worker, there)
        for process in executors(worker.pid) if kill.kind == "executor" else [worker.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if kill.kind == "worker":
            worker.wait()
        return lambda: None

    def restart_driver(self) -> None:
        self.drivers[:] = [self._driver()]


@contextmanager
def started(folder: Path) -> Iterator[tuple[Site, str]]:
    fetch_jars()
    with ExitStack() as stack:
        net = stack.enter_context(network())
        options = [f"-Dspark.worker.timeout={WORKER_TIMEOUT}"]
        found = stack.enter_context(backends.cluster(folder, net.hosts, options))
        made = Site(found, net, folder)
        stack.enter_context(stopped(made.drivers))
        yield made, net.how


class Trial:
    """Undisturbed runs first, then the others."""

    def __init__(self, site: Site, place: Place, how: str, say: Callable[[str], None]):
        self.site = site
        self.place = place
        self.told = Told(how)
        self.say = say
        self._known: dict[str, tuple[int, dict[str, Any], float]] = {}

    def undisturbed(self, case: Case) -> tuple[int, dict[str, Any], float]:
        """Exit code, tables and seconds; the local engine's must be the same."""
        if case.name not in self._known:
            run = self.place.prepare(case, "local")
            code = locally(run)
            left = outcome(str(run))
            self.place.forget(run)
            for _ in range(2):  # the first one waits for much to be loaded
                run = self.place.prepare(case)
                self.site.ready()
                start = time.monotonic()
                self.site.driver.ask(run, COMMAND)
                ended = self.site.driver.code(PATIENCE)
                seconds = time.monotonic() - start
                self._compare(f"undisturbed, {case.name}", run, ended, code, left)
            self._known[case.name] = code, left, seconds
            self.say(f"{case.name}: {seconds:.1f} s undisturbed, {len(left['patches'])} patches")
        return self._known[case.name]

    def disturbed(self, kill: Kill) -> None:
        code, left, usual = self.undisturbed(kill.case)
        while True:
            run = self.place.prepare(kill.case)
            self.site.ready()
            start = time.monotonic()
            self.site.driver.ask(run, COMMAND)
            if self.site.driver.code(kill.moment * usual) is None:
                break
            self.told.late += 1
            usual = time.monotonic() - start  # runs grow quicker as a session grows older
            self.place.forget(run)
        self.told.kills[kill.kind] += 1
        ended, how = self._ended(kill, run, code)
        seconds = time.monotonic() - start
        self.told.lost += max(0.0, seconds - usual)
        what = f"{kill.kind} at {kill.moment:.2f} of {kill.case.name}"
        if kill.kind == "network":
            what += f", for {kill.cut:.0f} s"
        self._compare(what, run, ended, code, left)
        self.say(f"{what}: {how}, {seconds:.1f} s")

    def _ended(self, kill: Kill, run: Path, code: int) -> tuple[int | None, str]:
        """Strike and see the run through; if it dies or fails, the same command goes on with it."""
        after = self.site.strike(kill)
        try:
            if kill.kind == "driver":
                self.site.restart_driver()
                ended = None
            else:
                ended = self._wait(kill, after)
        finally:
            after()
        if ended == code:
            return ended, "went through"
        if ended is None and kill.kind != "driver":
            self.told.problems.append(f"{kill}: no end within {PATIENCE:.0f} s")
            self.site.driver.kill()
            self.site.restart_driver()
        said = self.site.driver.said
        before = said.stat().st_size
        self.site.ready()
        self.site.driver.ask(run, COMMAND)
        ended = self.site.driver.code(PATIENCE)
        told = said.read_bytes()[before:]
        resumed = b"continuing run" in told and b" after 0 patches" not in told
        self.told.resumed += resumed
        self.told.again += not resumed
        return ended, "resumed" if resumed else "run again"

    def _wait(self, kill: Kill, after: Callable[[], None]) -> int | None:
        if kill.kind == "network":
            ended = self.site.driver.code(kill.cut)
            if ended is not None:
                return ended
            after()
        return self.site.driver.code(PATIENCE)

    def _compare(
        self, what: str, run: Path, code: int | None, expected: int, left: dict[str, Any]
    ) -> None:
        self.told.runs += 1
        wrong = [] if code == expected else [f"exit code {code} instead of {expected}"]
        if not wrong:
            wrong = [f"other {name}" for name in differences(run, left)]
        wrong += [f"left behind: {name}" for name in self.place.left(run)]
        if wrong:
            said = self.site.driver.said.read_text(errors="replace")[-2_000:]
            self.told.problems.append(f"{what}: {'; '.join(wrong)} ({run})\n{said}")
            self.say(f"WRONG {self.told.problems[-1]}")
        else:
            self.place.forget(run)


def locally(run: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "redcal_spark.cli", *COMMAND, "--engine", "local"],
        cwd=run,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.returncode


def explore(kills: Sequence[Kill], folder: Path, say: Callable[[str], None]) -> Told:
    """Kill after kill, each in a run of its own."""
    place = Place(folder)
    with started(folder) as (site, how):
        say(f"the network: {how}")
        trial = Trial(site, place, how, say)
        for kill in kills:
            trial.disturbed(kill)
        return trial.told

"""Drawing cases with hypothesis and running them."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import TARGETS
from tests.fuzz.harness import Case, Result, Worker

CHUNK = 500  # examples: hypothesis remembers them all


@dataclass
class Seen:
    """What came of the cases so far; of each kind of problem the smallest case."""

    cases: int = 0
    codes: Counter[int | None] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Case] = field(default_factory=dict)
    slowest: float = 0.0
    largest: int = 0

    def add(self, case: Case, result: Result) -> None:
        self.cases += 1
        self.codes[result.code] += 1
        if result.seconds > self.slowest:
            self.slowest = result.seconds
        self.largest = max(self.largest, result.peak)
        for problem in result.problems:
            kind = re.sub(r"0x[0-9a-f]+|\d+", "N", problem)[:120]
            self.problems[kind] += 1
            known = self.examples.get(kind)
            if known is None or len(case.to_line()) < len(known.to_line()):
                self.examples[kind] = case


def explore(target: str, cases: int, start: int, worker: Worker, seen: Seen) -> None:
    """Run so many cases, whatever comes of them."""
    for chunk in range(-(-cases // CHUNK)):
        count = min(CHUNK, cases - chunk * CHUNK)

        @seed(start * 1_000_003 + chunk)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(TARGETS[target])
        def run(case: Case) -> None:
            seen.add(case, worker.run(case))

        with warnings.catch_warnings():
            # a case is made of a model, for whose file the standard library draws a name
            warnings.filterwarnings("ignore", message="Do not use the `random` module")
            run()

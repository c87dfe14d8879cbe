"""Times, best of several interleaved repeats, and the table that tells them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from redcal_spark.backends.threads import blas

HEADINGS = ("what", "measured", "baseline", "ratio", "target", "met?")


@dataclass(frozen=True)
class Ratio:
    """One line of the table; `measured` and `baseline` in seconds of whatever `what` says.

    sense: "times quicker" is baseline / measured, "times the cost" is measured / baseline.
    """

    what: str
    measured: float
    baseline: float
    sense: Literal["quicker", "cost"]
    target: float | None = None
    digits: int = 2

    @property
    def value(self) -> float:
        if self.sense == "quicker":
            return self.baseline / self.measured
        return self.measured / self.baseline

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.sense == "quicker" else self.value <= self.target

    def cells(self) -> tuple[str, ...]:
        bound = "at least" if self.sense == "quicker" else "at most"
        return (
            self.what,
            seconds(self.measured),
            seconds(self.baseline),
            f"{self.value:.{self.digits}f}x",
            "-" if self.target is None else f"{bound} {self.target:g}x",
            {None: "-", True: "yes", False: "NO"}[self.met],
        )


@dataclass(frozen=True)
class Result:
    """The lines of one measurement and what must be said about them."""

    ratios: Sequence[Ratio]
    notes: Sequence[str] = ()


def best(work: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least seconds of each; in turns, so that noise hits them alike."""
    least = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, run in work.items():
            least[name] = min(least[name], timed(run))
    return least


def timed(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def table(ratios: Sequence[Ratio]) -> str:
    rows = [HEADINGS, *(ratio.cells() for ratio in ratios)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = {f"{x['internal_api']} {x['version']}" for x in blas().info()}
    return (
        f"{os.cpu_count()} cores, {gib:.0f} GiB, {_cpu()}; load {os.getloadavg()[0]:.1f}; "
        f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"{', '.join(sorted(libraries))}, {sys.platform}"
    )


def _cpu() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in told.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()

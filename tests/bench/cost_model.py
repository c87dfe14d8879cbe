"""What a fit costs on a cluster: fitted to measured passes, used for sizes nobody tried.

seconds of a pass = latency + per_byte * bytes / cores + per task what the driver spends on it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Spark's defaults: how large the share of a task is, at most and at least.
TASK_BYTES, SMALL_TASK = 128 * 2**20, 4 * 2**20


@dataclass(frozen=True)
class Measured:
    """A pass over so much (bytes or rows), on so many cores."""

    amount: float
    cores: int
    seconds: float


@dataclass(frozen=True)
class Line:
    """seconds = latency + each * amount / cores. error: the mean relative one of the fit."""

    latency: float
    each: float
    error: float = 0.0

    def seconds(self, amount: float, cores: float) -> float:
        return self.latency + self.each * amount / cores


def fitted(points: Sequence[Measured]) -> Line:
    """By least squares of relative errors, so that short passes count like long ones.

    Of points that are all of one size nothing is learnt about latency: it is 0 then, and never
    below.
    """
    if not points:
        raise ValueError("no passes to fit the cost to")
    seconds = np.array([p.seconds for p in points])
    load = np.array([p.amount / p.cores for p in points])
    both = np.stack([np.ones_like(load), load], axis=1) / seconds[:, None]
    ones = np.ones(len(points))
    if np.ptp(load) > 1e-9 * load.max():
        latency, each = np.linalg.lstsq(both, ones, rcond=None)[0]
    else:
        latency, each = -1.0, 0.0
    if latency < 0:
        latency, each = 0.0, np.linalg.lstsq(both[:, 1:], ones, rcond=None)[0][0]
    off = (latency + each * load) / seconds - 1
    return Line(float(latency), float(each), float(np.abs(off).mean()))


@dataclass(frozen=True)
class Workload:
    """What is assumed of the rows and of the fit.

    rounds: per round the share of rows in its event, and how many calibration patches follow.
    """

    active: float  # share of rows
    row_bytes: int  # of a packed row
    table_bytes: int  # of a row in its files
    rounds: tuple[tuple[float, int], ...]
    driver_budget: int


@dataclass(frozen=True)
class CostModel:
    """scan: by rows. passes: by bytes. holdout: by active rows. handed: by bytes of chosen events.

    What is handed over is read and patched by the driver alone.

    task: seconds that the driver spends on every task of a job, one after the other.
    job: seconds that a cluster takes more than one machine to start a job; assumed, not measured.
    """

    scan: Line
    passes: Line
    holdout: Line
    handed: Line
    task: float
    job: float = 0.0

    def pass_seconds(self, size: float, cores: int) -> float:
        tasks = tasks_of(size, cores)
        return self.job + self.passes.seconds(size, min(cores, tasks)) + self.task * tasks

    def fit_seconds(self, rows: float, cores: int, work: Workload) -> float:
        """The scan, and the rounds: at the driver, or where Spark keeps the rows.

        Rows that fall out of all events stay in, as if nothing were rewritten. Totals follow at
        the driver, so that there is a pass after the fit only if some event did not fit.
        """
        tasks = tasks_of(rows * work.table_bytes, cores)
        active = rows * work.active * work.row_bytes
        total = self.job + self.scan.seconds(rows, min(cores, tasks)) + self.task * tasks
        total += self.handed.latency
        spread = False
        for share, calibrations in work.rounds:
            event = rows * share * work.row_bytes
            if event <= work.driver_budget:
                total += self.handed.each * event
                continue
            spread = True
            total += 2 * self.pass_seconds(active, cores)  # count the events, take one out
            total += (1 + calibrations) * self.pass_seconds(event, cores)
        if not spread:
            return total
        used = min(cores, tasks_of(active, cores))
        return total + self.job + self.holdout.seconds(rows * work.active, used)


def tasks_of(size: float, cores: int) -> int:
    """How many tasks Spark makes of so many bytes on so many cores."""
    share = min(TASK_BYTES, max(SMALL_TASK, size / max(cores, 1)))
    return max(1, int(-(-size // share)))

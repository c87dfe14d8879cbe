"""The numeric core on rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from redcal_spark import Reconciler
from redcal_spark.algorithms.decision_calibration import decision_calibration
from redcal_spark.algorithms.redcal import redcal
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.blocks import Block, label_rows
from redcal_spark.engines.local import LocalEngine
from redcal_spark.fixed_point import ONE, Floats, from_grid
from redcal_spark.kernel import CHUNK, Rules, Scan, scan
from redcal_spark.losses import LossFamily
from redcal_spark.parallel import ordered
from redcal_spark.parameters import Parameters
from redcal_spark.reconciler import rules_of
from redcal_spark.tables import BATCH
from tests.bench import data, plain
from tests.bench.timing import Ratio, Result, best, timed

ALPHA, ETA, BETA = 1e-3, 1e-2, 1e-5


@dataclass(frozen=True)
class Sizes:
    rows: int = 1_000_000
    repeats: int = 7
    fits: int = 2  # repeats of what takes long
    calibrated: tuple[int, int] = (4_000, 100)
    steps: int = 20_000  # at most


QUICK = Sizes(rows=20_000, repeats=1, fits=1, calibrated=(300, 20), steps=40)


class Work:
    """Rows, losses and parameters, scanned and fitted on one thread unless said."""

    def __init__(self, block: Block, losses: LossFamily, parameters: Parameters):
        self.block, self.losses, self.parameters = block, losses, parameters
        self.rules: Rules = rules_of(parameters, losses, binary=False)
        self.everywhere = parameters.algorithm == "decision_calibration"

    def scan(self, threads: int = 1) -> list[Scan]:
        pieces = self.block.pieces(BATCH)
        return list(ordered(lambda p: scan(p, self.rules, self.everywhere), pieces, threads))

    def run(self, scans: Sequence[Scan]) -> Trajectory:
        resolved = self.parameters.resolve(self.block.rows, self.block.n_classes)
        run = Trajectory(self.parameters, resolved, self.losses)
        engine = LocalEngine(scans, self.rules, threads=1)
        try:
            (decision_calibration if self.everywhere else redcal)(engine, run)
        finally:
            engine.close()
        return run

    def fit(self) -> Trajectory:
        return self.run(self.scan())


def ten_by_ten(sizes: Sizes, losses: int = 1) -> Work:
    """The rows most measurements share: ten classes, ten actions."""
    parameters = Parameters(alpha=ALPHA, eta=ETA, beta=BETA, max_steps=sizes.steps)
    return Work(data.block(sizes.rows, 10), data.losses(losses, 10), parameters)


def fit(sizes: Sizes) -> Result:
    """A fit against plain numpy: the same patches, nothing recomputed."""
    work = ten_by_ten(sizes)
    block, loss = work.block, work.losses[0]
    assert block.y is not None
    scores = from_grid(block.f1), from_grid(block.f2)
    labels = label_rows(block.y, block.n_classes) / ONE
    m = work.parameters.resolve(block.rows, block.n_classes).m

    public = Reconciler(
        losses=work.losses, alpha=ALPHA, eta=ETA, beta=BETA, max_steps=sizes.steps, threads=1
    )
    ours: dict[str, Callable[[], object]] = {
        "grid": work.fit,
        "public": lambda: public.fit(*scores, block.y),
    }
    times = best(ours, sizes.fits + 1)
    step_times: list[list[float]] = []
    for _ in range(sizes.fits):
        loop = plain.redcal(
            scores, labels, loss.quantised / 2.0**loss.bits, alpha=ALPHA, eta=ETA, beta=BETA, m=m
        )
        step_times.append(_each(lambda loop=loop: next(loop, None), sizes.steps))  # type: ignore[misc]
        times = {name: min(t, times[name]) for name, t in best(ours, sizes.fits + 1).items()}
    baseline = sum(map(min, zip(*step_times, strict=True)))

    run = work.fit()
    active = sum(s.active.rows for s in work.scan())
    shape = f"{sizes.rows:,} rows, d = K = 10, one loss"
    return Result(
        [
            Ratio(f"fit: scan and patches, {shape}", times["grid"], baseline, "quicker", 30, 0),
            Ratio(
                "fit: the same from float64 arrays, validated and measured (Reconciler.fit)",
                times["public"],
                baseline,
                "quicker",
                digits=0,
            ),
        ],
        [
            f"fit: baseline is plain float64 numpy, which makes {len(step_times[0]) - 1} patches "
            f"in the same {len(step_times[0]) - 1} steps; every step the best of {sizes.fits}; "
            f"ours makes {len(run.patches)} in {run.rounds} rounds; {active / sizes.rows:.0%} of "
            "the rows are active",
        ],
    )

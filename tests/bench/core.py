"""The numeric core on rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter

import numpy as np
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.algorithms.decision_calibration import decision_calibration
from redcal_spark.algorithms.redcal import redcal
from redcal_spark.algorithms.trajectory import Trajectory
from redcal_spark.backends.local.engine import LocalEngine
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.backends.threads import blas, ordered
from redcal_spark.core.arrow import BATCH, batches
from redcal_spark.core.blocks import Block, label_rows
from redcal_spark.core.fixed_point import ONE, Floats, from_grid
from redcal_spark.core.kernel import CHUNK, BlockScan, Rules, scan
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import rules_of
from redcal_spark.core.scan import each_alone
from tests.bench import data, plain
from tests.bench.timing import Ratio, Result, best, seconds

ALPHA, ETA, BETA = 1e-3, 1e-2, 1e-5
PRODUCTS = 1_000  # timed at once


@dataclass(frozen=True)
class Sizes:
    rows: int = 1_000_000
    repeats: int = 7
    fits: int = 2  # repeats of what takes long
    calibrated: tuple[int, int] = (4_000, 100)
    steps: int = 20_000  # at most
    ten_loss_steps: int = 600  # at most: to the end there are tens of thousands


QUICK = Sizes(rows=20_000, repeats=1, fits=1, calibrated=(300, 20), steps=40, ten_loss_steps=40)


class Work:
    """Rows, losses and parameters, scanned and fitted on one thread unless said."""

    def __init__(self, block: Block, losses: LossFamily, parameters: Parameters):
        self.block, self.losses, self.parameters = block, losses, parameters
        self.rules: Rules = rules_of(parameters, losses, binary=False, models=len(block.f))
        self.everywhere = parameters.algorithm == "decision_calibration"

    def scan(self, threads: int = 1) -> list[BlockScan]:
        pieces = self.block.pieces(BATCH)
        return list(ordered(lambda p: scan(p, self.rules, self.everywhere), pieces, threads))

    def run(self, scans: Sequence[BlockScan]) -> Trajectory:
        resolved = self.parameters.resolve(self.block.rows, self.block.n_classes)
        run = Trajectory(self.parameters, resolved, self.losses)
        engine = LocalEngine(scans, self.block.rows, self.rules, threads=1)
        try:
            (decision_calibration if self.everywhere else redcal)(engine, run)
        finally:
            engine.close()
        return run

    def fit(self) -> Trajectory:
        return self.run(self.scan())


def ten_by_ten(sizes: Sizes, losses: int = 1, steps: int | None = None) -> Work:
    """The rows most measurements share: ten classes, ten actions."""
    parameters = Parameters(alpha=ALPHA, eta=ETA, beta=BETA, max_steps=steps or sizes.steps)
    return Work(data.block(sizes.rows, 10), data.losses(losses, 10), parameters)


def fit(sizes: Sizes) -> Result:
    """A fit against plain numpy that makes the same patches."""
    work = ten_by_ten(sizes)
    block, loss = work.block, work.losses[0]
    assert block.y is not None
    y, labels = block.y, label_rows(block.y, block.n_classes) / ONE
    scores = from_grid(block.f[0]), from_grid(block.f[1])
    costs = loss.quantised / 2.0**loss.bits
    m = work.parameters.resolve(block.rows, block.n_classes).m
    public = Reconciler(
        losses=work.losses, alpha=ALPHA, eta=ETA, beta=BETA, max_steps=sizes.steps, threads=1
    )
    steps: list[list[float]] = []

    def plainly() -> None:
        loop = plain.redcal(scores, labels, costs, alpha=ALPHA, eta=ETA, beta=BETA, m=m)
        steps.append(times_between(islice(loop, sizes.steps)))

    repeats: dict[str, Callable[[], object]] = {f"ours {i}": work.fit for i in range(sizes.repeats)}
    repeats |= {"public": lambda: public.fit(*scores, y), "plain": plainly}
    times = best(repeats, sizes.fits)
    ours = min(time for name, time in times.items() if name.startswith("ours"))
    baseline = sum(map(min, *steps)) if len(steps) > 1 else sum(steps[0])

    scans = work.scan()
    run = work.run(scans)
    active = sum(s.active.rows for s in scans) / block.rows
    what = f"fit (scan, patches): {block.rows:,} rows, d = K = 10, one loss"
    same = "the same from float64 arrays, checked and measured: Reconciler.fit"
    return Result(
        [
            Ratio(what, ours, baseline, "quicker", 30, 0),
            Ratio(same, times["public"], baseline, "quicker", None, 0),
        ],
        [
            f"fit: the baseline is plain float64 numpy, {len(steps[0]) - 1} patches, each step "
            f"at its best of {sizes.fits}; ours, at its best of {sizes.fits * sizes.repeats} "
            f"whole fits, makes {len(run.patches)} patches in "
            f"{run.rounds} rounds; {active:.0%} of the rows are active",
        ],
    )


def scanning(sizes: Sizes) -> Result:
    """The scan of both models against their two bare products."""
    work = ten_by_ten(sizes)
    rows = [x.astype(np.float64) for x in work.block.f]
    weights = work.losses.groups[0].centred
    times = best({"scan": work.scan, "bare": bare_products(rows, weights)}, sizes.repeats)
    what = f"scan: {sizes.rows:,} rows, d = K = 10, against the two bare float64 products"
    return Result([Ratio(what, times["scan"], times["bare"], "cost", 4.5)])


def weighted(sizes: Sizes) -> Result:
    """A fit of weighted rows against the same rows without weights."""
    work = ten_by_ten(sizes)
    y, scores = work.block.y, [from_grid(f) for f in work.block.f]
    w = np.random.default_rng(5).integers(1, 9, sizes.rows)
    public = Reconciler(
        losses=work.losses, alpha=ALPHA, eta=ETA, beta=BETA, max_steps=200, threads=1
    )
    times = best(
        {
            "weighted": lambda: public.fit(scores[0], scores[1], y, weight=w),
            "bare": lambda: public.fit(scores[0], scores[1], y),
        },
        sizes.fits,
    )
    what = f"fit with weights: {sizes.rows:,} rows, d = K = 10, against the rows without"
    return Result([Ratio(what, times["weighted"], times["bare"], "cost")])


def many_models(sizes: Sizes) -> Result:
    """The whole scan of 4 and 8 models against that of two: reading, actions, events, sums."""
    family, active = data.losses(1, 10), {}
    runs: dict[str, Callable[[], None]] = {}
    for models in (2, 4, 8):
        table = data.many_models(sizes.rows // 4, 10, models)
        names = [f"model_{i}" for i in range(1, models + 1)]
        made = Reconciler(losses=family, alpha=ALPHA, eta=ETA, beta=BETA, models=names, threads=1)

        def run(table: pa.Table = table, made: Reconciler = made, models: int = models) -> None:
            pieces = each_alone(batches(table))
            found, _ = gather_pieces(made.problem, pieces, table.schema, "rows", threads=1)
            active[models] = sum(block.rows for block in found.fit.active) / len(table)

        runs[str(models)] = run
    times = best(runs, sizes.repeats)
    what = (
        f"scan: {sizes.rows // 4:,} rows, d = K = 10, {{}} models against two, per pair of models"
    )
    ratios = [
        Ratio(what.format(m), times[str(m)] / (m / 2), times["2"], "cost", 1.15) for m in (4, 8)
    ]
    shares = ", ".join(f"{share:.0%} with {models}" for models, share in active.items())
    return Result(ratios, [f"models: measured is the time over M / 2; active rows: {shares}"])


def threads(sizes: Sizes) -> Result:
    """The scan on two cores, by threads and by processes that share nothing."""
    work = ten_by_ten(sizes)
    work.scan(2)  # what is made once is there before the fork
    with _forked(work) as on_processes:
        times = best(
            {
                "one": lambda: work.scan(1),
                "threads": lambda: work.scan(2),
                "processes": on_processes,
            },
            9 * sizes.repeats,
        )
    measured = [
        Ratio(f"scan: two {how} against one", times[how], times["one"], "quicker", target)
        for how, target in (("threads", 1.4), ("processes", None))
    ]
    return Result(
        measured,
        [
            "threads: two processes share neither lock nor memory and send nothing back, so that "
            "their ratio is what the machine has to give just now"
        ],
    )


@contextmanager
def _forked(work: Work) -> Iterator[Callable[[], None]]:
    """The scan on two processes, each on every other piece; results are thrown away."""
    pieces, fork, ends = work.block.pieces(BATCH), get_context("fork"), []

    def serve(end: Connection, mine: Sequence[Block]) -> None:
        with blas().limit(limits=1, user_api="blas"):
            while end.recv():
                for piece in mine:
                    scan(piece, work.rules, work.everywhere)
                end.send(True)

    for first in range(2):
        near, far = fork.Pipe()
        fork.Process(target=serve, args=(far, pieces[first::2]), daemon=True).start()
        ends.append(near)

    def go() -> None:
        for end in ends:
            end.send(True)
        for end in ends:
            end.recv()

    yield go
    for end in ends:
        end.send(False)


def calibration(sizes: Sizes) -> Result:
    """A step of Decision Calibration everywhere against one product of all rows with the loss."""
    n, d = sizes.calibrated
    parameters = Parameters(algorithm="decision_calibration", beta=BETA, max_steps=sizes.steps)
    work = Work(data.sharp_block(n, d), data.losses(1, d), parameters)
    scans = work.scan()
    run = work.run(scans)
    steps = len(run.patches)

    def again() -> None:
        assert len(work.run(scans).patches) == steps

    rows, weights = work.block.f[0].astype(np.float64), work.losses.groups[0].centred
    tall, wide = np.empty((n, len(weights))), np.empty((len(weights), n))

    def products(one: Callable[[], object]) -> Callable[[], None]:
        def many() -> None:
            for _ in range(PRODUCTS):
                one()

        return many

    times = best(
        {
            "step": again,
            "tall": products(lambda: np.dot(rows, weights.T, out=tall)),
            "wide": products(lambda: np.dot(weights, rows.T, out=wide)),
        },
        sizes.fits + 1,
    )
    product = min(times["tall"], times["wide"]) / PRODUCTS
    touched = sum(patch.rows for patch in run.patches) / steps
    what = f"Decision Calibration: a step on {n:,} rows, d = {d}, K = 10, against their product"
    return Result(
        [Ratio(what, times["step"] / steps, product, "cost", 1)],
        [
            f"Decision Calibration: mean of {steps:,} steps, {touched:,.0f} rows touched in each; "
            "the product is that of the better of the two memory layouts"
        ],
    )


def ten_losses(sizes: Sizes) -> Result:
    """Ten losses against one: the scan, and patching per patched row."""
    works = {count: ten_by_ten(sizes, count, sizes.ten_loss_steps) for count in (1, 10)}
    scans = {count: work.scan() for count, work in works.items()}
    logs = {count: work.run(scans[count]).patches for count, work in works.items()}

    def again(count: int) -> None:
        assert len(works[count].run(scans[count]).patches) == len(logs[count])

    times = best({f"scan {c}": work.scan for c, work in works.items()}, sizes.repeats)
    times |= best({f"run {c}": partial(again, c) for c in works}, sizes.fits + 1)
    touched = {c: sum(patch.rows for patch in log) for c, log in logs.items()}
    each = {c: times[f"run {c}"] / touched[c] for c in works}
    told = "; ".join(
        f"{c}: {len(log):,} patches of {touched[c] / len(log):,.0f} rows in "
        f"{seconds(times[f'run {c}'])}"
        for c, log in logs.items()
    )
    scanned = "ten losses: scan, against one loss"
    patched = "ten losses: per patched row, against one loss"
    return Result(
        [
            Ratio(scanned, times["scan 10"], times["scan 1"], "cost", 9),
            Ratio(patched, each[10], each[1], "cost", 10),
        ],
        [
            f"ten losses: fits without the scan, at most {sizes.ten_loss_steps:,} patches; "
            f"by number of losses {told}"
        ],
    )


def times_between(steps: Iterator[object]) -> list[float]:
    """Seconds until each step, and from the last one to the end."""
    marks = [perf_counter()]
    marks += [perf_counter() for _ in steps]
    marks.append(perf_counter())
    return np.diff(marks).tolist()


def bare_products(models: Sequence[Floats], weights: Floats) -> Callable[[], None]:
    """The products of rows already in float64, chunk by chunk, into memory already there."""
    out = np.empty((CHUNK, len(weights)))

    def go() -> None:
        for start in range(0, len(models[0]), CHUNK):
            for rows in models:
                chunk = rows[start : start + CHUNK]
                np.dot(chunk, weights.T, out=out[: len(chunk)])

    return go


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {
    "fit": fit,
    "scan": scanning,
    "weights": weighted,
    "models": many_models,
    "threads": threads,
    "calibration": calibration,
    "losses": ten_losses,
}

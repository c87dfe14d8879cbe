"""What holdout rows say: sums and intervals by a plain reading of the specification, row by row."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from redcal_spark import ReconciledPair
from redcal_spark.backends.spark.cells import row
from redcal_spark.backends.spark.tasks import HistoryTask
from redcal_spark.certificate.certify import Certificate, Check, certify
from redcal_spark.certificate.intervals import Interval, Level
from redcal_spark.core.blocks import Block
from redcal_spark.core.history import Holdout, Measured, Point, added, history, points, segments
from redcal_spark.core.kernel import Rules
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.metrics import measure
from redcal_spark.core.packing import packed_parts, unpack_changes
from redcal_spark.core.paired import Moments, Paired, Range, brier_ranges
from redcal_spark.core.patches import Patch
from redcal_spark.core.rows import Rows
from tests import oracle, problems
from tests.helpers import fit_gathered, gathered, reordered, seeds
from tests.oracle import ALGORITHMS, ONE, Problem

# --- a plain reading of DESIGN 2.9 ----------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """The differences of a statement, row by row, and the length of the interval they lie in.

    mean: of the weights, where rows have some: then values are w x, of the rows with w > 0.
    """

    x: list[Fraction]
    r: Fraction
    mean: Fraction = Fraction(1)

    @classmethod
    def of(cls, problem: Problem, x: list[Fraction], r: Fraction) -> Plain:
        w = oracle.weights(problem)
        counted = [k for k in w if k]
        values = [k * value for k, value in zip(w, x, strict=True) if k]
        return cls(values, max(counted) * r, Fraction(sum(counted), len(counted)))

    @property
    def unit(self) -> Fraction:
        """R 2^-26, R the least power of two that is at least r / 2."""
        size = Fraction(1)
        while size >= self.r and self.r:
            size /= 2
        while size < self.r / 2:
            size *= 2
        return size / 2**26

    def z(self) -> list[int]:
        found = [floor(x / self.unit) if self.r else 0 for x in self.x]
        assert all(abs(z) <= 2**26 for z in found)
        return found

    def ends(self, each: Fraction) -> tuple[Decimal, Decimal]:
        """Empirical Bernstein from z, at d', to 50 digits."""
        z, n = self.z(), len(self.x)
        with localcontext(Context(prec=50)):

            def decimal(x: Fraction) -> Decimal:
                return Decimal(x.numerator) / Decimal(x.denominator)

            mean = Fraction(sum(z), n)
            squares = sum(((k - mean) ** 2 for k in z), Fraction(0))
            v = squares / (n - 1) * self.unit**2
            ln = decimal(4 / each).ln()
            half = (2 * decimal(v) * ln / n).sqrt() + 7 * decimal(self.r) * ln / (3 * (n - 1))
            half += decimal(self.unit)
            centre = decimal(mean * self.unit)
            weight = decimal(self.mean)
            return (centre - half) / weight, (centre + half) / weight


def scores_at(problem: Problem, log: list[dict[str, Any]], steps: int) -> dict[int, oracle.Grid]:
    f1, f2 = oracle.replay(problem, log[:steps])
    return {1: f1, 2: f2}


def loss_differences(
    problem: Problem, log: list[dict[str, Any]], name: str, model: int, start: int, end: int
) -> Plain:
    y, costs = oracle.grid_labels(problem), oracle.quantise_loss(problem.losses[name])
    unit = ONE * 2 ** oracle.loss_bits(len(y[0]))

    def cost(f: list[int], label: list[int]) -> Fraction:
        action = oracle.argmin(oracle.action_scores(costs, f))
        return Fraction(oracle.dot(costs[action], label), unit)

    before, after = (scores_at(problem, log, steps)[model] for steps in (start, end))
    x = [cost(b, t) - cost(a, t) for a, b, t in zip(before, after, y, strict=True)]
    columns = list(zip(*costs, strict=True))
    if vectors(problem):
        gaps = [[max(0, p - q) for p, q in zip(a, b, strict=True)] for a in costs for b in costs]
        r = 2 * Fraction(max(map(sum, gaps)), 2 ** oracle.loss_bits(len(y[0])))
    else:
        r = 2 * Fraction(max(max(c) - min(c) for c in columns), 2 ** oracle.loss_bits(len(y[0])))
    return Plain.of(problem, x, r)


def brier_differences(problem: Problem, log: list[dict[str, Any]], model: int, end: int) -> Plain:
    y = oracle.grid_labels(problem)
    before, after = (scores_at(problem, log, steps)[model] for steps in (0, end))

    def brier(f: list[int], label: list[int]) -> Fraction:
        return Fraction(sum((a - b) ** 2 for a, b in zip(f, label, strict=True)), ONE**2)

    x = [brier(a, t) - brier(b, t) for a, b, t in zip(before, after, y, strict=True)]
    d = len(y[0])
    moved = [0] * d
    for patch in log[:end]:
        if patch["model"] == model:
            phi = dict(enumerate(patch["phi"]))
            if patch["kind"] == "score":
                phi = {patch["coordinate"]: patch["phi"][0]}
                if problem.binary:
                    phi[1 - patch["coordinate"]] = -patch["phi"][0]
            for j, size in phi.items():
                moved[j] += abs(size)
    c = [min(Fraction(1), Fraction(m, ONE)) for m in moved]
    return Plain.of(problem, x, 2 * sum((k * (2 - k) for k in c), Fraction(0)))


def vectors(problem: Problem) -> bool:
    return any(isinstance(label, list) for label in problem.y)


# --- runs -----------------------------------------------------------------------------------------


@dataclass
class Run:
    problem: Problem
    pair: ReconciledPair
    points: list[Point]
    holdout: Problem
    held: list[Point]

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.pair.log.to_json()


def run_of(seed: int, weights: str | None = None, **fixed: Any) -> Run:
    given = {"algorithm": ALGORITHMS[seed % 4], "max_n": 30, "max_d": 5, "max_steps": 14} | fixed
    problem = problems.random_problem(seed, **given)
    if weights is not None:
        problem = problems.with_weights(problem, random.Random(seed), weights)
    model, found, layout = gathered(problem, [7, 5])
    pair = fit_gathered(model, found, layout)
    fit = history(found.fit.totals, found.fit.scans, pair.rules, pair.log)
    holdout = other_rows(problem, seed)
    if weights is not None:
        holdout = problems.with_weights(holdout, random.Random(seed + 1), weights)
    return Run(problem, pair, fit, holdout, held_points(pair, holdout, [4]))


def other_rows(problem: Problem, seed: int) -> Problem:
    shape: dict[str, Any] = {"binary": problem.binary, "n": 9 + seed % 30}
    if not problem.binary:
        shape["d"] = len(problem.f1[0])
    shape["vector_labels"] = vectors(problem)
    drawn = problems.random_problem(seed + 10**6, algorithm=problem.algorithm, **shape)
    return replace(problem, f1=drawn.f1, f2=drawn.f2, y=drawn.y, w=None)


def held_points(pair: ReconciledPair, rows: Problem, batches: list[int]) -> list[Point]:
    _, found, layout = gathered(rows, batches)
    return history(
        *(found.fit.totals, found.fit.scans, pair.rules, pair.log),
        fitted=pair.rows,
        holdout=Holdout(layout.label == "vector", found.fit.totals.heaviest),
    )


SEEDS = seeds(range(400, 640), 16)


def style_of(seed: int) -> str | None:
    """Weights of a kind, or none at all."""
    kinds: list[str | None] = [None, None, *problems.WEIGHTS]
    return kinds[seed // 4 % len(kinds)]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_sums_of_every_prefix_are_those_of_the_rows(seed: int) -> None:
    """At every point, since the guard may choose any: in the unit that the prefix asks for."""
    sums_are_those_of_the_rows(run_of(seed))


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("style", problems.WEIGHTS)
@pytest.mark.parametrize("seed", seeds(range(400, 430), 6))
def test_sums_of_weighted_rows(seed: int, style: str) -> None:
    sums_are_those_of_the_rows(run_of(seed, weights=style))


def sums_are_those_of_the_rows(run: Run) -> None:
    free = sum(patch["round"] is None for patch in run.log)
    for point in run.held:
        paired = point.totals.paired
        assert paired is not None
        assert paired.vectors == vectors(run.holdout)
        end = point.steps
        for model in (1, 2):
            for place, name in enumerate(run.problem.losses):
                whole = loss_differences(run.holdout, run.log, name, model, 0, end)
                rounds = loss_differences(run.holdout, run.log, name, model, min(free, end), end)
                assert paired.losses[model - 1][place] == moments(whole.z())
                assert paired.rounds[model - 1][place] == moments(rounds.z())
            brier = brier_differences(run.holdout, run.log, model, end)
            assert paired.brier[model - 1] == moments(brier.z())


def moments(z: Sequence[int]) -> Moments:
    return Moments(sum(z), sum(k * k for k in z))


@pytest.mark.parametrize("seed", seeds(range(400, 424), 12))
def test_sums_merge_in_any_order_and_travel(seed: int) -> None:
    run = run_of(seed, weights=style_of(seed))
    rows = run.holdout
    order = list(range(len(rows.f1)))
    random.Random(seed).shuffle(order)
    shuffled = reordered(rows, order)
    for other, batches in ((shuffled, [1]), (shuffled, [3, 1, 5]), (rows, [len(order)])):
        again = held_points(run.pair, other, batches)
        assert [p.totals.paired for p in again] == [p.totals.paired for p in run.held]
    # as tasks of Spark send it
    _, found, _ = gathered(rows, [2])
    cut = segments(run.pair.log, run.pair.rows)
    holdout = Holdout(vectors(rows), found.fit.totals.heaviest)
    task = HistoryTask(run.pair.rules, tuple(map(tuple, cut)), holdout)
    sent = [
        row("holdout", x.active.rows, b"".join(packed_parts(x.active))) for x in found.fit.scans
    ]
    parts = [
        unpack_changes(cell)
        for batches in (sent[::2], sent[1::2])
        for answer in task(iter(batches))
        for cell in answer.column("data").to_pylist()
    ]
    there = points(found.fit.totals, cut, added(parts, len(cut)), Holdout(vectors(rows)))
    assert [p.totals.paired for p in there] == [p.totals.paired for p in run.held]


# --- the statements -------------------------------------------------------------------------------


def statements(run: Run) -> int:
    """S, and what else has an interval: DESIGN 2.9 with M = 2."""
    sizes = [len(costs) for costs in run.problem.losses.values()]
    found = sum(k * (k - 1) for k in sizes) + 2 * len(sizes) + 2
    if any(patch["round"] is None for patch in run.log) and run.problem.algorithm != (
        "decision_calibration"
    ):
        found += 2 * len(sizes)
    if run.problem.algorithm == "reconcile":
        found += 1 if run.problem.binary else len(run.holdout.f1[0])
    return found


def close(interval: Interval | None, low: Decimal, high: Decimal) -> None:
    """The ends are outside of the true ones, by less than anyone could see."""
    assert interval is not None
    slack = Fraction(high - low) / 10**11
    assert Fraction(low) - slack <= interval.low <= Fraction(low)
    assert Fraction(high) <= interval.high <= Fraction(high) + slack


def only(found: Certificate, name: str, loss: str | None, model: int | None) -> Check:
    [check] = [
        check
        for check in found.checks
        if (check.name, check.split, check.loss, check.model) == (name, "holdout", loss, model)
    ]
    return check


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("candidates", [1, 7])
@pytest.mark.parametrize("seed", seeds(range(400, 432), 16))
def test_intervals_are_those_of_the_specification(seed: int, candidates: int) -> None:
    intervals_are_those_of_the_specification(run_of(seed), candidates)


@pytest.mark.parametrize("style", problems.WEIGHTS)
@pytest.mark.parametrize("seed", seeds(range(432, 452), 4))
def test_intervals_of_weighted_rows(seed: int, style: str) -> None:
    intervals_are_those_of_the_specification(run_of(seed, weights=style), 3)


def intervals_are_those_of_the_specification(run: Run, candidates: int) -> None:
    delta = Fraction(1, 10)
    found = certify(run.pair, run.points, run.held, delta=delta, candidates=candidates)
    assert found.level == Level(delta, statements(run), candidates)
    each = delta / (statements(run) * candidates)
    end = len(run.log)
    free = sum(patch["round"] is None for patch in run.log)
    redcal = run.problem.algorithm in ("redcal", "dc_then_redcal")
    for model in (1, 2):
        own = [patch for patch in run.log if patch["model"] == model]
        for name, costs in run.problem.losses.items():
            whole = loss_differences(run.holdout, run.log, name, model, 0, end)
            low, high = whole.ends(each)
            flat = [oracle.exact(c) for row in costs for c in row]
            spread = max(flat) - min(flat)
            d = len(costs[0])
            more = 2 * spread / 2 ** oracle.loss_bits(d) * (d if vectors(run.holdout) else 1)
            with localcontext(Context(prec=50)):
                scale = Decimal(spread.numerator) / Decimal(spread.denominator)
                wider = Decimal(more.numerator) / Decimal(more.denominator)
                fell = only(found, "loss_fell", name, model)
                if spread:
                    close(fell.interval, -scale * high - wider, -scale * low + wider)
            if redcal:
                rose = only(found, "decision_loss", name, model)
                if not spread:  # nothing can change, and no power of two is the least one above 0
                    assert rose.interval is not None
                    low_end, high_end = rose.interval.ends
                    assert -Fraction(1, 2**26) <= low_end <= 0 <= high_end <= Fraction(1, 2**26)
                elif any(patch["round"] is not None for patch in own):
                    rounds = loss_differences(run.holdout, run.log, name, model, free, end)
                    close(rose.interval, *rounds.ends(each))
                else:  # not one row changed
                    assert rose.interval is not None
                    assert not any(rose.interval.ends)
                    assert rose.verdict == "holds"
        if own:
            brier = only(found, "brier_decrease", None, model)
            close(brier.interval, *brier_differences(run.holdout, run.log, model, end).ends(each))
    masses_are_those_of_the_specification(run, found, each)
    for name in run.problem.losses:
        one, two = (only(found, "loss_fell", name, model).interval for model in (1, 2))
        both = only(found, "both_losses_fell", name, None)
        assert one is not None and two is not None and both.interval is not None
        assert both.interval.ends == (min(one.low, two.low), min(one.high, two.high))
    for check in found.checks:
        if check.interval is not None:
            assert check.interval.confidence == 1 - delta


def masses_are_those_of_the_specification(run: Run, found: Certificate, each: Fraction) -> None:
    """Clopper-Pearson without weights; with weights the mean of w (x - 1/2), x being 0 or 1."""
    y, half = run.holdout, Fraction(1, 2)
    f1, f2 = oracle.replay(y, run.log)
    shown = oracle.Run(y)
    shown.f = {1: f1, 2: f2}
    for check in found.checks:
        if check.name != "largest_event" or check.split != "holdout":
            continue
        assert check.interval is not None
        if y.w is None:
            assert "Clopper-Pearson" in check.interval.method
            continue
        assert "Bernstein" in check.interval.method
        events = [rows for name, _, _, rows in shown.events() if name == check.loss]
        rows = max(events, key=shown.mass)
        x = [Fraction(i in rows) - half for i in range(len(y.f1))]
        plain = Plain.of(y, x, Fraction(1))
        low, high = (Fraction(end) + half for end in plain.ends(each))
        # above 2^26 halves of weights are no whole units: nothing is rounded here, so it is nearer
        off = 2 * plain.unit / plain.mean + (high - low) / 10**11
        assert abs(check.interval.low - low) <= off and abs(check.interval.high - high) <= off
        assert check.measured == Fraction(shown.mass(rows), sum(oracle.weights(y)))


@pytest.mark.slow
def test_a_model_without_patches_is_not_said_to_have_fallen() -> None:
    tried = 0
    for seed in range(400, 470):
        run = run_of(seed, algorithm="redcal")
        patched = {patch["model"] for patch in run.log}
        if len(patched) == 1:
            [other] = {1, 2} - patched
            found = certify(run.pair, run.points, run.held)
            for name in run.problem.losses:
                for check in (
                    only(found, "loss_fell", name, other),
                    only(found, "both_losses_fell", name, None),
                ):
                    assert (check.verdict, "no patch" in check.why) == ("not covered", True)
            tried += 1
    assert tried


def test_fewer_than_two_rows_decide_nothing() -> None:
    run = next(r for r in map(run_of, range(400, 500, 4)) if r.pair.status == "converged" and r.log)
    assert run.problem.algorithm == "redcal"
    rows = run.holdout
    one = replace(rows, f1=rows.f1[:1], f2=rows.f2[:1], y=rows.y[:1])
    found = certify(run.pair, run.points, held_points(run.pair, one, [1]))
    told = {check.verdict for check in found.checks if check.split == "holdout" and check.interval}
    assert told <= {"holds"}  # of a model that no round touched
    names = {c.name for c in found.checks if c.split == "holdout" and c.verdict == "undecided"}
    assert {"largest_event", "loss_fell", "brier_decrease"} <= names


def test_rows_that_were_not_paired_are_not_done() -> None:
    run = next(r for r in map(run_of, range(400, 500, 4)) if r.pair.status == "converged" and r.log)
    bare = [replace(p, totals=replace(p.totals, paired=None)) for p in run.held]
    found = certify(run.pair, run.points, bare)
    model = run.log[0]["model"]
    for name in run.problem.losses:
        assert only(found, "loss_fell", name, model).verdict == "not done"
    assert only(found, "brier_decrease", None, model).verdict == "not done"


@pytest.mark.slow
def test_paired_sums_that_do_not_fit_the_others_are_noticed() -> None:
    tried = 0
    for seed in range(400, 424):
        run = run_of(seed)
        for place in (len(run.held) // 2, len(run.held) - 1):
            for wrong in mutated(run.held[place].totals.paired):
                point = run.held[place]
                point = replace(point, totals=replace(point.totals, paired=wrong))
                held = [*run.held[:place], point, *run.held[place + 1 :]]
                found = certify(run.pair, run.points, held, holdout_replayed=held)
                assert [c.name for c in found.violated if c.split == "holdout"] == ["paired"]
                assert not found.sound
                tried += 1
        found = certify(run.pair, run.points, run.held, holdout_replayed=run.held)
        assert found.sound
    assert tried > 100


def mutated(paired: Paired | None) -> Iterator[Paired]:
    """One sum that is another, by more than rounding could be, or a square that no rows have."""
    assert paired is not None
    far = 100  # more than rows
    for i in (0, 1):
        for family in ("losses", "rounds"):
            rows = getattr(paired, family)
            for place, old in enumerate(rows[i]):
                for new in (replace(old, total=old.total + far), replace(old, squares=-1)):
                    row = (*rows[i][:place], new, *rows[i][place + 1 :])
                    wrong: Any = {family: (*rows[:i], row, *rows[i + 1 :])}
                    yield replace(paired, **wrong)
        for new in (
            replace(paired.brier[i], total=paired.brier[i].total - far),
            replace(paired.brier[i], squares=2**60),
        ):
            yield replace(paired, brier=(*paired.brier[:i], new, *paired.brier[i + 1 :]))


# --- large numbers --------------------------------------------------------------------------------


def test_squares_do_not_overflow() -> None:
    """2^52 each, of which int64 holds 2^11."""
    z = np.array([2**26, -(2**26), 2**26 - 1, 1 - 2**26, 0, 1, -1] * 5_000, np.int64)
    assert Moments.of(z) == moments(z.tolist())


def test_brier_scores_of_many_classes_do_not_overflow() -> None:
    """From 2,048 classes on, a row's Brier score is more than an int64 holds."""
    d, n = 3_000, 3
    rng = np.random.default_rng(5)
    f1 = rng.integers(0, ONE, (n, d), dtype=np.int32)
    f1[0] = ONE  # a Brier sum of 2999 * 2^52
    f2 = rng.integers(0, ONE, (n, d), dtype=np.int32)
    y = np.array([0, 1, 2999], np.int32)
    costs = np.zeros((2, d))
    costs[1, ::2], costs[0, 1::2] = 1, 1
    problem_losses = Loss.of("t", costs.tolist())
    rules = Rules(LossFamily([problem_losses]), (0,), None, False)
    first = Rows(Block((f1, f2), y), rules)
    actions = [int(first.actions[i][0, 0]) for i in (0, 1)]
    patch = Patch(
        *(0, None, "calibrate", 1, None, "t", None, None, actions[0], None, None, n, (-ONE,) * d)
    )
    cut = segments([patch], n)
    [change] = Measured(cut, rules, d, Holdout(vectors=False)).changes(Block((f1, f2), y))
    assert change.paired is not None
    after = Rows(Block((f1, f2), y), rules)
    after.apply(patch)
    label = np.zeros((n, d), object)
    label[np.arange(n), y] = ONE
    before_sum = ((f1.astype(object) - label) ** 2).sum(axis=1)
    after_sum = ((after.f[0].astype(object) - label) ** 2).sum(axis=1)
    r_half = Fraction(d)  # every score can move by 1: c (2 - c) = 1 in each of d coordinates
    assert brier_ranges(cut, d, False)[0].length == 2 * r_half
    unit = Fraction(4096, 2**26)  # R = 4096 >= 3000
    z = [
        floor(Fraction(int(a - b), ONE**2) / unit)
        for a, b in zip(before_sum, after_sum, strict=True)
    ]
    assert change.paired.brier[0] == moments(z)
    assert change.brier[0] == int((after_sum - before_sum).sum())
    assert measure(after.current(), rules).brier[0] == int(after_sum.sum())


def test_sums_that_no_rows_have_are_refused() -> None:
    level = Level(Fraction(1, 20))
    with pytest.raises(ValueError, match="not the sums"):
        level.mean(Moments(10, 9), Range(1, 0), 11)
    with pytest.raises(ValueError, match="not the sums"):
        level.mean(Moments(0, 0), Range(1, 0), 1)
    assert Paired.nothing(False, 1, 2) + Paired.nothing(False, 1, 2) == Paired.nothing(False, 1, 2)
    with pytest.raises(ValueError, match="vectors on some"):
        Paired.nothing(False, 1, 2) + Paired.nothing(True, 1, 2)

"""What a certificate says of new rows is true as often as it claims: simulated.

The intervals hold for any distribution, so that they fail far less often than delta here. Each test
allows as many failures as chance would bring in one of a million tries, were the rate just delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import comb
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.certificate.certify import Certificate
from redcal_spark.certificate.intervals import Level
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.history import Holdout, Point, history
from redcal_spark.core.paired import Moments, Range
from redcal_spark.core.scan import ScanResult
from redcal_spark.model.guard import verdict
from tests.helpers import fit_gathered, gather

Floats = npt.NDArray[np.float64]

MANY = 2_000
DRAWS = [200, pytest.param(MANY, marks=pytest.mark.slow)]
DELTA = Fraction(1, 10)


@cache
def allowed(draws: int) -> int:
    """So many failures at least have a probability below 10^-6, at a rate of delta."""
    tail, k = Fraction(0), draws
    while True:
        tail += comb(draws, k) * DELTA**k * (1 - DELTA) ** (draws - k)
        if tail >= Fraction(1, 10**6):
            return k
        k -= 1


VALUES: dict[str, tuple[list[float], list[float]]] = {
    "rare": ([0, 1], [0.98, 0.02]),  # often no row of a draw tells that there are any
    "even": ([-1, 1], [0.5, 0.5]),
    "three": ([-1, 0, 0.25], [0.05, 0.75, 0.2]),
    "one": ([0.5], [1]),
}


@pytest.mark.parametrize("rows", [2, 30, 1_000])
@pytest.mark.parametrize("kind", VALUES)
def test_an_interval_holds_the_mean(kind: str, rows: int) -> None:
    """2,000 draws of values in [-1, 1], of which one statement is made."""
    values, weights = (np.array(x) for x in VALUES[kind])
    true = float(values @ weights)
    within, level, failed = Range(1, 0), Level(DELTA), 0
    rng = np.random.default_rng([rows, len(kind)])
    z = (values * ONE).astype(np.int64)  # exact: R = 1
    for counts in rng.multinomial(rows, weights, MANY):
        found = Moments.of(np.repeat(z, counts))
        low, high = level.mean(found, within, rows).ends
        failed += not low <= true <= high
    assert failed <= allowed(MANY)


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
def test_an_interval_holds_the_share(share: float) -> None:
    level, failed = Level(DELTA), 0
    for hits in np.random.default_rng(3).binomial(200, share, MANY).tolist():
        low, high = level.share(hits, 200).ends
        failed += not low <= share <= high
    assert failed <= allowed(MANY)


@dataclass(frozen=True)
class World:
    """Kinds of rows, equally frequent: the scores of both models, and how often y is 1."""

    f1: Floats
    f2: Floats
    p: Floats

    def draw(self, rng: np.random.Generator, n: int) -> pa.RecordBatch:
        rows = rng.integers(0, len(self.p), n)
        y = (rng.random(n) < self.p[rows]).astype(np.int64)
        columns = {"model_1": self.f1[rows], "model_2": self.f2[rows], "label": y}
        return pa.RecordBatch.from_pydict(columns)

    def truth(self, pair: ReconciledPair, losses: dict[str, Any]) -> dict[tuple[Any, ...], float]:
        """The expectations that statements are about."""
        found: dict[tuple[Any, ...], float] = {}
        old, new = (self.f1, self.f2), pair.apply(self.f1, self.f2)
        actions: dict[tuple[str, str], list[Any]] = {}
        for name, costs in losses.items():
            for when, scores in (("old", old), ("new", new)):
                actions[name, when] = [_actions(np.array(costs, float), f) for f in scores]
            for i in (0, 1):
                fall = _cost(costs, actions[name, "old"][i], self.p)
                fall -= _cost(costs, actions[name, "new"][i], self.p)
                found["loss_fell", name, i + 1] = fall
                spread = np.max(costs) - np.min(costs)
                found["decision_loss", name, i + 1] = -fall / spread
            found["both_losses_fell", name, None] = min(found["loss_fell", name, i] for i in (1, 2))
            found["largest_event", name, None] = self._mass(costs, new, actions[name, "new"])
        for i in (0, 1):
            before, after = (
                2 * float((self.p * (1 - f[i]) ** 2 + (1 - self.p) * f[i] ** 2).mean())
                for f in (old, new)
            )
            found["brier_decrease", None, i + 1] = before - after
        return found

    def _mass(self, costs: Any, scores: Any, actions: list[Any]) -> float:
        """Of the largest event, at alpha = .02 of the rescaled loss."""
        m = (np.array(costs, float) - np.min(costs)) / (np.max(costs) - np.min(costs))
        values = [np.stack([1 - f, f]).T @ m.T for f in scores]
        a, b = actions
        rows = np.arange(len(a))
        sure = (values[0][rows, b] - values[0][rows, a] > ALPHA) | (
            values[1][rows, a] - values[1][rows, b] > ALPHA
        )
        masses = [
            float(((a == i) & (b == j) & sure).mean())
            for i in range(len(m))
            for j in range(len(m))
            if i != j
        ]
        return max(masses)


def _actions(costs: Floats, f: Floats) -> Any:
    return (np.stack([1 - f, f]).T @ costs.T).argmin(axis=1)


def _cost(costs: Any, actions: Any, p: Floats) -> float:
    m = np.array(costs, float)
    return float(((1 - p) * m[actions, 0] + p * m[actions, 1]).mean())


ALPHA = 0.02
LOSSES = {"lend": [[0.0, 5.0], [1.0, 0.0], [0.5, 1.7]]}
NULL_LOSSES = {"guess": [[0.0, 1.0], [1.0, 0.0]]}
Guard = Literal["off", "best_prefix"]


def points_of(
    found: ScanResult, pair: ReconciledPair, holdout: Holdout | None = None
) -> list[Point]:
    part = found.fit
    return history(part.totals, part.scans, pair.rules, pair.log, fitted=pair.rows, holdout=holdout)


@dataclass
class Fit:
    """A reconciler, fitted on a draw; `holdout` certifies it by another."""

    model: Reconciler
    pair: ReconciledPair
    points: list[Point]

    @classmethod
    def on(cls, batch: pa.RecordBatch, losses: dict[str, Any], **given: Any) -> Fit:
        options = {"alpha": ALPHA, "eta": 0.02} | given
        model = Reconciler(losses=losses, threads=1, delta=float(DELTA), **options)
        found, layout = gather(model, [batch], batch.schema)
        pair = fit_gathered(model, found, layout)
        return cls(model, pair, points_of(found, pair))

    def holdout(self, batch: pa.RecordBatch, guard: Guard) -> ReconciledPair:
        found, _ = gather(self.model, [batch], batch.schema)
        histories = {"fit": self.points, "holdout": points_of(found, self.pair, Holdout(False))}
        pair, _ = verdict(self.pair, histories, guard, str, self.model.delta)
        return pair


def false_statements(
    found: Certificate | None, truth: dict[tuple[Any, ...], float]
) -> Iterator[str]:
    """Intervals without the truth, and verdicts that are wrong."""
    assert found is not None
    seen = 0
    for check in found.checks:
        if check.split == "holdout" and check.interval is not None:
            true = truth[check.name, check.loss, check.model]
            low, high = (float(x) for x in check.interval.ends)
            seen += 1
            if not low - 1e-7 <= true <= high + 1e-7:
                yield check.name
            if check.verdict in ("holds", "violated"):
                bound = float(check.bound)  # type: ignore[arg-type]
                so = true <= bound + 1e-7 if check.relation[0] == "<" else true >= bound - 1e-7
                if so != (check.verdict == "holds"):
                    yield check.name
    assert seen > 4


def simulate(once: Callable[[np.random.Generator], bool], draws: int) -> int:
    """How many draws went wrong, each from a seed of its own."""
    return sum(once(np.random.default_rng([15, draw])) for draw in range(draws))


def world(rng: np.random.Generator) -> World:
    """Two models that see the truth through noise of their own."""
    p = rng.random(400)
    f1, f2 = (np.clip(p + rng.normal(0, 0.25, 400), 0, 1) for _ in range(2))
    return World(f1, f2, p)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("guard", ["off", "best_prefix"])
def test_all_statements_hold_together(guard: Guard, draws: int) -> None:
    """One fit, many draws of holdout rows: some statement is false in a share delta at most."""
    rng = np.random.default_rng(7)
    here = world(rng)
    fit = Fit.on(here.draw(rng, 500), LOSSES)
    assert len(fit.points) > 4
    truths: dict[int, dict[tuple[Any, ...], float]] = {}
    claims = 0

    def once(rng: np.random.Generator) -> bool:
        nonlocal claims
        pair = fit.holdout(here.draw(rng, 250), guard)
        steps = len(pair.log)
        if steps not in truths:
            truths[steps] = here.truth(pair, LOSSES)
        assert pair.certificate is not None
        claims += pair.certificate.counts["holds"]
        return any(true for true in false_statements(pair.certificate, truths[steps]))

    assert simulate(once, draws) <= allowed(draws)
    assert claims  # something was said at all
    assert guard == "off" or len(truths) > 1  # the guard chose


def null_draw(rng: np.random.Generator, guard: Guard, n: int) -> tuple[bool, Fraction]:
    """Labels that no score knows of: whatever patches do, no loss can fall.

    Whether a fall is claimed, and how large it looks.
    """
    f1, f2 = rng.random(100), rng.random(100)
    here = World(f1, f2, np.full(100, 0.5))
    fit = Fit.on(here.draw(rng, n), NULL_LOSSES)
    pair = fit.holdout(here.draw(rng, n), guard)
    assert pair.certificate is not None
    fell = [check for check in pair.certificate.checks if check.name == "loss_fell"]
    assert len(fell) == 2
    claimed = any(check.verdict == "holds" for check in fell)
    falls = [check.measured for check in fell if isinstance(check.measured, Fraction)]
    return claimed, sum(falls, Fraction(0))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("guard", ["off", "best_prefix"])
def test_no_fall_is_claimed_where_there_is_none(guard: Guard, draws: int) -> None:
    looks: list[Fraction] = []

    def once(rng: np.random.Generator) -> bool:
        claimed, fall = null_draw(rng, guard, 200)
        looks.append(fall)
        return claimed

    assert simulate(once, draws) <= allowed(draws)
    mean = float(sum(looks) / len(looks))
    error = float(np.std([float(x) for x in looks])) / draws**0.5
    if guard == "best_prefix":
        assert mean > 4 * error  # it chooses by the rows that certify, and flatters itself
    else:
        assert abs(mean) < 5 * error

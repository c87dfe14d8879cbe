"""The guard: the best prefix by brute force, what is cut, and what is said."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from redcal_spark import Reconciler
from redcal_spark.certificate.certify import certify
from redcal_spark.core.history import Point, history
from redcal_spark.core.kernel import Rules
from redcal_spark.core.losses import LossFamily
from redcal_spark.core.metrics import Totals
from redcal_spark.core.parameters import Parameters, auto_beta
from redcal_spark.core.problem import beta_warning
from redcal_spark.errors import UsageError
from redcal_spark.model.guard import best_prefix, cut, mean_loss, warning
from redcal_spark.model.pair import ReconciledPair
from tests import oracle, problems
from tests.helpers import fit_gathered, gathered, prefix, refused
from tests.oracle import ALGORITHMS, ONE, Problem


def case(seed: int, **fixed: Any) -> Problem:
    given = {"algorithm": ALGORITHMS[seed % 4], "max_n": 25, "max_d": 4, "max_steps": 20} | fixed
    return problems.random_problem(seed, **given)


def held_out(problem: Problem, seed: int) -> Problem:
    shape: dict[str, Any] = {"binary": problem.binary, "n": 5 + seed % 20}
    if not problem.binary:
        shape["d"] = len(problem.f1[0])
    drawn = problems.random_problem(seed + 10**6, algorithm=problem.algorithm, **shape)
    return replace(problem, f1=drawn.f1, f2=drawn.f2, y=drawn.y)


def fitted(problem: Problem, holdout: Problem) -> tuple[ReconciledPair, list[Point], list[Point]]:
    model, found, layout = gathered(problem)
    pair = fit_gathered(model, found, layout)
    points = history(found.fit.totals, found.fit.scans, pair.rules, pair.log)
    _, other, _ = gathered(holdout)
    return pair, points, history(other.fit.totals, other.fit.scans, pair.rules, pair.log)


def by_hand(holdout: Problem, log: list[dict[str, Any]]) -> Fraction:
    """The mean rescaled loss after a log, row by row."""
    f = oracle.replay(holdout, log)
    total, terms = Fraction(0), 0
    for costs in holdout.losses.values():
        exact = [[oracle.exact(c) for c in row] for row in costs]
        low, high = min(map(min, exact)), max(map(max, exact))
        quantised = oracle.quantise_loss(costs)
        for scores in f:
            terms += 1
            for row, y in zip(scores, oracle.grid_labels(holdout), strict=True):
                action = oracle.argmin(oracle.action_scores(quantised, row))
                if high > low:
                    own = [(c - low) / (high - low) for c in exact[action]]
                    cost = sum((q * c for q, c in zip(y, own, strict=True)), Fraction(0))
                    total += cost / (ONE * len(holdout.y))
    return total / terms


@pytest.mark.parametrize("seed", range(300, 340))
def test_the_best_prefix_by_brute_force(seed: int) -> None:
    problem = case(seed)
    if not problem.losses:
        return
    holdout = held_out(problem, seed)
    pair, _, points = fitted(problem, holdout)
    log = pair.log.to_json()
    losses = {point.steps: by_hand(holdout, log[: point.steps]) for point in points}
    assert [mean_loss(point, pair.losses) for point in points] == list(losses.values())
    lowest = min(losses.values())
    shortest = min(steps for steps, loss in losses.items() if loss == lowest)
    assert best_prefix(points, pair.losses).steps == shortest
    told = warning(points, pair.losses)
    worse = losses[len(log)] > lowest
    assert (told is not None) == worse
    if told is not None:
        assert f"would keep the first {shortest:,}" in told


@pytest.mark.slow
def test_something_was_cut_and_something_was_not() -> None:
    """The brute force above is no test if the answer is always the same."""
    kinds = set()
    for seed in range(300, 340):
        problem = case(seed)
        if problem.losses:
            pair, _, points = fitted(problem, held_out(problem, seed))
            best = best_prefix(points, pair.losses).steps
            if points[-1].steps:
                kinds.add("all" if best == points[-1].steps else "some" if best else "none")
    assert kinds == {"all", "some", "none"}


def test_ties_go_to_the_shortest() -> None:
    losses = LossFamily.of({"l": [[0, 2], [2, 0]]})

    def point(steps: int, wrong: int) -> Point:
        """Of 10 rows of class 0 so many are taken for class 1, by both models."""
        totals = Totals.none(Rules(losses, (0,) * len(losses), None, False), 2)
        labels = np.array([[(10 - wrong) * ONE, 0], [wrong * ONE, 0]])
        optimum = np.array([[10 * ONE, 0], [0, 0]])
        new = replace(totals, rows=10, labels=(labels, labels), optimum=optimum)
        return Point(steps, steps, new)

    points = [point(0, 5), point(1, 3), point(2, 4), point(3, 3), point(4, 3)]
    assert [mean_loss(p, losses) for p in points] == [Fraction(x, 10) for x in (5, 3, 4, 3, 3)]
    assert best_prefix(points, losses).steps == 1
    assert warning(points, losses) is None  # the end is as good as the best
    told = warning(points[:3], losses)
    assert told is not None
    assert told.startswith("the last patch (1 round) raised the mean loss on holdout rows from 0.3")
    assert "0.4" in told


def test_losses_weigh_alike_whatever_their_units() -> None:
    """A loss in millions is rescaled: else it would outvote the other."""
    seen = []
    for scale in (1, 10**6):
        losses = LossFamily.of({"small": [[0, 1], [1, 0]], "large": [[0, scale], [scale, 0]]})
        totals = Totals.none(Rules(losses, (0,) * len(losses), None, False), 2)
        labels = np.array([[6, 0], [4, 0], [3, 0], [7, 0]]) * ONE
        optimum = np.array([[10, 0], [0, 0], [10, 0], [0, 0]]) * ONE
        new = replace(totals, rows=10, labels=(labels, labels), optimum=optimum)
        seen.append(mean_loss(Point(0, 0, new), losses))
    assert seen == [Fraction(11, 20)] * 2


def test_without_losses_nothing_is_cut() -> None:
    problem = case(2, algorithm="reconcile", losses={}, d=3)
    pair, _, points = fitted(problem, held_out(problem, 1))
    assert best_prefix(points, pair.losses) is points[-1]
    assert warning(points, pair.losses) is None


@pytest.mark.parametrize("seed", range(300, 312))
def test_a_cut_pair_is_the_prefix_and_its_certificate_holds(seed: int) -> None:
    problem = case(seed)
    pair, points, others = fitted(problem, held_out(problem, seed))
    assert cut(pair, len(pair.log)) is pair
    for i, point in enumerate(points[:-1]):
        found = cut(pair, point.steps)
        assert found.status == "cut"
        assert found.log == prefix(pair.log.to_json()[: point.steps])
        assert ReconciledPair.from_json(found.to_json()).to_json() == found.to_json()
        certificate = certify(found, points[: i + 1], others[: i + 1], replayed=point.totals)
        assert not [check for check in certificate.violated if check.split == "fit"]


def test_a_cut_inside_a_round_is_refused() -> None:
    for seed in range(8, 80):
        problem = case(seed, algorithm="redcal", beta=1e-4, grid_bits=None, max_n=40)
        pair, points, _ = fitted(problem, problem)
        ends = {point.steps for point in points}
        inside = [steps for steps in range(len(pair.log)) if steps not in ends]
        if inside:
            break
    assert inside
    assert "inside round" in refused(UsageError, lambda: cut(pair, inside[0]))
    for steps in (-1, len(pair.log) + 1):
        assert "cannot keep" in refused(UsageError, partial(cut, pair, steps))


def test_a_small_beta_is_told_with_the_value_of_auto() -> None:
    alone = Parameters(algorithm="decision_calibration", beta=1e-5)
    told = beta_warning(alone, 4_000)
    assert told is not None
    auto = auto_beta(Fraction(1), 4_000)
    assert f"beta: auto would be {float(auto):g}" in told
    assert "790 times below" in told  # .0079 is the largest two digits below sqrt(1 / 16,000)
    both = Parameters(algorithm="redcal", alpha=0.1, eta=0.01, beta=1e-5)
    told = beta_warning(both, 4_000)
    assert told is not None
    assert f"{float(auto_beta(Fraction(1, 100), 4_000)):g}" in told


def test_beta_is_small_from_a_tenth_of_auto_on() -> None:
    auto = auto_beta(Fraction(1), 10_000)
    assert auto == Fraction(5, 1_000)
    for beta, small in ((0.005, False), (0.00051, False), (0.0005, True), (0.0004, True)):
        found = beta_warning(Parameters(algorithm="decision_calibration", beta=beta), 10_000)
        assert (found is not None) == small


def test_auto_and_reconcile_have_no_small_beta() -> None:
    assert beta_warning(Parameters(alpha=0.1, eta=0.1), 10) is None
    reconcile = Parameters(algorithm="reconcile", alpha=0.1, eta=0.1, beta=1e-9)
    assert beta_warning(reconcile, 10**6) is None


def test_a_too_small_beta_overfits_and_the_guard_says_so() -> None:
    """Noise alone: what is fitted does not hold on other rows."""
    rng = np.random.default_rng(3)
    scores = [rng.dirichlet(np.ones(4), 300) for _ in range(4)]
    y = rng.integers(0, 4, (2, 300))
    losses = {"l": rng.normal(size=(3, 4)).tolist()}
    model = Reconciler(algorithm="decision_calibration", losses=losses, beta=1e-5, max_steps=300)
    pair = model.fit(scores[0], scores[1], y[0])
    holdout = Problem(
        scores[2].tolist(),
        scores[3].tolist(),
        y[1].tolist(),
        losses,
        "decision_calibration",
        beta=1e-5,
    )
    _, found, _ = gathered(holdout)
    points = history(found.fit.totals, found.fit.scans, pair.rules, pair.log)
    best = best_prefix(points, pair.losses)
    assert best.steps < len(pair.log)
    assert warning(points, pair.losses) is not None
    assert beta_warning(pair.parameters, pair.rows) is not None
    assert len(cut(pair, best.steps).log) == best.steps


def test_best_prefix_without_holdout_rows_is_refused() -> None:
    given: dict[str, Any] = {"losses": {"t": [[0, 5], [1, 0]]}, "alpha": 0.01, "eta": 0.1}
    given["guard"] = "best_prefix"
    scores, y = np.full(200, 0.5), np.arange(200) % 2
    told = refused(UsageError, lambda: Reconciler(**given).fit(scores, scores, y))
    assert told == "guard: best_prefix needs holdout rows: fit(..., holdout=0.3)"
    assert Reconciler(**given).fit(scores, scores, y, holdout=0.3).status == "converged"

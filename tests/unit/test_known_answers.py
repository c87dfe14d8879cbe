"""The answers that the paper's two counterexamples must give, by hand, on the package."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from redcal_spark import ReconciledPair
from redcal_spark.core.metrics import Metrics
from redcal_spark.model.reconciler import Reconciler
from tests import oracle, problems
from tests.helpers import fit, fitted, gathered, log_of, with_scores
from tests.oracle import FIELDS, ONE, Grid, Patch, Problem

TWO = [(0.2, 0.1, 100, "0.18", "0.10"), (0.4, 0.2, 50, "0.32", "0.20")]


def metrics(problem: Problem, scores: tuple[Grid, ...] | None = None) -> Metrics:
    """What the package measures on the problem's rows, or on the same rows with other scores."""
    rows = problem if scores is None else with_scores(problem, *scores)
    model, found, _ = gathered(replace(rows, losses=problems.ZERO_ONE))
    return Metrics(found.fit.totals, model.losses)


def line(**fields: Any) -> Patch:
    return {name: fields.get(name) for name in FIELDS}


def test_theorem_1_reconcile_moves_f1_onto_f2_and_doubles_its_loss() -> None:
    problem = problems.theorem_1(phi=0.2)
    pair = fit(problem)
    # alpha = .1, eta = .1: m^2 >= 4,000, so m = 64; .2 becomes 13/64.
    assert (pair.status, pair.resolved.m, pair.resolved.beta) == ("converged", 64, None)
    only = line(step=0, round=0, kind="score", model=1, other=2, coordinate=1, direction="<")
    assert log_of(pair) == [only | {"rows": 10, "phi": [13 * ONE // 64]}]
    f1, f2 = fitted(pair, problem)
    assert f2 == oracle.grid_scores(problem.f2)
    assert f1 != oracle.grid_scores(problem.f1)
    for row, target in zip(f1, f2, strict=True):
        assert abs(row[1] - target[1]) <= ONE // 128  # half a step of the patch grid
        assert sum(row) == ONE
    before, after = metrics(problem), metrics(problem, (f1, f2))
    assert (before.decision_loss(0, 1), after.decision_loss(0, 1)) == (Fraction(1, 2), Fraction(1))


def test_theorem_1_redcal_does_not_raise_the_loss() -> None:
    problem = replace(problems.theorem_1(phi=0.2), algorithm="redcal", alpha=0.01)
    pair = fit(problem)
    before, after = metrics(problem), metrics(problem, fitted(pair, problem))
    assert pair.status == "converged"
    for model in (1, 2):
        assert after.decision_loss(0, model) <= before.decision_loss(0, model)


@pytest.mark.parametrize(("beta", "eta", "n", "before", "after"), TWO)
def test_theorem_2_decision_calibration_does_nothing(
    beta: float, eta: float, n: int, before: str, after: str
) -> None:
    problem = problems.theorem_2(beta, eta, algorithm="decision_calibration")
    assert len(problem.y) == n
    pair = fit(problem)
    assert (pair.status, len(pair.log), pair.zero_calibrations) == ("converged", 0, 0)
    found = metrics(problem)
    assert found.disagreement(0) == 2 * oracle.exact(eta)
    for model in (1, 2):  # the residual is at most beta, not 0
        assert 0 < found.squared_calibration_gap(0, model) <= oracle.exact(beta) ** 2


@pytest.mark.parametrize(("beta", "eta", "n", "before", "after"), TWO)
def test_theorem_2_redcal_needs_one_patch_per_model(
    beta: float, eta: float, n: int, before: str, after: str
) -> None:
    problem = problems.theorem_2(beta, eta)
    pair = fit(problem)
    assert pair.status == "converged"
    assert [(p.kind, p.model, p.a1, p.a2) for p in pair.log] == [
        ("reconcile", 1, 0, 1),
        ("reconcile", 2, 1, 0),
    ]
    assert all(p.rows == oracle.exact(eta) * n for p in pair.log)  # the mass equals eta exactly
    start, end = metrics(problem), metrics(problem, fitted(pair, problem))
    assert start.largest_event(0) == oracle.exact(eta)
    assert end.largest_event(0) == end.disagreement(0) == 0
    for model in (1, 2):
        assert start.decision_loss(0, model) == Fraction(before)
        assert end.decision_loss(0, model) == Fraction(after)
        assert end.squared_calibration_gap(0, model) <= oracle.exact(beta) ** 2


def test_theorem_2_brier_score_drops_by_the_known_amount() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    pair = fit(problem)
    assert pair.resolved.m == 128  # m^2 >= 8,000
    assert {p.phi for p in pair.log} == {(-88 * ONE // 128, 88 * ONE // 128)}  # the mean is .69
    start, end = metrics(problem), metrics(problem, fitted(pair, problem))
    for model in (1, 2):
        assert round(start.brier(model) - end.brier(model), 4) == Fraction("0.0952")


def test_one_row_fewer_than_eta_is_no_event() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    assert len(fit(replace(problem, eta=0.1000001)).log) == 0
    assert len(fit(replace(problem, eta=0.1)).log) == 2


EDGES = {
    "gap_equals_alpha": 0,
    "mass_equals_eta": 1,
    "norm_equals_beta": 0,
    "models_tie": 2,
    "m_squared_is_enough": 1,
    "norm_equals_adaptive_beta": 1,
    "norm_above_adaptive_beta": 2,
    "costs_tie_on_the_grid": 1,
}
NUDGES = {
    "gap_equals_alpha": {"alpha": 0.4999999},
    "mass_equals_eta": {"eta": 0.2500001},
    "norm_equals_beta": {"beta": 0.1249999},
}


@pytest.mark.parametrize("name", problems.edge_cases())
def test_what_sits_exactly_on_a_comparison_falls_as_the_law_says(name: str) -> None:
    problem = problems.edge_cases()[name]
    pair = fit(problem)
    assert (pair.status, len(pair.log)) == ("converged", EDGES[name])
    if name in NUDGES:
        nudged = replace(problem, **NUDGES[name])  # type: ignore[arg-type]
        assert len(fit(nudged).log) != EDGES[name]


def test_ties_go_to_model_1_and_m_is_the_least_power_of_two() -> None:
    cases = problems.edge_cases()
    assert [p.model for p in fit(cases["models_tie"]).log] == [1, 2]
    assert fit(cases["m_squared_is_enough"]).log[0].phi == (0, ONE // 2)


def test_the_example_of_the_readme_line() -> None:
    losses = {"triage": [[0, 5, 9], [1, 0, 0]]}
    p1 = [[0.9, 0.05, 0.05], [0.9, 0.05, 0.05]]
    p2 = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]
    # Discharge costs model 1 .25 + .45 = .7 < .9; model 2 pays 3.5 against .5.
    pair = Reconciler(losses=losses, alpha=0.01, eta=0.01).fit(p1, p2, [0, 0])
    assert isinstance(pair, ReconciledPair)
    first = pair.log[0]
    assert (first.loss, first.a1, first.a2, first.rows) == ("triage", 0, 1, 2)
    assert first.model == 2  # it is off by far more
    new1, new2 = pair.apply(p1, p2)
    assert pair.status == "converged"
    assert new1.tolist() == p1
    assert (new2[:, 0] > 0.9).all()

"""The oracle against answers known by hand, and against what must hold on every problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings

from tests import oracle, problems
from tests.oracle import ONE, Grid, Patch, Problem

SEEDS = range(60)


def unit(f: Grid) -> list[list[Fraction]]:
    """Grid scores as probabilities."""
    return [[Fraction(q, ONE) for q in row] for row in f]


def brier(f: Grid, y: Grid) -> Fraction:
    """The one-hot Brier score, a mean over rows."""
    return Fraction(oracle.brier_sum(f, y), ONE**2 * len(f))


def patch(**fields: Any) -> Patch:
    """A log line with the fields that apply."""
    if fields["kind"] != "calibrate":
        fields.setdefault("other", 3 - fields["model"])
    return {name: fields.get(name) for name in oracle.FIELDS}


def calibrations(run: oracle.Run, model: int) -> Iterator[Fraction]:
    """The squared norm of every mean residual, per loss and action."""
    for loss, costs in run.losses.items():
        for action in range(len(costs)):
            rows = run.rows_acting(model, loss, action, list(range(run.n)))
            residuals = run.residual_sums(model, rows)
            yield Fraction(oracle.dot(residuals, residuals), (run.n * ONE) ** 2)


# Numbers


def test_probabilities_round_half_to_even_and_the_box_is_checked_on_the_grid() -> None:
    assert [oracle.quantise(k / 2 / ONE) for k in (0, 1, 2, 3, 5)] == [0, 0, 1, 2, 2]
    assert oracle.quantise(-1e-17) == 0
    assert oracle.quantise(1 + 1e-15) == ONE
    for wrong in (-1e-3, 1.001, nan, inf, -inf):
        with pytest.raises(ValueError, match="not a probability"):
            oracle.quantise(wrong)


def test_one_column_gets_its_complement() -> None:
    assert oracle.grid_scores([0.25, 1.0]) == [[3 * ONE // 4, ONE // 4], [0, ONE]]


def test_labels_are_one_hot_or_quantised() -> None:
    problem = Problem([[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2, [1, [0.25, 0.5]], {}, "reconcile")
    assert oracle.grid_labels(problem) == [[0, ONE], [ONE // 4, ONE // 2]]
    with pytest.raises(ValueError, match="class 2"):
        oracle.grid_labels(replace(problem, y=[0, 2]))


def test_losses_are_rescaled_each_on_its_own() -> None:
    assert oracle.quantise_loss([[0, 5, 9], [1, 0, 0]]) == [
        [0, round(Fraction(5, 9) * ONE), ONE],
        [round(Fraction(1, 9) * ONE), 0, 0],
    ]
    assert oracle.quantise_loss([[-1, 1], [0, -1]]) == [[0, ONE], [ONE // 2, 0]]
    assert oracle.quantise_loss([[7, 7], [7, 7]]) == [[0, 0], [0, 0]]


def test_loss_bits_shrink_beyond_1024_classes() -> None:
    bits = {d: oracle.loss_bits(d) for d in (2, 3, 1024, 1025, 2048, 16_384)}
    assert bits == {2: 26, 3: 26, 1024: 26, 1025: 25, 2048: 25, 16_384: 22}


@pytest.mark.parametrize(
    ("n", "eta", "expected"), [(1, 1.0, "0.5"), (25, 1.0, "0.1"), (100, 0.1, "0.015")]
)
def test_auto_beta_has_two_digits(n: int, eta: float, expected: str) -> None:
    problem = Problem([0.5] * n, [0.5] * n, [0] * n, problems.ZERO_ONE, "redcal", 0.1, eta)
    assert oracle.resolve_beta(problem) == Fraction(expected)
    alone = replace(problem, algorithm="decision_calibration", eta=0.001)
    assert oracle.resolve_beta(alone) == oracle.resolve_beta(replace(problem, eta=1.0))
    assert oracle.resolve_beta(replace(problem, algorithm="reconcile")) is None


def test_grid_size() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    assert oracle.grid_size(problem) == 128  # m^2 >= 8,000
    assert oracle.grid_size(replace(problem, algorithm="dc_then_redcal")) == 128
    assert oracle.grid_size(replace(problem, algorithm="decision_calibration")) == 8  # 25
    assert oracle.grid_size(replace(problem, algorithm="reconcile")) == 64  # 4,000
    assert oracle.grid_size(replace(problem, alpha=1e-6, eta=1e-3)) == 2**26  # the cap
    assert oracle.grid_size(replace(problem, grid_bits=3)) == 8


def test_patch_values_round_half_to_even_and_are_odd() -> None:
    run = oracle.Run(problems.theorem_1(0.2), m=4)
    step = ONE // 4
    halves = [k * step // 2 for k in (1, 3, 5, -1, -3, -5)]
    assert run.rounded_mean(halves, 1) == [k * step for k in (0, 2, 2, 0, -2, -2)]
    assert run.rounded_mean([5 * half for half in halves], 5) == run.rounded_mean(halves, 1)


def test_parameters_mean_the_written_decimal() -> None:
    assert oracle.exact(0.1) == Fraction(1, 10)
    assert oracle.exact(1e-5) == Fraction(1, 100_000)
    for wrong in (0.0, -0.1, 1.1, None, "auto"):
        with pytest.raises(ValueError, match="eta must be"):
            oracle.parameter("eta", wrong)


def test_decision_loss_is_in_the_users_units() -> None:
    losses = {"triage": [[0.0, 5.1, 9.0], [1.0, 0.1, 0.0]]}
    scores = [[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]
    problem = Problem(scores, scores, [1, [0.5, 0.25, 0.25]], losses, "redcal", 0.1, 0.1)
    f = oracle.grid_scores(scores)
    assert (
        oracle.decision_loss(problem, "triage", f)
        == (Fraction("5.1") + Fraction("0.5") + Fraction("0.1") / 4) / 2
    )


# Known answers


def test_theorem_1_reconcile_raises_the_loss() -> None:
    problem = problems.theorem_1(phi=0.2)
    result = oracle.fit(problem)
    phi = 13 * ONE // 64
    assert (result.status, result.m, result.beta) == ("converged", 64, None)
    assert result.log == [
        patch(
            step=0,
            round=0,
            kind="score",
            model=1,
            coordinate=1,
            direction="<",
            rows=10,
            phi=[phi],
        )
    ]
    f1, f2 = oracle.grid_scores(problem.f1), oracle.grid_scores(problem.f2)
    assert result.f2 == f2
    for fitted, target in zip(unit(result.f1), unit(f2), strict=True):
        assert abs(fitted[1] - target[1]) <= Fraction(1, 128)
        assert sum(fitted) == 1
    assert oracle.decision_loss(problem, "zero_one", f1) == Fraction(1, 2)
    assert oracle.decision_loss(problem, "zero_one", result.f1) == 1


@pytest.mark.parametrize(
    ("beta", "eta", "n", "before", "after"),
    [(0.2, 0.1, 100, "0.18", "0.10"), (0.4, 0.2, 50, "0.32", "0.20")],
)
def test_theorem_2_redcal_reconciles_what_is_calibrated_already(
    beta: float, eta: float, n: int, before: str, after: str
) -> None:
    problem = problems.theorem_2(beta, eta)
    labels = oracle.grid_labels(problem)
    start = oracle.Run(problem, labels)
    assert len(problem.y) == n
    for model in (1, 2):
        assert max(calibrations(start, model)) <= oracle.exact(beta) ** 2

    alone = oracle.fit(replace(problem, algorithm="decision_calibration"))
    assert (alone.status, alone.log) == ("converged", [])
    disagreeing = sum(len(event[3]) for event in start.events())
    assert disagreeing == 2 * oracle.exact(eta) * n

    result = oracle.fit(problem)
    assert result.status == "converged"
    assert [p["model"] for p in result.log] == [1, 2]
    for original, fitted in ((start.f[1], result.f1), (start.f[2], result.f2)):
        assert oracle.decision_loss(problem, "zero_one", original) == Fraction(before)
        assert oracle.decision_loss(problem, "zero_one", fitted) == Fraction(after)


def test_theorem_2_log_and_brier_scores() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    result = oracle.fit(problem)
    up = 88 * ONE // 128  # the mean is .69
    common = {"kind": "reconcile", "loss": "zero_one", "rows": 10, "phi": [-up, up]}
    assert result.log == [
        patch(step=0, round=0, model=1, a1=0, a2=1, **common),
        patch(step=1, round=1, model=2, a1=1, a2=0, **common),
    ]
    assert [list(p) for p in result.log] == [list(oracle.FIELDS)] * 2
    y = oracle.grid_labels(problem)
    for scores, fitted in ((problem.f1, result.f1), (problem.f2, result.f2)):
        drop = brier(oracle.grid_scores(scores), y) - brier(fitted, y)
        assert round(drop, 4) == Fraction("0.0952")


def test_edge_cases_fall_as_the_law_says() -> None:
    results = {name: oracle.fit(p) for name, p in problems.edge_cases().items()}
    assert {name: (r.status, len(r.log)) for name, r in results.items()} == {
        "gap_equals_alpha": ("converged", 0),
        "mass_equals_eta": ("converged", 1),
        "norm_equals_beta": ("converged", 0),
        "models_tie": ("converged", 2),
        "m_squared_is_enough": ("converged", 1),
        "norm_equals_adaptive_beta": ("converged", 1),
        "norm_above_adaptive_beta": ("converged", 2),
        "costs_tie_on_the_grid": ("converged", 1),
    }
    assert [p["model"] for p in results["models_tie"].log] == [1, 2]
    assert results["m_squared_is_enough"].log[0]["phi"] == [0, ONE // 2]
    nudged = {"gap_equals_alpha": {"alpha": 0.4999999}, "norm_equals_beta": {"beta": 0.1249999}}
    for name, parameters in nudged.items():
        assert oracle.fit(replace(problems.edge_cases()[name], **parameters)).log  # type: ignore[arg-type]


def test_decision_calibration_by_hand() -> None:
    # Model 1 acts 0 on two rows and is .25 too sure; model 2 needs nothing.
    problem = Problem(
        f1=[[1.0, 0.0], [1.0, 0.0], [0.25, 0.75], [0.0, 1.0]],
        f2=[[0.75, 0.25], [0.75, 0.25], [0.0, 1.0], [0.0, 1.0]],
        y=[[0.75, 0.25], [0.75, 0.25], 1, 1],
        losses=problems.ZERO_ONE,
        algorithm="decision_calibration",
        beta=0.1,
        grid_bits=4,
    )
    quarter = ONE // 4
    result = oracle.fit(problem)
    common = {"kind": "calibrate", "model": 1, "loss": "zero_one"}
    assert result.log == [patch(step=0, action=0, rows=2, phi=[-quarter, quarter], **common)]
    finer = oracle.fit(replace(problem, beta=0.04))
    eighth, sixteenth = quarter // 2, quarter // 4
    assert finer.log == [
        *result.log,
        patch(step=1, action=1, rows=2, phi=[-eighth, eighth], **common),
        # The last row was clipped, so half of the error is still there.
        patch(step=2, action=1, rows=2, phi=[-sixteenth, sixteenth], **common),
    ]
    assert finer.status == "converged"


def test_reconcile_by_hand() -> None:
    # Both coordinates and both models tie: coordinate 0, '>' and model 1 come first.
    problem = Problem(
        f1=[[0.75, 0.25]] * 2,
        f2=[[0.25, 0.75]] * 2,
        y=[0, 1],
        losses={},
        algorithm="reconcile",
        alpha=0.3,
        eta=1.0,
    )
    result = oracle.fit(problem)
    quarter = ONE // 4
    assert result.m == 8
    assert result.log == [
        patch(step=0, round=0, kind="score", model=1, coordinate=0, direction=">", rows=2)
        | {"phi": [-quarter]},
        patch(step=1, round=1, kind="score", model=1, coordinate=1, direction="<", rows=2)
        | {"phi": [quarter]},
    ]
    assert result.status == "converged"


def test_zero_patches_stall_or_end_the_calibration() -> None:
    coarse = replace(problems.theorem_1(0.2), grid_bits=1)  # the mean .2 rounds to 0
    assert (oracle.fit(coarse).status, oracle.fit(coarse).log) == ("stalled", [])
    redcal = replace(problems.theorem_2(0.2, 0.1), f1=[0.4] * 10, f2=[0.6] * 10, y=[0, 1] * 5)
    stalled = oracle.fit(replace(redcal, grid_bits=1))
    assert (stalled.status, stalled.log) == ("stalled", [])
    alone = replace(redcal, algorithm="decision_calibration", beta=0.1, grid_bits=1)
    ended = oracle.fit(alone)
    assert (ended.status, ended.log, ended.zero_calibrations) == ("converged", [], 2)


def test_caps() -> None:
    problem = problems.theorem_2(beta=0.2, eta=0.1)
    for limit in ("max_rounds", "max_steps"):
        for most, status in ((0, "capped"), (1, "capped"), (2, "converged")):
            result = oracle.fit(replace(problem, **{limit: most}))  # type: ignore[arg-type]
            assert (result.status, len(result.log)) == (status, most)


# What holds on every problem


@pytest.mark.parametrize("seed", SEEDS)
def test_every_patch_lowers_the_brier_sum_by_what_its_mean_says(seed: int) -> None:
    check_patches(problems.random_problem(seed))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(problems.problems())
def test_drawn_problems_keep_the_same_promises(problem: Problem) -> None:
    check_patches(problem)


def check_patches(problem: Problem) -> None:
    """Brier, row counts, box and binary complement at every step; replay gives the fit."""
    result = oracle.fit(problem)
    y = oracle.grid_labels(problem)
    run = oracle.Run(problem, y)
    for step, line in enumerate(result.log):
        assert (list(line), line["step"]) == (list(oracle.FIELDS), step)
        assert any(line["phi"])
        assert all(value % (ONE // result.m) == 0 for value in line["phi"])
        model, rows = line["model"], run.rows_of(line)
        assert len(rows) == line["rows"]
        before = oracle.brier_sum(run.f[model], y)
        sums = run.residual_sums(model, rows)
        if line["kind"] == "score":
            sums = [sums[line["coordinate"]]]
        means = [Fraction(total, len(rows)) for total in sums]
        gain = sum(
            mean**2 - (mean - phi) ** 2 for mean, phi in zip(means, line["phi"], strict=True)
        )
        run.replay(line)
        assert before - oracle.brier_sum(run.f[model], y) >= len(rows) * gain > 0
        assert all(0 <= q <= ONE for row in run.f[model] for q in row)
        if problem.binary:
            assert all(sum(row) == ONE for row in run.f[model])
    assert (run.f[1], run.f[2]) == (result.f1, result.f2)
    assert oracle.replay(replace(problem, y=[]), result.log) == (result.f1, result.f2)


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("seed", SEEDS)
def test_resuming_from_every_cut_gives_the_same_log(seed: int) -> None:
    problem = problems.random_problem(seed, max_steps=12)
    whole = oracle.fit(problem)
    for cut in range(len(whole.log) + 1):
        resumed = oracle.fit(problem, whole.log[:cut])
        assert replace(resumed, zero_calibrations=0) == replace(whole, zero_calibrations=0)
        assert resumed.zero_calibrations <= whole.zero_calibrations


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_cap_gives_a_prefix_of_the_log(seed: int) -> None:
    problem = problems.random_problem(seed, max_rounds=50, max_steps=9)
    whole = oracle.fit(problem)
    for most in range(len(whole.log)):
        cut = oracle.fit(replace(problem, max_steps=most))
        assert (cut.status, cut.log) == ("capped", whole.log[:most])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    problem = problems.random_problem(seed)
    turned = replace(problem, f1=problem.f1[::-1], f2=problem.f2[::-1], y=problem.y[::-1])
    result, other = oracle.fit(problem), oracle.fit(turned)
    assert (other.log, other.status) == (result.log, result.status)
    assert (other.f1[::-1], other.f2[::-1]) == (result.f1, result.f2)


def test_fitting_again_after_convergence_gives_no_patch() -> None:
    converged = 0
    for seed in SEEDS:
        problem = problems.random_problem(seed, algorithm="redcal")
        result = oracle.fit(problem)
        if result.status != "converged":
            continue
        converged += bool(result.log)
        f1, f2 = ([[q / ONE for q in row] for row in f] for f in (result.f1, result.f2))
        again = replace(problem, f1=f1, f2=f2)
        if problem.binary:
            again = replace(problem, f1=[row[1] for row in f1], f2=[row[1] for row in f2])
        refit = oracle.fit(again)
        assert (refit.status, refit.log) == ("converged", [])
        assert (refit.f1, refit.f2) == (result.f1, result.f2)
    assert converged >= len(SEEDS) / 2


def test_the_generator_gives_problems_that_move() -> None:
    counts = [
        len(oracle.fit(problems.random_problem(seed, algorithm="redcal")).log) for seed in SEEDS
    ]
    assert sum(count > 0 for count in counts) >= 0.7 * len(counts)
    assert sum(count > 5 for count in counts) >= 0.1 * len(counts)

"""Losses: the grid, exact scores by either way, best responses, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redcal_spark import Reconciler
from redcal_spark.core.buffers import Buffers
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.kernel import respond
from redcal_spark.core.losses import Loss, LossFamily
from redcal_spark.core.responses import best_response, cheapest
from redcal_spark.errors import GridWarning, InputError, UsageError
from redcal_spark.settings import MAX_CLASSES
from tests import oracle, problems
from tests.helpers import DRAWN, fit, fitted, refused, same_as
from tests.oracle import Problem

# The grid


def test_each_loss_is_rescaled_on_its_own() -> None:
    triage = Loss.of("triage", [[0, 5, 9], [1, 0, 0]])
    fifth, ninth = round(Fraction(5, 9) * ONE), round(Fraction(1, 9) * ONE)
    assert triage.quantised.tolist() == [[0, fifth, ONE], [ninth, 0, 0]]
    assert Loss.of("signed", [[-1, 1], [0, -1]]).quantised.tolist() == [[0, ONE], [ONE // 2, 0]]
    assert Loss.of("constant", [[7, 7], [7, 7]]).quantised.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("seed", range(25))
def test_quantised_costs_are_the_oracles(seed: int) -> None:
    for name, costs in problems.random_problem(seed, algorithm="redcal").losses.items():
        assert Loss.of(name, costs).quantised.tolist() == oracle.quantise_loss(costs)


def test_gaps_above_alpha() -> None:
    loss = Loss.of("l", [[0, 1], [1, 0]])
    assert loss.threshold(Fraction("0.1")) == 2**52 // 10
    assert loss.threshold(Fraction(1, 2**52)) == 1
    assert loss.threshold(Fraction(1)) == 2**52


def test_costs_are_counted_in_the_users_units() -> None:
    loss = Loss.of("l", [[0.1, 5], [1, 0.3]])
    label_sums = np.array([[3 * ONE, ONE], [0, ONE // 2]])
    assert loss.cost(label_sums) == Fraction("0.3") + 5 + Fraction("0.15")
    assert loss.scale == Fraction("4.9")


@pytest.mark.parametrize(
    ("costs", "usual"),
    [
        ([[0, 5, 9], [1, 0, 0]], True),
        ([[0.1, 0.7], [0.3, 0.2], [0.25, 0.9]], True),
        ([[1e15 + 0.125, 1e15 + 0.5], [1e15 + 0.25, 1e15 + 0.125]], False),
        ([[1e8 + 0.01, 1e8 + 0.16], [1e8 + 0.02, 1e8 + 0.03]], False),  # as floats, a little off
        ([[7, 7], [7, 7]], None),
    ],
)
def test_how_far_the_grid_is_from_the_users_costs(costs: Any, usual: bool | None) -> None:
    """Differences of two actions' costs, rescaled, against those of the grid, one by one."""
    loss = Loss.of("l", costs)
    given = [[Fraction(repr(float(cost))) for cost in row] for row in costs]
    step = Fraction(1, 2**loss.bits)
    off = [
        abs((a[k] - b[k]) / loss.scale - step * int(p[k] - q[k]))
        for a, p in zip(given, loss.quantised, strict=True)
        for b, q in zip(given, loss.quantised, strict=True)
        for k in range(loss.n_classes)
        if loss.scale
    ]
    if usual is None:
        assert loss.grid_error == 0
        return
    assert loss.grid_error == max(*off, 2 * step)
    assert (loss.grid_error == 2 * step) == usual


def test_distinct_costs_that_merge_are_named() -> None:
    with pytest.warns(GridWarning) as told:
        Loss.of("fine", [[0, 1e-9, 2e-9], [1, 0.5, 0.5 + 1e-10]])
    assert [str(warning.message) for warning in told] == [
        "loss 'fine': 2 groups of distinct costs are equal on the grid 2^-26 of the rescaled "
        "loss: 0.0, 1e-09, 2e-09; 0.5, 0.5000000001"
    ]


# Scores


def integers(loss: Loss, f: Any) -> list[list[int]]:
    """Scores by Python integers: action x row."""
    return [
        [sum(q * c for q, c in zip(row, costs, strict=True)) for row in f.tolist()]
        for costs in loss.quantised.tolist()
    ]


def gaps(scores: Any) -> Any:
    """Scores less that of action 0: a shift that all actions of a row share is allowed."""
    rows = [[int(x) for x in row] for row in np.asarray(scores).tolist()]
    return [[x - first for x, first in zip(row, rows[0], strict=True)] for row in rows]


@pytest.mark.parametrize("d", [3, 12, 40])
def test_rows_of_ones_take_the_long_way_and_are_exact(d: int) -> None:
    rng = np.random.default_rng(d)
    costs = rng.integers(0, 2**26 + 1, (4, d)).astype(np.float64)
    costs[0, 0], costs[1, 0] = 0, 2.0**26
    costs[3] = costs[2]
    costs[3, -1] = costs[2, -1] + (1 if costs[2, -1] < 2**26 else -1)  # the least difference
    loss = Loss.of("l", costs)
    assert loss.quantised.tolist() == costs.astype(np.int64).tolist()
    family = LossFamily((loss,))
    f = np.full((5, d), ONE, dtype=np.int64)
    f[1:] -= rng.integers(0, 3, (4, d))
    found = family.groups[0].scores(f.astype(np.float64), Buffers())
    assert found.dtype == np.int64  # the long way
    assert found[:, 0].tolist() == integers(loss, f)
    plain = np.dot(loss.quantised.astype(np.float32), f.astype(np.float32).T)
    assert gaps(plain) != gaps(integers(loss, f))


def test_one_float64_product_would_be_wrong_on_rows_of_ones() -> None:
    d = 12
    costs = np.full((2, d), 2.0**26 - 1)
    costs[0, 0], costs[1, 0], costs[1, 1] = 0, 2.0**26, 1
    loss = Loss.of("l", costs)
    f = np.array([[ONE - 2 * j - 1 for j in range(d)]])
    plain = np.dot(loss.quantised.astype(np.float64), f.T.astype(np.float64))
    assert gaps(plain) != gaps(integers(loss, f)) or plain.max() > 2**53
    found = LossFamily((loss,)).groups[0].scores(f.astype(np.float64), Buffers())
    assert found[:, 0].tolist() == integers(loss, f)


@DRAWN
@given(st.integers(0, 10**6), st.integers(2, 14), st.integers(2, 5), st.booleans())
def test_scores_are_exact_up_to_a_shift_of_the_row(
    seed: int, d: int, k: int, full_box: bool
) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 2**26 + 1, (k, d)).astype(np.float64)
    costs[0, 0], costs[-1, -1] = 0, 2.0**26
    loss = Loss.of("l", costs)
    f = rng.integers(0, ONE + 1, (6, d))
    if not full_box:
        f = f * (ONE // d) // ONE  # rows that sum to at most ONE: one product
    found = LossFamily((loss,)).groups[0].scores(f.astype(np.float64), Buffers())[:, 0]
    expected = integers(loss, f)
    assert gaps(found) == gaps(expected)
    actions = respond(f.astype(np.float64), LossFamily((loss,)))[0]
    assert actions.tolist() == [oracle.argmin([row[i] for row in expected]) for i in range(len(f))]


@pytest.mark.parametrize("rows", [3, 5_000])
def test_ties_go_to_the_lowest_action_by_either_way(rows: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (5, 2, rows)).astype(np.float64)
    expected = [
        [oracle.argmin(scores[:, i, j].astype(int).tolist()) for j in range(rows)] for i in range(2)
    ]
    assert cheapest(scores, np.uint8).tolist() == expected
    found, best = best_response(scores, np.uint8)
    assert found.tolist() == expected
    assert np.array_equal(best, scores.min(axis=0))


@pytest.mark.parametrize("k", [15, 16, 17, 255, 256, 257])
def test_as_many_actions_as_a_byte_holds_and_more(k: int) -> None:
    # Action a is right for class a only; model 1 says class k - 1, model 2 class k - 2.
    costs = 1.0 - np.eye(k)
    one, two = np.eye(k)[[k - 1] * 3], np.eye(k)[[k - 2] * 3]
    pair = Reconciler(losses={"l": costs}, alpha=0.5, eta=0.5).fit(one, two, [k - 1] * 3)
    assert [(p.model, p.a1, p.a2, p.rows) for p in pair.log] == [(2, k - 1, k - 2, 3)]
    assert pair.apply(one, two)[1].tolist() == one.tolist()


@pytest.mark.slow
def test_as_many_classes_as_are_allowed() -> None:
    d = MAX_CLASSES
    assert d == 16_384
    costs = np.zeros((2, d))
    costs[0, 1::2] = costs[1, ::2] = 1.0  # action 0 is right for even classes
    one, two = np.zeros((1, d)), np.zeros((1, d))
    one[:, 0], two[:, 1] = 1.0, 1.0
    problem = Problem(
        one.tolist(), two.tolist(), one.tolist(), {"l": costs.tolist()}, "redcal", 0.1, 0.5, 0.1
    )
    pair = fit(problem)
    same_as(pair, oracle.fit(problem))
    assert len(pair.log) == 1
    assert fitted(pair, problem)[1] == oracle.grid_scores(problem.f1)
    # All ones: the largest scores that there are.
    boxed = replace(problem, f1=np.ones((1, d)).tolist(), grid_bits=26)
    same_as(fit(boxed), oracle.fit(boxed))


def test_one_class_more_is_refused() -> None:
    d = MAX_CLASSES + 1
    assert refused(UsageError, lambda: Loss.of("l", np.zeros((2, d)))) == (
        "loss 'l': needs 2 to 16,384 classes (columns), got 16385"
    )
    scores = np.zeros((2, d))
    model = Reconciler(algorithm="reconcile", alpha=0.1, eta=0.1)
    assert refused(InputError, lambda: model.fit(scores, scores, [0, 1])) == (
        "the data: needs 2 to 16,384 classes, got 16385"
    )


# What is refused

COSTS: list[tuple[Any, str]] = [
    ([[0, 1]], "loss 'l': needs at least 2 actions (rows), got 1"),
    ([[0], [1]], "loss 'l': needs 2 to 16,384 classes (columns), got 1"),
    ([[0, 1], [1, 0, 2]], "loss 'l': rows of different width: [2, 3]"),
    (
        [[0, float("nan")], [1, float("inf")]],
        "loss 'l': 2 costs are not finite; first: action 0, class 1: nan",
    ),
    ([[0, "x"], [1, 0]], "loss 'l': cost of action 0, class 1 is not a number: 'x'"),
    ([[0, None], [1, 0]], "loss 'l': cost of action 0, class 1 is not a number: None"),
    ([[0, True], [1, 0]], "loss 'l': cost of action 0, class 1 is not a number: True"),
    (5, "loss 'l': costs must be a matrix: one list of class costs per action"),
    ([[-1e308, 1e308], [0, 0]], "loss 'l': the range of the costs is too large for float64"),
    ({"cost": [[0, 1], [1, 0]]}, "loss 'l': takes 'costs' and 'actions', got ['cost']"),
    (
        {"costs": [[0, 1], [1, 0]], "actions": ["a"]},
        "loss 'l': 1 action names for 2 rows of costs",
    ),
    ({"costs": [[0, 1], [1, 0]], "actions": ["a", "a"]}, "loss 'l': action names repeat: a, a"),
]


@pytest.mark.parametrize(("costs", "message"), COSTS)
def test_costs_that_cannot_be_used(costs: Any, message: str) -> None:
    make = lambda: Reconciler(losses={"l": costs}, alpha=0.1, eta=0.1)  # noqa: E731
    assert refused(UsageError, make) == message


def test_problems_of_several_losses_are_told_at_once() -> None:
    losses = {"a": [[0, 1]], "b": [[0, float("nan")], [1, 0]]}
    assert refused(UsageError, lambda: LossFamily.of(losses)) == (
        "loss 'a': needs at least 2 actions (rows), got 1; "
        "loss 'b': 1 costs are not finite; first: action 0, class 1: nan"
    )


def test_losses_must_have_the_same_classes() -> None:
    losses = {"a": [[0, 1], [1, 0]], "b": [[0, 1, 2], [1, 0, 2]]}
    assert refused(UsageError, lambda: LossFamily.of(losses)) == (
        "losses must have the same number of classes (columns): 'a' has 2, 'b' has 3"
    )


def test_no_losses_where_some_are_needed() -> None:
    make = lambda: Reconciler(alpha=0.1, eta=0.1)  # noqa: E731
    assert refused(UsageError, make) == "losses: redcal needs at least one"
    listed = lambda: Reconciler(losses=[[0, 1], [1, 0]], alpha=0.1, eta=0.1)  # noqa: E731
    assert refused(UsageError, listed) == (
        "losses: must be a mapping of names to cost matrices (action x class), got list"
    )


def test_an_unknown_loss_is_named_with_those_that_exist() -> None:
    family = LossFamily.of({"a": [[0, 1], [1, 0]], "b": [[0, 1], [1, 0]]})
    assert refused(UsageError, lambda: family.place("c")) == "no loss named 'c'; there are: a, b"


# Losses on which nothing, or everything, ties


def test_a_constant_loss_never_disagrees() -> None:
    problem = Problem(
        [[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [0] * 4, {"c": [[3, 3], [3, 3]]}, "redcal", 0.1, 0.1
    )
    pair = fit(problem)
    assert (pair.status, pair.log) == ("converged", ())


def test_ties_everywhere() -> None:
    half = Problem([0.5] * 6, [0.5] * 6, [0, 1] * 3, problems.ZERO_ONE, "redcal", 0.1, 0.1)
    assert fit(half).log == ()  # both take action 0
    # Model 2 is above one half by a sixteenth: another action, by a margin of an eighth.
    near = replace(half, f2=[0.5625] * 6)
    assert fit(replace(near, alpha=0.125)).log == ()
    [first] = fit(replace(near, alpha=0.1249999)).log
    assert (first.model, first.a1, first.a2, first.rows) == (2, 0, 1, 6)


def test_costs_that_differ_but_are_equal_on_the_grid_tie() -> None:
    problem = problems.edge_cases()["costs_tie_on_the_grid"]
    costs = problem.losses["wide"]
    with pytest.warns(GridWarning, match=r"'wide'.*0\.5, 0\.50000001"):
        Loss.of("wide", costs)
    assert costs[1][0] < costs[0][0]  # action 1 is cheaper, by less than the grid shows
    assert fit(problem).log[0].a1 == 0

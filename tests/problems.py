"""Random problems for the oracle and the engines, and the paper's two counterexamples.

One generator serves both `random_problem(seed)` and the hypothesis strategies, which hand it a
`Random` whose choices hypothesis records and shrinks. It aims at what breaks exact arithmetic:
ties, duplicate rows, scores on the grid and on the edge of the box, masses that equal eta, and
means that fall halfway between two steps of the patch grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from random import Random
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tests.oracle import ALGORITHMS, ONE, Problem, Run, exact

T = TypeVar("T")

ZERO_ONE = {"zero_one": [[0.0, 1.0], [1.0, 0.0]]}
# Row counts whose fractions are finite decimals, so that a mass can equal eta exactly.
DECIMAL_SIZES = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50)
SHAPE_OPTIONS = (
    *("n", "d", "binary", "vector_labels", "scores", "relation", "max_n", "max_d"),
    "models",
)
ROWS = ("f1", "f2", "y", "more", "w", "weight_unit")
PARAMETERS = tuple(name for name in Problem.__dataclass_fields__ if name not in ROWS)
SCORES = ("quarters", "eighths", "halves", "simplex", "box", "grid", "corners")
RELATIONS = ("independent", "swapped", "near", "mixed", "equal")


def random_problem(seed: int, **fixed: Any) -> Problem:
    """The problem of this seed; `fixed` sets any parameter, the losses or a shape option.

    Shape options: n, d, binary, vector_labels, scores (a name in SCORES, for both models),
    relation (of model 2 to model 1, a name in RELATIONS), models (how many, 2 if nobody says), and
    the limits max_n and max_d.
    """
    return build(Random(seed), **fixed)


def problems(**fixed: Any) -> st.SearchStrategy[Problem]:
    """Small problems drawn number by number, so that a failing one shrinks."""
    limits = {"max_n": 10, "max_d": 4} | fixed
    return st.randoms(use_true_random=False).map(lambda rng: build(rng, **limits))


def seeded_problems(**fixed: Any) -> st.SearchStrategy[Problem]:
    """BadRows of full size, each named by its seed."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_problem(seed, **fixed))


def build(rng: Random, **fixed: Any) -> Problem:
    """Draw every choice that is not fixed, and draw again while nothing disagrees, mostly."""
    unknown = set(fixed) - set(SHAPE_OPTIONS) - set(PARAMETERS)
    if unknown:
        raise TypeError(f"unknown options {sorted(unknown)}; there are {SHAPE_OPTIONS}")
    algorithm = fixed.get("algorithm") or rng.choice(("redcal", *ALGORITHMS))
    relation = fixed.get("relation") or rng.choice(RELATIONS[:4] * 4 + RELATIONS)
    tries = 1 if relation == "equal" or _maybe(rng, 0.05) else 5
    for _ in range(tries):
        problem = _draw(rng, algorithm, relation, fixed)
        if problem.alpha is None or problem.eta is None:
            return problem  # Decision Calibration on its own looks at no event
        rows = largest_mass(problem)
        if rows:
            break
    if "eta" in fixed or problem.eta is None:
        return problem
    return replace(problem, eta=_eta(rng, len(problem.f1), rows, problem.eta))


def _draw(rng: Random, algorithm: str, relation: str, fixed: dict[str, Any]) -> Problem:
    given_d = fixed.get("d")
    if fixed.get("losses"):
        given_d = len(next(iter(fixed["losses"].values()))[0])
    binary = fixed["binary"] if "binary" in fixed else given_d in (None, 2) and _maybe(rng, 0.2)
    d = 2 if binary else given_d or _classes(rng, fixed.get("max_d", 12))
    n = fixed.get("n") or _size(rng, fixed.get("max_n", 60))
    styles = [fixed["scores"]] * 2 if "scores" in fixed else _styles(rng)
    vector_labels = fixed.get("vector_labels", _maybe(rng, 0.2))
    models = fixed.get("models", 2)
    (f1, f2, *more), y = _rows(rng, n, d, styles, relation, vector_labels, binary, models)
    parameters: dict[str, Any] = {
        "losses": {} if algorithm == "reconcile" and _maybe(rng, 0.5) else _losses(rng, d),
        "alpha": rng.choice((1e-6, 0.001, 0.01, 0.01, 0.02, 0.05, 0.05, 0.1, 0.125, 0.3, 0.6)),
        "eta": rng.choice((0.001, 0.02, 0.05, 0.05, 0.1, 0.1, 0.125, 0.2, 0.3, 0.7)),
        "beta": rng.choice(("auto", "auto", "auto", 1e-5, 0.001, 0.003, 0.01, 0.03, 0.2, 1.0)),
        "adaptive_beta": _maybe(rng, 0.4),
        "grid_bits": rng.choice((1, 2, 3, 4, 8, 26)) if _maybe(rng, 0.3) else None,
        "max_rounds": rng.choice((1, 2, 3)) if _maybe(rng, 0.08) else 10_000,
        "max_steps": rng.choice((0, 1, 2, 3, 5, 9)) if _maybe(rng, 0.08) else 60,
    }
    if _maybe(rng, 0.2):
        parameters["alpha"] = rng.choice((0.125, 0.25, 0.5))  # coarse scores meet it exactly
    if "halves" in styles:
        parameters["grid_bits"] = rng.choice((1, 2, 3, 3))  # the scores are sixteenths
    if algorithm == "decision_calibration" and _maybe(rng, 0.5):
        parameters |= {"alpha": None, "eta": None}
    parameters |= {name: fixed[name] for name in PARAMETERS if name in fixed}
    return Problem(f1=f1, f2=f2, y=y, more=more, **parameters | {"algorithm": algorithm})


WEIGHTS = ("small", "zeros", "tenths", "uneven", "large")


def with_weights(problem: Problem, rng: Random, style: str | None = None) -> Problem:
    """The rows of a problem with weights; not all of them are 0.

    Styles: small whole numbers, many zeros, float32 multiples of .1, a few rows that weigh most of
    it, and sums just below 2^37, where careless ones overflow.
    """
    n = len(problem.f1)
    style = style or rng.choice(WEIGHTS)
    largest = {"small": 4, "zeros": 3, "tenths": 40, "uneven": 5, "large": 2**37 // n - 1}[style]
    w = [rng.randint(0 if style == "zeros" else 1, largest) for _ in range(n)]
    if style == "zeros":
        w = [0 if _maybe(rng, 0.5) else x for x in w]
    if style == "uneven":
        w[rng.randrange(n)] = 3 * n
    w[rng.randrange(n)] += not any(w)
    if style == "tenths":
        return replace(problem, w=[np.float32(x / 10) for x in w], weight_unit=0.1)
    return replace(problem, w=w)


def replicated(problem: Problem, w: Sequence[int]) -> Problem:
    """Every row as often as it weighs."""
    rows = [i for i, times in enumerate(w) for _ in range(times)]
    f1, f2, y = ([column[i] for i in rows] for column in (problem.f1, problem.f2, problem.y))
    more = [[column[i] for i in rows] for column in problem.more]
    return replace(problem, f1=f1, f2=f2, y=y, more=more, w=None, weight_unit=1.0)


def largest_mass(problem: Problem) -> int:
    """Rows of the largest initial event: what is compared with eta * n."""
    run = Run(problem)
    if problem.algorithm == "reconcile":
        coordinates = [1] if problem.binary else range(run.d)
        places = [(j, pair) for j in coordinates for pair in run.pairs]
        return max(
            run.mass(run.rows_beyond(j, ">", p) + run.rows_beyond(j, "<", p)) for j, p in places
        )
    return run.mass(run.largest_event()[-1])


def theorem_1(phi: float, alpha: float | None = None, eta: float = 0.1) -> Problem:
    """Reconcile raises the loss: f1 is patched onto f2 and is then wrong on both units."""
    half, p = Fraction(1, 2), exact(phi)
    f1 = [float(half - p / 2), float(half - 3 * p / 2)]
    f2 = [float(half + p / 2), float(half - p / 2)]
    return Problem(
        f1=f1 * 5,
        f2=f2 * 5,
        y=[0, 1] * 5,
        losses=ZERO_ONE,
        algorithm="reconcile",
        alpha=phi / 2 if alpha is None else alpha,
        eta=eta,
    )


def theorem_2(beta: float, eta: float, alpha: float = 0.1, algorithm: str = "redcal") -> Problem:
    """Both models are beta-decision-calibrated, and yet mass 2 * eta disagrees."""
    b, e = exact(beta), exact(eta)
    low, high = float(b / 4 - 2 * e * b + 2 * e), float(1 - b / 2)
    units = [  # mass, f1, f2, frequency of label 1
        (Fraction(1, 2) - e, low, low, b / 2),
        (e, low, high, 1 - b / 2),
        (e, high, low, 1 - b / 2),
        (Fraction(1, 2) - e, high, high, 1 - b / 2),
    ]
    # The least n that makes every mass and every label count a whole number.
    n = lcm(*(x.denominator for mass, _, _, ones in units for x in (mass, mass * ones)))
    f1: list[float] = []
    f2: list[float] = []
    y: list[int] = []
    for mass, score_1, score_2, ones in units:
        rows, positive = int(mass * n), int(mass * ones * n)
        f1 += [score_1] * rows
        f2 += [score_2] * rows
        y += [1] * positive + [0] * (rows - positive)
    return Problem(f1, f2, y, ZERO_ONE, algorithm, alpha=alpha, eta=eta, beta=beta)


def edge_cases() -> dict[str, Problem]:
    """BadRows that sit exactly on a comparison, by name; the tests say which way each falls."""
    vectors: dict[str, Any] = {"losses": ZERO_ONE, "algorithm": "decision_calibration"}
    redcal: dict[str, Any] = {"losses": ZERO_ONE, "algorithm": "redcal", "eta": 0.25}
    adaptive = Problem(
        f1=[0.0, 0.0, 0.5, 0.5],
        f2=[1.0] * 4,
        y=[1] * 4,
        losses={"four": [*ZERO_ONE["zero_one"], *[[1.0, 1.0]] * 2]},
        algorithm="redcal",
        alpha=0.1,
        eta=0.25,
        beta=0.01,
        adaptive_beta=True,
    )
    # Two costs half a step apart on the 25 bits that more than 1,024 classes leave.
    wide = [[0.0] * 1025, [0.0] * 1025]
    wide[0][:2], wide[1][:2] = [0.5 + 2**-26, 1.0], [0.5, 0.0]
    first, second = _one_hot(0, 1025), _one_hot(1, 1025)
    return {
        # Both loss gaps are .5, and alpha is .5: no event.
        "gap_equals_alpha": Problem([0.75] * 4, [0.25] * 4, [0, 1, 1, 1], alpha=0.5, **redcal),
        # 2 of 8 rows disagree, and eta is a quarter: an event.
        "mass_equals_eta": Problem(
            [0.75] * 2 + [1.0] * 6, [0.0] * 2 + [1.0] * 6, [1] * 8, alpha=0.1, **redcal
        ),
        # The only residual is (.5, 0), a norm of .5 = beta * n: calibrated.
        "norm_equals_beta": Problem(
            [[0.5, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]],
            [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]],
            [0, 1, 1, 0],
            beta=0.125,
            **vectors,
        ),
        # Both models are wrong by as much: model 1 goes first, then model 2.
        "models_tie": Problem([0.25] * 4, [0.75] * 4, [0, 1, 0, 1], alpha=0.1, **redcal),
        # m^2 >= 16 gives m = 4 and not 8, so a mean of .40625 becomes .5 and not .375.
        "m_squared_is_enough": Problem([[0.0, 0.59375]], [[0.0, 1.0]], [1], beta=0.25, **vectors),
        # delta is 1 and d is 2, so beta_t = 1 / (sqrt(2) K); what is left has a norm of
        # sqrt(2) / 8: equal for 4 actions, too much for 5.
        "norm_equals_adaptive_beta": adaptive,
        "norm_above_adaptive_beta": replace(
            adaptive, losses={"five": [*ZERO_ONE["zero_one"], *[[1.0, 1.0]] * 3]}
        ),
        # Costs that are equal on the loss grid tie, and the lowest action wins.
        "costs_tie_on_the_grid": Problem(
            [first] * 2, [second] * 2, [0, 1], {"wide": wide}, "redcal", alpha=0.1, eta=0.5
        ),
    }


# The parts


def _maybe(rng: Random, chance: float) -> bool:
    return rng.randrange(100) < 100 * chance


def _eta(rng: Random, n: int, rows: int, drawn: float) -> float:
    """Mostly an eta that the largest event reaches, often exactly; else the drawn one."""
    if n in DECIMAL_SIZES and _maybe(rng, 0.25):
        # One row more than there are, now and then: then eta is just out of reach.
        rows += rows < n and _maybe(rng, 0.1)
        return rows / n if rows else drawn
    return drawn if _maybe(rng, 0.2) else min(drawn, max(rows // 2, 1) / n)


def _classes(rng: Random, limit: int) -> int:
    return min(limit, rng.choice((2, 3, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12)))


def _size(rng: Random, limit: int) -> int:
    if _maybe(rng, 0.1):
        return rng.randint(1, min(4, limit))
    sizes = [size for size in DECIMAL_SIZES if 8 <= size <= limit]
    return rng.choice(sizes) if sizes and _maybe(rng, 0.5) else rng.randint(1, limit)


def _styles(rng: Random) -> list[str]:
    first = rng.choice(SCORES)
    return [first, first if first == "halves" or _maybe(rng, 0.7) else rng.choice(SCORES)]


def _losses(rng: Random, d: int) -> dict[str, list[list[float]]]:
    names = rng.sample(["triage", "a", "b", "zz"], rng.choice((1, 2, 2, 3, 4)))
    return {name: _loss(rng, d) for name in names}


def _loss(rng: Random, d: int) -> list[list[float]]:
    k = rng.choice((2, 2, 3, 3, 4, 4, 5, 6))
    style = rng.choice(("small", "small", "small", "zero_one", "zero_one", "floats", "signed"))
    if _maybe(rng, 0.05):
        return [[3.0] * d for _ in range(k)]  # constant: every action ties, always action 0
    if style == "zero_one":  # action a is right for the classes a, a + k, ...
        return [[float(j % k != a) for j in range(d)] for a in range(k)]
    if style == "small":
        costs = [[float(rng.randint(0, 3)) for _ in range(d)] for _ in range(k)]
    elif style == "floats":
        costs = [[rng.randint(0, 10**6) / 10**6 for _ in range(d)] for _ in range(k)]
    else:
        costs = [[float(rng.choice((-50, -7, 0, 1, 100))) for _ in range(d)] for _ in range(k)]
    if _maybe(rng, 0.8):
        # Each action is the best for some class; else one often dominates and nothing happens.
        least = min(min(row) for row in costs)
        for a, row in enumerate(costs):
            row[a % d] = least
    return costs


def _row(rng: Random, d: int, style: str) -> list[float]:
    """One prediction; its coordinates sum to 1 except in the styles box, grid and halves."""
    if style == "corners":
        return _one_hot(rng.randrange(d), d)
    if style in ("quarters", "eighths"):
        parts = 4 if style == "quarters" else 8
        counts = [0] * d
        for _ in range(parts):
            counts[rng.randrange(d)] += 1
        return [count / parts for count in counts]
    if style == "simplex":
        weights = [rng.randint(1, 1000) for _ in range(d)]
        total = sum(weights)
        return [weight / total for weight in weights]
    if style == "box":
        return [rng.choice((0.0, 1.0, rng.randint(0, 1000) / 1000)) for _ in range(d)]
    if style == "grid":
        return [rng.randint(0, ONE) / ONE for _ in range(d)]
    return [rng.randint(0, 16) / 16 for _ in range(d)]


def _one_hot(k: int, d: int) -> list[float]:
    return [float(j == k) for j in range(d)]


def _second_row(rng: Random, first: list[float], style: str, relation: str) -> list[float]:
    if relation == "mixed":
        relation = rng.choice(("independent", "swapped", "near", "equal"))
    if relation == "equal":
        return list(first)
    if relation == "swapped":  # the same values on other classes: same norm, other action
        return rng.sample(first, len(first))
    other = _row(rng, len(first), style)
    if relation == "near":
        return [0.75 * p + 0.25 * q for p, q in zip(first, other, strict=True)]
    return other


def _label(rng: Random, row_1: list[float], row_2: list[float], vector: bool) -> Any:
    """A class that one of the models likes, usually; or a vector, not always a distribution."""
    d = len(row_1)
    if vector:
        return _row(rng, d, rng.choice(("quarters", "corners", "simplex", "box")))
    if _maybe(rng, 0.3):
        return rng.randrange(d)
    row = rng.choice((row_1, row_2))
    return row.index(max(row))


def _rows(
    rng: Random,
    n: int,
    d: int,
    styles: Sequence[str],
    relation: str,
    vector_labels: bool,
    binary: bool,
    models: int,
) -> tuple[list[list[Any]], list[Any]]:
    """Scores and labels of n rows, drawn from a pool that is often much smaller than n."""
    distinct = rng.choice((min(n, 3), min(n, 8), n, n, n))
    pool = []
    for _ in range(distinct):
        row_1 = _row(rng, d, styles[0])
        row_2 = _second_row(rng, row_1, styles[1], relation)
        label = _label(rng, row_1, row_2, vector_labels)
        if binary and vector_labels:  # only a pair that sums to 1 keeps f0 + f1 = 1
            label = [1 - label[1], label[1]]
        more = [_second_row(rng, row_1, styles[1], relation) for _ in range(models - 2)]
        pool.append((row_1, row_2, label, *more))
    relabel = not vector_labels and _maybe(rng, 0.5)
    rows = pool if distinct == n else [rng.choice(pool) for _ in range(n)]
    scores = [[list(row[i]) for row in rows] for i in (0, 1, *range(3, models + 1))]
    y = [_label(rng, row[0], row[1], False) if relabel else row[2] for row in rows]
    if binary:
        return [[row[1] for row in f] for f in scores], y
    return scores, y

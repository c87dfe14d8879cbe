"""The slow reference: section 2 of the design as plain loops over Python integers and Fractions.

Written independently of the package, and kept free of cleverness: every step recomputes every
statistic from all rows. The fast code must give the same patch log, patch by patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

ONE = 2**26  # predictions and labels are integers in [0, ONE]
FIELDS = (
    *("step", "round", "kind", "model", "other", "loss", "a1", "a2"),
    *("action", "coordinate", "direction", "rows", "phi"),
)
ALGORITHMS = ("redcal", "decision_calibration", "reconcile", "dc_then_redcal")

Grid = list[list[int]]  # n rows of d grid integers
Patch = dict[str, Any]  # one line of the log, with the keys FIELDS


@dataclass(frozen=True)
class Problem:
    """The models' scores, the labels, the losses and the parameters, as a user gives them.

    more: the scores of models 3, 4, ...
    """

    f1: list[Any]  # n rows of d floats, or n floats when binary: one column P(1)
    f2: list[Any]
    y: list[Any]  # class indices, or n rows of d floats
    losses: dict[str, list[list[float]]]  # K x d costs; the order decides ties
    algorithm: str
    alpha: float | None = None
    eta: float | None = None
    beta: float | str = "auto"
    adaptive_beta: bool = False
    grid_bits: int | None = None
    max_rounds: int = 10_000
    max_steps: int = 1_000_000
    w: list[Any] | None = None  # weights, multiples of the unit; None: every row counts once
    weight_unit: float = 1.0
    more: list[list[Any]] = field(default_factory=list)

    @property
    def models(self) -> list[list[Any]]:
        """The scores of every model, in order."""
        return [self.f1, self.f2, *self.more]

    @property
    def binary(self) -> bool:
        """Whether the scores are a single column P(1)."""
        return not isinstance(self.f1[0], list)


@dataclass(frozen=True)
class Result:
    """The patch log, how the run ended, and the fitted scores on the grid."""

    log: list[Patch]
    status: str  # converged | capped | stalled
    f: list[Grid]
    beta: Fraction | None
    m: int
    zero_calibrations: int  # ended by an all-zero phi, in this call (not in the prefix)

    @property
    def f1(self) -> Grid:
        return self.f[0]

    @property
    def f2(self) -> Grid:
        return self.f[1]


def fit(problem: Problem, prefix: Sequence[Patch] = ()) -> Result:
    """Run the problem's algorithm; a prefix of its log is replayed first and continued from."""
    beta, m = resolve_beta(problem), grid_size(problem)
    run = Run(problem, grid_labels(problem), beta, m)
    for patch in prefix:
        run.replay(patch)
    try:
        status = run.run()
    except OutOfSteps:
        status = "capped"
    return Result(run.log, status, list(run.f.values()), beta, m, run.zero_calibrations)


def replay(problem: Problem, log: Sequence[Patch]) -> tuple[Grid, ...]:
    """Grid scores after the log, from the original scores; labels are not looked at."""
    run = Run(problem)
    for patch in log:
        run.replay(patch)
    return tuple(run.f.values())


def brier_sum(f: Grid, y: Grid, w: Sequence[int] | None = None) -> int:
    """Exact sum of the squared differences on the grid; a row counts w times."""
    return sum(
        weight * (label - score) ** 2
        for score_row, label_row, weight in zip(f, y, w or [1] * len(f), strict=True)
        for score, label in zip(score_row, label_row, strict=True)
    )


def decision_loss(problem: Problem, loss_name: str, f: Grid) -> Fraction:
    """Mean cost of acting on f, in the user's units."""
    costs = problem.losses[loss_name]
    quantised = quantise_loss(costs)
    total = Fraction(0)
    for row, label, weight in zip(f, grid_labels(problem), weights(problem), strict=True):
        action = argmin(action_scores(quantised, row))
        cost = sum(y * exact(cost) for y, cost in zip(label, costs[action], strict=True))
        total += weight * cost
    return total / (sum(weights(problem)) * ONE)


# 2.1 Numbers


def exact(x: float) -> Fraction:
    """The decimal that the user wrote."""
    return Fraction(repr(float(x)))


def parameter(name: str, value: float | str | None) -> Fraction:
    """A parameter in (0, 1] as the fraction it stands for."""
    if value is None or isinstance(value, str) or not 0 < exact(value) <= 1:
        raise ValueError(f"{name} must be a number in (0, 1], got {value!r}")
    return exact(value)


def quantise(p: float) -> int:
    """One probability on the grid."""
    q = np.rint(np.float64(p) * ONE)
    if not 0 <= q <= ONE:  # NaN fails this comparison too
        raise ValueError(f"{p!r} is not a probability")
    return int(q)


def grid_scores(scores: list[Any]) -> Grid:
    """Scores as n rows of d grid integers; one column P(1) gets its complement."""
    if not isinstance(scores[0], list):
        return [[ONE - quantise(p), quantise(p)] for p in scores]
    return [[quantise(p) for p in row] for row in scores]


def grid_labels(problem: Problem) -> Grid:
    """Labels as n rows of d grid integers."""
    d = 2 if problem.binary else len(problem.f1[0])
    rows: Grid = []
    for label in problem.y:
        if isinstance(label, list):
            rows.append([quantise(p) for p in label])
        elif 0 <= label < d:
            rows.append([ONE if j == label else 0 for j in range(d)])
        else:
            raise ValueError(f"class {label!r} is not in 0..{d - 1}")
    return rows


# 2.5 Weights


def weights(problem: Problem) -> list[int]:
    """As how many identical rows every row counts."""
    if problem.w is None:
        return [1] * len(problem.f1)
    unit = exact(problem.weight_unit)
    return [weight_of(value, unit) for value in problem.w]


def weight_of(value: Any, unit: Fraction) -> int:
    """The integer nearest to value / unit, if times the unit it is the value, in its own type.

    A value is an integer, a Decimal, a float (64 bits), or a float32 of numpy.
    """
    number = value.item() if isinstance(value, np.generic) else value
    given = Fraction(str(number)) if isinstance(value, Decimal) else Fraction(number)
    w = round(given / unit)
    if w < 0 or nearest_of_type(w * unit, value) != given:
        raise ValueError(f"{value!r} is no multiple of {unit}")
    return w


def nearest_of_type(x: Fraction, value: Any) -> Fraction:
    """x as the type of the value has it: as it is, or the nearest number with so many bits."""
    bits = 24 if isinstance(value, np.float32) else 53 if isinstance(value, float) else None
    if bits is None or x == 0:
        return x
    exponent = 0  # 2^exponent is the unit in the last place: x has just so many bits in it
    while x / Fraction(2) ** exponent >= 2**bits:
        exponent += 1
    while x / Fraction(2) ** exponent < 2 ** (bits - 1):
        exponent -= 1
    return round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent


def effective_rows(problem: Problem) -> int:
    """What `auto` takes for n."""
    w = weights(problem)
    return sum(w) ** 2 // sum(x * x for x in w)


# 2.1 Numbers, again


def loss_bits(d: int) -> int:
    """G; the bit length of d - 1 is ceil(log2(d)) without a logarithm."""
    return min(26, 36 - (max(2, d) - 1).bit_length())


def quantise_loss(costs: list[list[float]]) -> Grid:
    """The K x d costs rescaled to [0, 1] in float64, as integers of G bits."""
    matrix = np.array(costs, dtype=np.float64)
    low, high = matrix.min(), matrix.max()
    scaled = np.zeros_like(matrix) if high == low else (matrix - low) / (high - low)
    integers = np.rint(scaled * 2 ** loss_bits(matrix.shape[1]))
    return [[int(cost) for cost in row] for row in integers]


def resolve_beta(problem: Problem) -> Fraction | None:
    """The number beta stands for; None when the algorithm has no beta."""
    if problem.algorithm == "reconcile":
        return None
    if problem.beta != "auto":
        return parameter("beta", problem.beta)
    alone = problem.algorithm == "decision_calibration"
    eta = Fraction(1) if alone else parameter("eta", problem.eta)
    k = 1
    while True:  # from large to small, so the first that fits is the largest
        for a in range(99, 9, -1):
            if Fraction(a, 10**k) ** 2 <= eta / (4 * effective_rows(problem)):
                return Fraction(a, 10**k)
        k += 1


def grid_size(problem: Problem) -> int:
    """m: patches are whole multiples of 1 / m."""
    if problem.grid_bits is not None:
        return int(2**problem.grid_bits)
    d = 2 if problem.binary else len(problem.f1[0])
    beta = resolve_beta(problem)
    if beta is None:
        alpha, eta = parameter("alpha", problem.alpha), parameter("eta", problem.eta)
        needed = 4 / (alpha**2 * eta)
    elif problem.algorithm == "decision_calibration":
        needed = d / (2 * beta**2)
    else:
        alpha, eta = parameter("alpha", problem.alpha), parameter("eta", problem.eta)
        needed = d / (2 * min(beta**2, eta * alpha**2 / (4 * d)))
    m = 1
    while m**2 < needed and m < 2**26:
        m *= 2
    return m


def dot(u: list[int], v: list[int]) -> int:
    """Integer dot product."""
    return sum(a * b for a, b in zip(u, v, strict=True))


def minus(u: list[int], v: list[int]) -> list[int]:
    """Difference of two integer vectors."""
    return [a - b for a, b in zip(u, v, strict=True)]


def action_scores(loss: Grid, row: list[int]) -> list[int]:
    """What each action costs a row under its own prediction."""
    return [dot(costs, row) for costs in loss]


def argmin(scores: list[int]) -> int:
    """Position of the least score, the lowest on ties."""
    return scores.index(min(scores))


# 2.2 The algorithms


class OutOfSteps(Exception):
    """A patch is due and the log already holds max_steps."""


class Run:
    """Current scores of all models, the log so far, and the loops that extend it."""

    def __init__(
        self, problem: Problem, y: Grid | None = None, beta: Fraction | None = None, m: int = 1
    ) -> None:
        if problem.algorithm not in ALGORITHMS:
            raise ValueError(f"unknown algorithm {problem.algorithm!r}")
        self.problem = problem
        self.f = {i: grid_scores(scores) for i, scores in enumerate(problem.models, 1)}
        self.pairs = [(i, j) for i in self.f for j in self.f if i < j]
        self.y = y or []
        self.w = weights(problem)
        self.n, self.d = sum(self.w), len(self.f[1][0])
        self.losses = {name: quantise_loss(costs) for name, costs in problem.losses.items()}
        self.beta, self.m = beta, m
        self.log: list[Patch] = []
        self.event: list[int] = []  # rows of E, frozen at the first patch of a round
        self.zero_calibrations = 0

    def run(self) -> str:
        """Go on from the log to the end; returns the status."""
        if self.problem.algorithm == "reconcile":
            return self.reconcile()
        if self.problem.algorithm != "redcal":
            self.decision_calibration()
        if self.problem.algorithm != "decision_calibration":
            return self.redcal()
        return "converged"

    def redcal(self) -> str:
        """Algorithm 2."""
        eta = parameter("eta", self.problem.eta)
        round_ = 0
        if self.log and self.log[-1]["round"] is not None:  # resumed inside a round
            round_ = self.log[-1]["round"]
            self.calibrate_within_event(round_)
            round_ += 1
        while True:
            loss, a1, a2, i, j, event = self.largest_event()
            if self.mass(event) < eta * self.n:
                return "converged"
            if round_ >= self.problem.max_rounds:
                return "capped"
            contrast = minus(self.losses[loss][a1], self.losses[loss][a2])
            error_i = abs(dot(self.residual_sums(i, event), contrast))
            error_j = abs(dot(self.residual_sums(j, event), contrast))
            model, other = (i, j) if error_i >= error_j else (j, i)
            phi = self.rounded_mean(self.residual_sums(model, event), self.mass(event))
            if not any(phi):
                return "stalled"
            where = {"other": other, "loss": loss, "a1": a1, "a2": a2}
            self.record(round_, "reconcile", model, event, phi, **where)
            self.event = event
            self.shift(model, event, phi)
            self.calibrate_within_event(round_)
            round_ += 1

    def decision_calibration(self) -> None:
        """Algorithm 1 everywhere, model 1, then 2, and so on, from where the log has got to."""
        reached = 1
        if self.log:
            last = self.log[-1]
            reached = last["model"] if last["round"] is None else len(self.f) + 1
        assert self.beta is not None
        for model in self.f:
            if model >= reached:
                self.calibrate(model, None, list(range(len(self.w))), self.beta**2)

    def calibrate_within_event(self, round_: int) -> None:
        """Algorithm 1 within the event of this round."""
        first = next(p for p in self.log if p["round"] == round_ and p["kind"] == "reconcile")
        assert self.beta is not None
        beta_squared = self.beta**2
        if self.problem.adaptive_beta:
            loss = self.losses[first["loss"]]
            own = loss[first["a1"] if first["model"] < first["other"] else first["a2"]]
            labels = self.sums(self.y, self.event)
            gain = max(dot(labels, minus(own, other)) for other in loss)
            delta = Fraction(gain, self.n * ONE * 2 ** loss_bits(self.d))
            beta_squared = max(beta_squared, delta**2 / (self.d * len(loss) ** 2))
        self.calibrate(first["model"], round_, self.event, beta_squared)

    def calibrate(
        self, model: int, round_: int | None, event: list[int], beta_squared: Fraction
    ) -> None:
        """Algorithm 1 on these rows."""
        while True:
            largest = -1
            for loss, costs in self.losses.items():
                acting = [argmin(action_scores(costs, self.f[model][i])) for i in event]
                for action in range(len(costs)):
                    rows = [i for i, a in zip(event, acting, strict=True) if a == action]
                    residuals = self.residual_sums(model, rows)
                    if dot(residuals, residuals) > largest:
                        largest = dot(residuals, residuals)
                        chosen = loss, action, rows, residuals
            if largest <= beta_squared * (self.n * ONE) ** 2:
                return
            loss, action, rows, residuals = chosen
            phi = self.rounded_mean(residuals, self.mass(rows))
            if not any(phi):
                self.zero_calibrations += 1
                return
            self.record(round_, "calibrate", model, rows, phi, loss=loss, action=action)
            self.shift(model, rows, phi)

    def reconcile(self) -> str:
        """Algorithm 3, coordinate by coordinate."""
        eta = parameter("eta", self.problem.eta)
        round_ = self.log[-1]["round"] + 1 if self.log else 0
        while True:
            largest, beyond = Fraction(-1), False
            for c in [1] if self.problem.binary else range(self.d):
                for direction in "><":
                    for pair in self.pairs:
                        above = self.rows_beyond(c, ">", pair)
                        below = self.rows_beyond(c, "<", pair)
                        if self.mass(above) + self.mass(below) < eta * self.n:
                            continue
                        beyond = True
                        rows = above if direction == ">" else below
                        mass = self.mass(rows)
                        for model in pair:
                            if not mass:
                                continue  # an empty side has no mean
                            residual = self.residual_sums(model, rows)[c]
                            value = mass * Fraction(residual, mass) ** 2
                            if value > largest:
                                largest = value
                                chosen = c, direction, pair, model, rows, residual
            if not beyond:
                return "converged"
            if round_ >= self.problem.max_rounds:
                return "capped"
            c, direction, pair, model, rows, residual = chosen
            phi = self.rounded_mean([residual], self.mass(rows))
            if not any(phi):
                return "stalled"
            other = pair[1] if model == pair[0] else pair[0]
            where = {"other": other, "coordinate": c, "direction": direction}
            self.record(round_, "score", model, rows, phi, **where)
            self.shift_coordinate(model, rows, c, phi[0])
            round_ += 1

    # What the loops look at

    def largest_event(self) -> tuple[str, int, int, int, int, list[int]]:
        """The disagreement event with the most rows; the first in order on ties."""
        return max(self.all_events(), key=lambda event: self.mass(event[5]))  # max keeps the first

    def mass(self, rows: list[int]) -> int:
        """As how many identical rows these count."""
        return sum(self.w[i] for i in rows)

    def events(self) -> Iterator[tuple[str, int, int, list[int]]]:
        """Those of models 1 and 2: every E(loss, a1, a2) with its rows."""
        for loss, a1, a2, i, j, rows in self.all_events():
            if (i, j) == (1, 2):
                yield loss, a1, a2, rows

    def all_events(self) -> Iterator[tuple[str, int, int, int, int, list[int]]]:
        """Every E(loss, a1, a2; i, j) with its rows, by loss, a1, a2, i, j."""
        alpha = parameter("alpha", self.problem.alpha)
        threshold = floor(alpha * ONE * 2 ** loss_bits(self.d))
        for name, loss in self.losses.items():
            scores = {i: [action_scores(loss, row) for row in f] for i, f in self.f.items()}
            for a1 in range(len(loss)):
                for a2 in range(len(loss)):
                    for i, j in self.pairs if a1 != a2 else ():
                        event = []
                        for row, (s1, s2) in enumerate(zip(scores[i], scores[j], strict=True)):
                            apart = s1[a2] - s1[a1] > threshold or s2[a1] - s2[a2] > threshold
                            if argmin(s1) == a1 and argmin(s2) == a2 and apart:
                                event.append(row)
                        yield name, a1, a2, i, j, event

    def rows_acting(self, model: int, loss: str, action: int, event: list[int]) -> list[int]:
        """Rows of the event whose best response under the loss is this action."""
        f, costs = self.f[model], self.losses[loss]
        return [i for i in event if argmin(action_scores(costs, f[i])) == action]

    def rows_beyond(self, c: int, direction: str, pair: tuple[int, int] = (1, 2)) -> list[int]:
        """U(c, >; i, j) or U(c, <; i, j): rows whose coordinate c differs by more than alpha."""
        threshold = floor(parameter("alpha", self.problem.alpha) * ONE)
        sign = 1 if direction == ">" else -1
        f_i, f_j = self.f[pair[0]], self.f[pair[1]]
        return [r for r in range(len(self.w)) if sign * (f_i[r][c] - f_j[r][c]) > threshold]

    def sums(self, matrix: Grid, rows: list[int]) -> list[int]:
        """Column sums over these rows, each counted as often as it weighs."""
        return [sum(self.w[i] * matrix[i][j] for i in rows) for j in range(self.d)]

    def residual_sums(self, model: int, rows: list[int]) -> list[int]:
        """R: column sums of y - f over these rows."""
        return minus(self.sums(self.y, rows), self.sums(self.f[model], rows))

    def rounded_mean(self, sums: list[int], count: int) -> list[int]:
        """phi: the mean rounded to whole steps of 1 / m, half to even."""
        step = ONE // self.m
        return [round(Fraction(total, count * step)) * step for total in sums]

    # What changes the state

    def record(
        self,
        round_: int | None,
        kind: str,
        model: int,
        rows: list[int],
        phi: list[int],
        **where: Any,
    ) -> None:
        """Append a patch to the log, unless the log is full."""
        step = len(self.log)
        if step >= self.problem.max_steps:
            raise OutOfSteps
        patch: Patch = dict.fromkeys(FIELDS)
        patch |= {"step": step, "round": round_, "kind": kind, "model": model}
        patch |= {"rows": self.mass(rows), "phi": phi} | where
        self.log.append(patch)

    def shift(self, model: int, rows: list[int], phi: list[int]) -> None:
        """Add phi to these rows and clip to the box."""
        for i in rows:
            self.f[model][i] = [
                min(max(q + p, 0), ONE) for q, p in zip(self.f[model][i], phi, strict=True)
            ]

    def shift_coordinate(self, model: int, rows: list[int], j: int, phi: int) -> None:
        """Add phi to one coordinate of these rows and clip; a binary complement follows."""
        for i in rows:
            row = self.f[model][i]
            row[j] = min(max(row[j] + phi, 0), ONE)
            if self.problem.binary:
                row[1 - j] = ONE - row[j]

    def rows_of(self, patch: Patch) -> list[int]:
        """The rows a logged patch moves, which follow from the current scores alone."""
        if patch["kind"] == "score":
            pair = min(patch["model"], patch["other"]), max(patch["model"], patch["other"])
            return self.rows_beyond(patch["coordinate"], patch["direction"], pair)
        if patch["kind"] == "calibrate":
            event = list(range(len(self.w))) if patch["round"] is None else self.event
            return self.rows_acting(patch["model"], patch["loss"], patch["action"], event)
        i, j = sorted((patch["model"], patch["other"]))
        wanted = patch["loss"], patch["a1"], patch["a2"], i, j
        return next(event[5] for event in self.all_events() if event[:5] == wanted)

    def replay(self, patch: Patch) -> None:
        """Apply a logged patch; the first of a round decides the round's event."""
        rows = self.rows_of(patch)
        if patch["kind"] == "reconcile":
            self.event = rows
        if patch["kind"] == "score":
            self.shift_coordinate(patch["model"], rows, patch["coordinate"], patch["phi"][0])
        else:
            self.shift(patch["model"], rows, patch["phi"])
        self.log.append(dict(patch))

"""`eta: auto` written plainly from section 2.8, with the slow reference for every fit.

Nothing of the package is used: hashes are loops over bytes, losses are Fractions.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tests import oracle
from tests.oracle import ONE, Problem

ETAS = (0.02, 0.01, 0.005, 0.002)
ALL = 2**64 - 1


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the numbers of every candidate: eta, beta's rule, loss, fits."""

    eta: float
    rule: int | None
    candidates: list[dict[str, Any]]
    k: int
    used: list[int]  # the weights of each fold's rows, added up
    counted: int  # rows of both folds, each once
    before: tuple[Fraction, int]  # loss and weight in events without any patch

    def problem(self, given: Problem) -> Problem:
        """The rule resolved anew on all rows."""
        return with_rule(given, self.eta, self.rule)


def mix(x: int) -> int:
    """splitmix64's finaliser."""
    x = (x + 0x9E3779B97F4A7C15) & ALL
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & ALL
    return x ^ (x >> 31)


def seed() -> int:
    return int.from_bytes(hashlib.blake2b(b"tune", digest_size=8).digest(), "little")


def text_hash(text: bytes) -> int:
    value = seed()
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) & ALL
    return mix(value ^ len(text))


def hashes(problem: Problem, ids: Sequence[Any] | None) -> list[int]:
    """Per row: of its id, or of its grid integers and label."""
    if ids is not None:
        return [
            text_hash(id.encode()) if isinstance(id, str) else mix((id % 2**64) ^ seed())
            for id in ids
        ]
    models = [oracle.grid_scores(scores) for scores in problem.models]
    found = []
    for *scores, y in zip(*models, problem.y, strict=True):
        if isinstance(y, list):
            label = [oracle.quantise(p) for p in y]
            if problem.binary:
                label[0] = ONE - label[1]
        else:
            label = [y]
        numbers = [q for each in scores for q in each] + label
        found.append(text_hash(struct.pack(f"<{len(numbers)}i", *numbers)))
    return found


def take(problem: Problem, rows: Sequence[int]) -> Problem:
    f1, f2, y, *more = (
        [column[i] for i in rows] for column in (problem.f1, problem.f2, problem.y, *problem.more)
    )
    w = None if problem.w is None else [problem.w[i] for i in rows]
    return replace(problem, f1=f1, f2=f2, y=y, more=more, w=w)


def with_rule(problem: Problem, eta: float, rule: int | None) -> Problem:
    problem = replace(problem, eta=eta)
    if rule is None:
        return problem
    beta = oracle.resolve_beta(replace(problem, beta="auto"))
    assert beta is not None
    return replace(problem, beta=float(rule * beta))


def active(problem: Problem) -> set[int]:
    """Rows in some event; all, if a calibration everywhere comes first. Weight 0: not fitted."""
    fitting = {i for i, w in enumerate(oracle.weights(problem)) if w}
    if problem.algorithm == "dc_then_redcal":
        return fitting
    return fitting & {i for *_, rows in oracle.Run(problem).all_events() for i in rows}


def rescaled_loss(problem: Problem, models: Sequence[oracle.Grid]) -> Fraction:
    """Summed over rows, losses and models; each loss rescaled to [0, 1]."""
    total = Fraction(0)
    labels, weights = oracle.grid_labels(problem), oracle.weights(problem)
    for costs in problem.losses.values():
        flat = [oracle.exact(c) for row in costs for c in row]
        low, high = min(flat), max(flat)
        if low == high:
            continue
        quantised = oracle.quantise_loss(costs)
        for f in models:
            for row, y, w in zip(f, labels, weights, strict=True):
                action = oracle.argmin(oracle.action_scores(quantised, row))
                for label, cost in zip(y, costs[action], strict=True):
                    total += w * Fraction(label, ONE) * (oracle.exact(cost) - low) / (high - low)
    return total


def tune(
    given: Problem, ids: Sequence[Any] | None = None, tune_rows: int = 1_000_000
) -> Choice | None:
    """None: a fold is empty."""
    known, weights = hashes(given, ids), oracle.weights(given)
    moving = active(replace(given, eta=0.01))
    k = 0
    while sum(known[i] < 2 ** (64 - k) for i in moving) > tune_rows:
        k += 1
    folds = [
        [i for i, h in enumerate(known) if h < 2 ** (64 - k) and h % 2 == fold and weights[i]]
        for fold in (0, 1)
    ]
    if not all(folds):
        return None
    rules = [1, 4] if given.beta == "auto" else [None]
    candidates: list[dict[str, Any]] = []
    for eta in ETAS:
        for rule in rules:
            fits, loss = [], Fraction(0)
            for fold in (0, 1):
                own = with_rule(take(given, folds[fold]), eta, rule)
                result = oracle.fit(own)
                other = of_rows(own, given, folds[1 - fold])
                after = oracle.replay(other, result.log)
                loss += rescaled_loss(other, after)
                n = sum(oracle.weights(own))
                known_fit = (n, result.beta, result.m, len(result.log), result.status)
                fits.append((*known_fit, disputed(other, result.log)))
            candidates.append({"eta": eta, "rule": rule, "loss": loss, "fits": fits})
    best = min(candidates, key=lambda c: (c["loss"], -c["eta"], -(c["rule"] or 0)))
    some = take(given, sorted(folds[0] + folds[1]))
    loss = rescaled_loss(some, oracle.replay(some, []))
    before = loss, disputed(some)
    used = [sum(weights[i] for i in fold) for fold in folds]
    counted = sum(map(len, folds))
    return Choice(best["eta"], best["rule"], candidates, k, used, counted, before)


def disputed(problem: Problem, log: Sequence[oracle.Patch] = ()) -> int:
    """The weight of the rows that are in some event after a log."""
    run = oracle.Run(problem)
    for patch in log:
        run.replay(patch)
    return run.mass(list({i for *_, rows in run.all_events() for i in rows}))


def of_rows(fitted: Problem, given: Problem, rows: Sequence[int]) -> Problem:
    """A fold's parameters with the rows of another one."""
    some = take(given, rows)
    return replace(fitted, f1=some.f1, f2=some.f2, y=some.y, more=some.more, w=some.w)

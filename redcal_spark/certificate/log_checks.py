"""The log by itself: whether every patch is one that the algorithm could make at its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.patches import Patch

KINDS = {
    "redcal": {"reconcile", "calibrate"},
    "dc_then_redcal": {"reconcile", "calibrate"},
    "decision_calibration": {"calibrate"},
    "reconcile": {"score"},
}


def parameters(pair: Fitted) -> Iterator[str]:
    """The resolved numbers are those of the parameters."""
    expected = pair.parameters.resolve(pair.rows, pair.n_classes)
    for field in fields(expected):
        ours, theirs = getattr(pair.resolved, field.name), getattr(expected, field.name)
        if ours != theirs:
            yield f"{field.name} is {ours}, but the parameters say {theirs}"


def log(pair: Fitted) -> Iterator[str]:
    """Every patch is one that the algorithm could make at its place."""
    given = pair.parameters
    opened: Patch | None = None
    rounds, model = 0, 1
    for place, patch in enumerate(pair.log):
        where = f"patch {place}"
        if patch.step != place:
            yield f"{where} says step {patch.step}"
        if patch.kind not in KINDS[given.algorithm]:
            yield f"{where}: {given.algorithm} has no {patch.kind!r}"
            continue
        yield from (f"{where}: {told}" for told in _place(pair, patch))
        if patch.kind != "calibrate":
            if patch.round != rounds:
                yield f"{where} opens round {patch.round}, not {rounds}"
            opened, rounds = patch, rounds + 1
        elif patch.round is None:
            if given.algorithm == "redcal" or opened is not None:
                yield f"{where} calibrates everywhere, within rounds"
            if patch.model < model:
                yield f"{where}: model {patch.model} is calibrated after model {model}"
            model = patch.model
        elif opened is None or patch.round != opened.round:
            yield f"{where} belongs to round {patch.round}, which is not open"
        elif patch.model != opened.model or patch.rows > opened.rows:
            yield f"{where} leaves the event of round {patch.round}"
    if len(pair.log) > given.max_steps or rounds > given.max_rounds:
        yield f"{len(pair.log)} patches in {rounds} rounds are more than allowed"


def _place(pair: Fitted, patch: Patch) -> Iterator[str]:
    """What must be true of a patch by itself."""
    d, n, step = pair.n_classes, pair.rows, pair.resolved.step
    if patch.model not in (1, 2):
        yield f"there is no model {patch.model}"
    if not 1 <= patch.rows <= n:
        yield f"{patch.rows} of {n} rows"
    if len(patch.phi) != (1 if patch.kind == "score" else d) or not any(patch.phi):
        yield f"phi has {len(patch.phi)} values, or only zeros"
    if any(x % step or abs(x) > ONE for x in patch.phi):
        yield f"phi is not on the grid of {pair.resolved.m} steps"
    if patch.kind == "score":
        allowed = (1,) if pair.binary else range(d)
        if patch.coordinate not in allowed or patch.direction not in (">", "<"):
            yield f"no coordinate {patch.coordinate!r} {patch.direction!r}"
        return
    known = {loss.name: loss.n_actions for loss in pair.losses.losses}
    if patch.loss not in known:
        yield f"no loss {patch.loss!r}"
        return
    k = known[patch.loss]
    actions = (patch.action,) if patch.kind == "calibrate" else (patch.a1, patch.a2)
    if not all(a is not None and 0 <= a < k for a in actions):
        yield f"no actions {actions} in loss {patch.loss!r}"
    if patch.kind == "reconcile":
        eta = pair.resolved.eta
        assert eta is not None
        if patch.a1 == patch.a2:
            yield f"both models take action {patch.a1}"
        if patch.rows < eta * n:
            yield f"an event of {patch.rows} rows is below eta"

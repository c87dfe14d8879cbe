"""The log by itself: whether every patch is one that the algorithm could make at its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from redcal_spark.core.fitted import Fitted
from redcal_spark.core.fixed_point import ONE
from redcal_spark.core.patches import Patch


def parameters(pair: Fitted) -> Iterator[str]:
    """The resolved numbers are those of the parameters."""
    expected = pair.parameters.resolve(int(pair.effective), pair.n_classes)
    for field in fields(expected):
        ours, theirs = getattr(pair.resolved, field.name), getattr(expected, field.name)
        if ours != theirs:
            yield f"{field.name} is {ours}, but the parameters say {theirs}"


def replayable(pair: Fitted) -> Iterator[str]:
    """All that a replay needs: kinds of the algorithm, names of what exists, rounds in order."""
    known = {loss.name: loss.n_actions for loss in pair.losses.losses}
    round: int | None = None
    models = range(1, pair.columns.n_models + 1)
    for patch in pair.log:
        where = f"patch {patch.step}"
        if not {patch.model, patch.other} <= {None, *models}:
            both = f"models {patch.model} and {patch.other}"
            yield f"{where}: is of {both}, where there are {len(models)}"
        if patch.kind not in pair.parameters.kinds:
            yield f"{where}: {pair.parameters.algorithm} has no {patch.kind!r}"
            continue
        width = 1 if patch.kind == "score" else pair.n_classes
        if len(patch.phi) != width:
            yield f"{where}: phi has {len(patch.phi)} values, not {width}"
        if patch.kind == "score":
            if patch.coordinate not in range(pair.n_classes) or patch.direction not in (">", "<"):
                yield f"{where}: no class {patch.coordinate} {patch.direction}"
        elif patch.loss not in known:
            yield f"{where}: no loss {patch.loss!r}"
        else:
            actions = (patch.action,) if patch.kind == "calibrate" else (patch.a1, patch.a2)
            if not all(a in range(known[patch.loss]) for a in actions):
                yield f"{where}: an action that loss {patch.loss!r} has not"
        if patch.kind != "calibrate":
            round = patch.round
        elif patch.round != round:
            yield f"{where}: belongs to round {patch.round}, within {round}"


def log(pair: Fitted) -> Iterator[str]:
    """Every patch is one that the algorithm could make at its place."""
    wrong = list(replayable(pair))
    if wrong:
        yield from wrong
        return
    given = pair.parameters
    opened: Patch | None = None
    rounds, model = 0, 1
    for place, patch in enumerate(pair.log):
        where = f"patch {place}"
        if patch.step != place:
            yield f"{where} says step {patch.step}"
        yield from (f"{where}: {reason}" for reason in _impossible(pair, patch))
        if patch.kind != "calibrate":
            if patch.round != rounds:
                yield f"{where} opens round {patch.round}, not {rounds}"
            opened, rounds = patch, rounds + 1
        elif opened is None:
            if not given.calibrates_everywhere:
                yield f"{where} calibrates everywhere, which {given.algorithm} does not"
            if patch.model < model:
                yield f"{where}: model {patch.model} is calibrated after model {model}"
            model = patch.model
        elif patch.model != opened.model or patch.rows > opened.rows:
            yield f"{where} leaves the event of round {patch.round}"
    if len(pair.log) > given.max_steps or rounds > given.max_rounds:
        yield f"{len(pair.log)} patches in {rounds} rounds are more than allowed"


def _impossible(pair: Fitted, patch: Patch) -> Iterator[str]:
    """What can be true of no patch, wherever it stands."""
    n, resolved = pair.rows, pair.resolved
    for model in {patch.model, patch.other} - {None, *range(1, pair.columns.n_models + 1)}:
        yield f"there is no model {model}"
    if not 1 <= patch.rows <= n:
        yield f"{patch.rows} of {n} rows"
    if not any(patch.phi):
        yield "phi has only zeros"
    if any(x % resolved.step or abs(x) > ONE for x in patch.phi):
        yield f"phi is not on the grid of {resolved.m} steps"
    if patch.kind == "score" and pair.binary and patch.coordinate != 1:
        yield f"class {patch.coordinate} is not looked at where scores are P(class 1)"
    if patch.kind == "reconcile":
        assert resolved.eta is not None
        if patch.a1 == patch.a2:
            yield f"both models take action {patch.a1}"
        if patch.rows < resolved.eta * n:
            yield f"an event of {patch.rows} rows is below eta"

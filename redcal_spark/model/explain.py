"""The journey of one row through a log, replayed patch by patch."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from operator import mul

import numpy as np
import pyarrow as pa

from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Layout
from redcal_spark.core.events import Pair
from redcal_spark.core.fixed_point import BITS, from_grid
from redcal_spark.core.kernel import Rules, beyond_gap, classify
from redcal_spark.core.losses import Loss
from redcal_spark.core.parameters import Parameters, Status
from redcal_spark.core.patches import Patch
from redcal_spark.core.reading import BadRows, read
from redcal_spark.core.rows import Rows
from redcal_spark.core.shown_values import value_of
from redcal_spark.model.explanation import Explanation
from redcal_spark.model.row_states import Standing, State, Step, correction, product


def explain(
    table: pa.Table,
    layout: Layout,
    rules: Rules,
    log: Sequence[Patch],
    parameters: Parameters,
    status: Status,
) -> Explanation:
    """Replay the log on one row, patch by patch. E of a round follows from the row's own scores."""
    (batch,) = table.combine_chunks().to_batches()
    problems = BadRows()
    reading = read(batch, layout, problems, None)
    problems.raise_if_any("the row")
    given = tuple(_given(batch, layout, model) for model in range(1, rules.models + 1))
    rows = Rows(Block(reading.block.f), rules)
    start = state = _state(rows, given)
    steps = []
    for patch in log:
        if len(rows.apply(patch)):
            before, state = state, _state(rows, given)
            steps.append(Step(patch, correction(patch, rules.losses), before, state))
    id, eta = layout.columns.id, parameters.eta
    assert eta != "auto"  # what was fitted has a number
    return Explanation(
        id=None if id is None else value_of(batch.column(id)[0]),
        algorithm=parameters.algorithm,
        alpha=parameters.alpha,
        eta=eta,
        status=status,
        patches=len(log),
        start=start,
        steps=tuple(steps),
        end=state,
        losses=rules.losses,
        classes=layout.columns.classes,
        models=layout.columns.model_names,
        unit=layout.columns.unit,
    )


def _given(batch: pa.RecordBatch, layout: Layout, model: int) -> tuple[float, ...]:
    """The scores as they were given, one per class."""
    source, form = layout.columns.scores(model), layout.forms[model - 1]
    if form == "array":
        assert isinstance(source, str)
        values = batch.column(source).flatten()
        return tuple(values.cast(pa.float64(), safe=False).to_pylist())
    names = [source] if isinstance(source, str) else source
    scores = [batch.column(n).cast(pa.float64(), safe=False)[0].as_py() for n in names]
    return (1 - scores[0], scores[0]) if form == "binary" else tuple(scores)


def _state(rows: Rows, given: Sequence[tuple[float, ...]]) -> State:
    block, rules = rows.current(), rows.rules
    _, events = classify(block, rules)
    grid = tuple(tuple(f[0].tolist()) for f in rows.f)
    standings = []
    for place, loss in enumerate(rules.losses.losses):
        index = tuple(int(actions[place, 0]) for actions in rows.actions)
        inside = np.flatnonzero(events[place, :, 0] != rules.losses.no_event).tolist()
        pairs = tuple(rules.pairs[pair] for pair in inside)
        standings.append(_standing(loss, index, grid, pairs))
    beyond: tuple[int, ...] = ()
    if rules.gap is not None:
        far = beyond_gap(block, rules)[0]
        part = range(*rules.coordinates.indices(block.n_classes))
        beyond = tuple(j for j, apart in zip(part, far.tolist(), strict=True) if apart)
    scores = tuple(
        tuple(from_grid(f[0]).tolist()) if touched[0] else own
        for f, touched, own in zip(rows.f, rows.touched, given, strict=True)
    )
    return State(scores, grid, tuple(standings), beyond)


def _standing(
    loss: Loss, index: tuple[int, ...], f: Sequence[Sequence[int]], events: tuple[Pair, ...]
) -> Standing:
    unit = 1 << BITS + loss.bits
    margins = []
    for own, row in zip(index, f, strict=True):
        scores = [sum(map(mul, loss.quantised[a].tolist(), row)) for a in index]
        margins.append(Fraction(max(scores) - scores[index.index(own)], unit))
    return Standing(
        loss.name,
        index,
        tuple(loss.actions[a] for a in index),
        tuple(margins),
        tuple(tuple(product(loss, a, None, row) for a in index) for row in f),
        events,
    )

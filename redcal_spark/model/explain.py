"""The journey of one row through a log, replayed patch by patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark.core.arrow import from_numpy, to_arrow
from redcal_spark.core.blocks import Block
from redcal_spark.core.columns import Columns, Layout, value_of
from redcal_spark.core.events import Pair
from redcal_spark.core.fixed_point import BITS, from_grid
from redcal_spark.core.kernel import Rules, beyond_gap, classify
from redcal_spark.core.losses import Loss
from redcal_spark.core.parameters import Parameters, Status
from redcal_spark.core.patches import Patch
from redcal_spark.core.reading import BadRows, read
from redcal_spark.core.rows import Rows
from redcal_spark.errors import InputError, UsageError
from redcal_spark.model.explanation import Explanation
from redcal_spark.model.row_states import Standing, State, Step, correction, product


def one_row(columns: Columns, row: Any, model_2: Any = None) -> tuple[pa.Table, Columns]:
    """What a user holds of one row as a table, and its columns; an id is not needed.

    row: a mapping, a pandas or Spark row, a table of one row; or the scores of model 1, with those
    of model 2 beside them, or the scores of every model as a list or tuple.
    """
    scores: Sequence[Any] | None = None if model_2 is None else [row, model_2]
    if model_2 is None and isinstance(row, tuple | list) and not hasattr(row, "asDict"):
        scores, needed = row, columns.n_models
        if len(row) != needed and needed == 2:
            raise UsageError(f"explain: a pair (scores, scores) is needed, got {len(row)} parts")
        if len(row) != needed:
            raise UsageError(f"explain: the scores of {needed} models are needed, got {len(row)}")
    if scores is not None:
        table = from_numpy(columns, [_one(own) for own in scores])
    elif hasattr(row, "asDict"):  # a row of Spark's
        table = _from_mapping(columns, row.asDict())
    elif isinstance(row, Mapping):
        table = _from_mapping(columns, row)
    elif hasattr(row, "to_dict") and not hasattr(row, "columns"):  # a row of pandas'
        table = _from_mapping(columns, row.to_dict())
    else:
        table = to_arrow(row, columns.names(label=False))
    if table.num_rows != 1:
        raise UsageError(f"explain: takes one row, got {table.num_rows:,}")
    if columns.id is not None and columns.id not in table.column_names:
        columns = replace(columns, id=None)
    return table.combine_chunks(), columns


def _from_mapping(columns: Columns, row: Mapping[Any, Any]) -> pa.Table:
    wanted = columns.names(label=False)
    arrays = {}
    for name, value in row.items():
        if name not in wanted:
            arrays[str(name)] = pa.nulls(1)  # seen in messages only
            continue
        try:
            arrays[name] = pa.array([value])
        except (pa.ArrowException, TypeError, ValueError) as err:
            raise InputError(f"column {name!r}: {str(err).splitlines()[0]}") from err
    return pa.table(arrays)


def _one(scores: Any) -> Any:
    """Scores of one row as those of a table: a number, or a vector."""
    array = np.asarray(scores)
    return array[None] if array.ndim == 0 or (array.ndim == 1 and len(array) > 1) else array


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
    id = layout.columns.id
    return Explanation(
        id=None if id is None else value_of(batch.column(id)[0]),
        algorithm=parameters.algorithm,
        alpha=parameters.alpha,
        eta=parameters.eta,
        status=status,
        patches=len(log),
        start=start,
        steps=tuple(steps),
        end=state,
        losses=rules.losses,
        classes=layout.columns.classes,
        models=layout.columns.model_names,
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

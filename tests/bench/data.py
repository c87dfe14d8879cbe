"""Seeded rows: two noisy views of one truth, and labels drawn from the truth."""

from __future__ import annotations

import os
from functools import partial
from string import ascii_lowercase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark.backends.threads import ordered
from redcal_spark.core.blocks import Block
from redcal_spark.core.fixed_point import to_grid
from redcal_spark.core.losses import LossFamily

ROW_GROUP = 131_072
PIECE = 65_536  # rows drawn at a time, each piece from its own seed

Single = npt.NDArray[np.float32]


def losses(count: int, classes: int, actions: int = 10, seed: int = 100) -> LossFamily:
    """N(0, 1) costs."""
    rng = np.random.default_rng(seed)
    return LossFamily.of({f"loss_{i}": rng.normal(size=(actions, classes)) for i in range(count)})


def block(rows: int, d: int, seed: int = 1, *, noise: float = 0.35, tilt: float = 0.2) -> Block:
    """Rows on the grid, with models far enough apart for a hundred patches or two."""
    starts = range(0, rows, PIECE)
    return Block.concat(
        [
            _on_grid(*_draw(min(PIECE, rows - start), d, (seed, start), noise, tilt))
            for start in starts
        ]
    )


def sharp_block(rows: int, d: int, seed: int = 1) -> Block:
    """Scores as classifiers of many classes give them: most of the mass on a few, often wrongly."""
    rng = np.random.default_rng(seed)
    truth = 2.5 * rng.standard_normal((rows, d), dtype=np.float32)
    views = [
        _softmax(1.6 * (truth + rng.standard_normal((rows, d), dtype=np.float32))) for _ in range(2)
    ]
    return _on_grid(drawn_labels(_softmax(truth), rng), *views)


def write_parquet(
    path: str | os.PathLike[str],
    rows: int,
    d: int,
    seed: int,
    float32: bool = False,
    codec: str = "zstd",
    *,
    noise: float = 0.1,
    tilt: float = 0.05,
) -> None:
    """Stream rows to a file: id, label, scores_a and scores_b, a few row groups in memory."""
    schema = table_schema(pa.float32() if float32 else pa.float64())
    groups = [(start, min(ROW_GROUP, rows - start)) for start in range(0, rows, ROW_GROUP)]
    with pq.ParquetWriter(path, schema, compression=codec, use_dictionary=False) as file:
        for batch in ordered(partial(_batch, schema, d, seed, noise, tilt), groups):
            file.write_batch(batch)


def table_schema(number: pa.DataType, models: int = 2, weighted: bool = False) -> pa.Schema:
    """The columns of every table: scores_a, scores_b and so on are lists of `number`."""
    scores = {f"scores_{letter}": pa.list_(number) for letter in ascii_lowercase[:models]}
    weight = {"weight": pa.int32()} if weighted else {}
    return pa.schema({"id": pa.int64(), "label": pa.int32()} | scores | weight)


def _batch(
    schema: pa.Schema, d: int, seed: int, noise: float, tilt: float, group: tuple[int, int]
) -> pa.RecordBatch:
    start, rows = group
    label, one, two = _draw(rows, d, (seed, start), noise, tilt)
    number = schema.field("scores_a").type.value_type.to_pandas_dtype()
    # divided in float64, for all bits of a real score are in use
    wide = [scores.astype(number) for scores in (one, two)]
    for scores in wide:
        scores /= scores.sum(axis=1, keepdims=True)
    return as_batch(schema, start, label, *wide)


def as_batch(
    schema: pa.Schema,
    start: int,
    label: npt.NDArray[np.int32],
    *models: Any,
    weight: npt.NDArray[np.int32] | None = None,
) -> pa.RecordBatch:
    """Rows whose ids count from `start`, without copying their scores."""
    arrays = [pa.array(np.arange(start, start + len(label))), pa.array(label)]
    for scores in models:
        rows, d = scores.shape
        offsets = pa.array(np.arange(0, (rows + 1) * d, d, dtype=np.int32))
        arrays.append(pa.ListArray.from_arrays(offsets, pa.array(scores.reshape(-1))))
    if weight is not None:
        arrays.append(pa.array(weight))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _draw(
    rows: int, d: int, seed: tuple[int, int], noise: float, tilt: float
) -> tuple[npt.NDArray[np.int32], Single, Single]:
    """Labels and the two views; model 1 is too flat, model 2 too sharp, both by `tilt`."""
    label, one, two = _views(rows, d, seed, noise, tilt, 2)
    return label, one, two


def _views(
    rows: int, d: int, seed: tuple[int, int], noise: float, tilt: float, models: int
) -> tuple[Any, ...]:
    """Labels and the views of so many models, by turns too flat and too sharp."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_exponential((rows, d), dtype=np.float32)  # Dirichlet(1, ..., 1)
    truth += np.float32(1e-6)
    truth /= truth.sum(axis=1, keepdims=True)
    views = []
    for model in range(models):
        sign = model % 2 * 2 - 1
        view = rng.random((rows, d), dtype=np.float32)
        view -= np.float32(0.5)
        view *= np.float32(2 * noise)
        view += np.float32(1)
        view *= truth ** np.float32(1 + sign * tilt)
        view /= view.sum(axis=1, keepdims=True)
        views.append(view)
    return drawn_labels(truth, rng), *views


def many_models(
    rows: int, d: int, models: int, *, noise: float = 0.1, tilt: float = 0.05
) -> pa.Table:
    """Rows scored by so many models, in memory: label, model_1, model_2 and so on."""
    label, *views = _views(rows, d, (1, 0), noise, tilt, models)
    columns: dict[str, Any] = {"label": pa.array(label)}
    for number, view in enumerate(views, 1):
        wide = view.astype(np.float64)
        wide /= wide.sum(axis=1, keepdims=True)
        offsets = pa.array(np.arange(0, (rows + 1) * d, d, dtype=np.int32))
        columns[f"model_{number}"] = pa.ListArray.from_arrays(offsets, pa.array(wide.reshape(-1)))
    return pa.table(columns)


def drawn_labels(truth: Single, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """A class for every row, drawn from its probabilities."""
    bar = rng.random(len(truth), dtype=np.float32)
    label = np.zeros(len(truth), np.int32)
    reached = np.zeros(len(truth), np.float32)
    for j in range(truth.shape[1] - 1):
        reached += truth[:, j]
        label += reached < bar
    return label


def _softmax(logits: Single) -> Single:
    logits = np.exp(logits - logits.max(axis=1, keepdims=True))
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def _on_grid(label: npt.NDArray[np.int32], one: Any, two: Any) -> Block:
    return Block((to_grid(one).astype(np.int32), to_grid(two).astype(np.int32)), label)

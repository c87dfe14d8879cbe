"""Score tables of any size, written piece by piece: by this process, or by Spark.

    python -m tests.bench.scale_data --rows 1000000 --classes 10 --disagreement 0.1 OUT

Rows come in blocks, each drawn from the seed and its own number: they are the same to the bit
whoever writes them and in whatever pieces, and a table is the beginning of a longer one. One with
more models or with weights has the columns of the one without, and some more.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark.backends.threads import ordered
from redcal_spark.errors import GridWarning
from tests.bench.data import Single, as_batch, drawn_labels, losses, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CELLS = 1 << 20  # of a block at most, per model
FILE_CELLS = 1 << 25  # of a file: 256 MB of scores
SAMPLE_CELLS, SAMPLE_ROWS = 1 << 23, 1 << 16  # that the noise is chosen on
SAMPLE = 1 << 40  # the number of the sample's block, which no table has
MOST_NOISE = 64.0
WEIGHTS = 1  # the stream of weights; that of a model, from the third on, is its place from 0 on


class CannotDisagree(ValueError):
    """No noise makes models with errors so alike disagree so often."""


class Drawn(NamedTuple):
    """Rows before the models look at them: what is true, and how each model errs."""

    truth: Single
    errors: Sequence[Single]
    rng: np.random.Generator


@dataclass(frozen=True)
class Rows:
    """What a table holds. The number of actions is the loss's, which disagreement refers to.

    disagreement: the share of rows on which the best actions of the first two models differ.
    correlation: of the errors of the first model with those of each other one, as factors of the
    true probabilities.
    weights: rows weigh 1 to so much; 0: there is no weight.
    """

    classes: int = 10
    actions: int = 10
    disagreement: float = 0.1
    correlation: float = 0.9
    seed: int = 1
    models: int = 2
    weights: int = 0

    @property
    def schema(self) -> pa.Schema:
        return table_schema(pa.float32(), self.models, self.weights > 0)

    @property
    def ddl(self) -> str:
        """The same as Spark writes it."""
        kinds = {pa.int64(): "bigint", pa.int32(): "int", pa.list_(pa.float32()): "array<float>"}
        return ", ".join(f"{field.name} {kinds[field.type]}" for field in self.schema)

    @property
    def block_rows(self) -> int:
        """A power of two, so that blocks make up row groups and files evenly."""
        return 1 << max(0, (CELLS // self.classes).bit_length() - 1)

    @property
    def row_bytes(self) -> int:
        """Of a row's scores."""
        return 4 * self.models * self.classes

    def blocks(self, rows: int) -> int:
        return -(-rows // self.block_rows)


@dataclass(frozen=True)
class Blocks:
    """Makes the blocks of a table by their numbers: here, or on a worker by `mapInArrow`.

    noise: how loud the errors are.
    """

    rows: Rows
    count: int
    noise: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.block(number)

    def block(self, number: int) -> pa.RecordBatch:
        """Drawn as a whole, and cut where the table ends."""
        height = self.rows.block_rows
        drawn = _draw(self.rows, number, height)
        scores = [view(drawn.truth, error, self.noise) for error in drawn.errors]
        label = drawn_labels(drawn.truth, drawn.rng)
        weight = drawn_weights(self.rows, number, height)
        start = number * height
        kept = slice(min(height, self.count - start))
        if weight is not None:
            weight = weight[kept]
        cut = (one[kept] for one in scores)
        return as_batch(self.rows.schema, start, label[kept], *cut, weight=weight)

    def group(self, numbers: Sequence[int]) -> pa.Table:
        return pa.Table.from_batches([self.block(number) for number in numbers], self.rows.schema)


def blocks_of(rows: Rows, count: int) -> Blocks:
    return Blocks(rows, count, calibrated(rows))


def _draw(rows: Rows, number: int, count: int) -> Drawn:
    rng = _rng(rows, number)
    shape = (count, rows.classes)
    truth = rng.standard_exponential(shape, dtype=np.float32)  # Dirichlet(1, ..., 1)
    truth += np.float32(1e-6)
    truth /= truth.sum(axis=1, keepdims=True)
    one = rng.standard_normal(shape, dtype=np.float32)

    def beside(rng: np.random.Generator) -> Single:
        error = rng.standard_normal(shape, dtype=np.float32)
        error *= np.float32(np.sqrt(1 - rows.correlation**2))
        error += np.float32(rows.correlation) * one
        return error

    # further models must not move the draws of the first two, nor those of the labels
    others = (beside(_rng(rows, number, model)) for model in range(2, rows.models))
    return Drawn(truth, (one, beside(rng), *others), rng)


def _rng(rows: Rows, number: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng((rows.seed, number, *stream))


def drawn_weights(rows: Rows, number: int, count: int) -> npt.NDArray[np.int32] | None:
    if not rows.weights:
        return None
    rng = _rng(rows, number, WEIGHTS)
    return rng.integers(1, rows.weights, count, dtype=np.int32, endpoint=True)


def view(truth: Single, error: Single, noise: float) -> Single:
    """A model's scores: the truth times 1 + x, or divided by it, x being its error.

    Sums, products and quotients only, which every processor rounds alike.
    """
    factor = np.abs(error)
    factor *= np.float32(noise)
    factor += np.float32(1)
    np.reciprocal(factor, out=factor, where=error < 0)
    factor *= truth
    factor /= factor.sum(axis=1, keepdims=True)
    return factor


# --- how loud -------------------------------------------------------------------------------------


@lru_cache
def calibrated(rows: Rows) -> float:
    """The noise with which two models disagree as often as asked, on a sample: to 3 digits."""
    count = max(1_024, min(SAMPLE_ROWS, SAMPLE_CELLS // rows.classes))
    sample = _draw(replace(rows, models=2), SAMPLE, count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)  # of thousands of random costs two are alike
        costs = np.array(losses(1, rows.classes, rows.actions)[0].costs, np.float32)

    def rate(noise: float) -> float:
        one, two = (best_actions(view(sample.truth, e, noise), costs) for e in sample.errors)
        return float(np.mean(one != two))

    low, high = 0.0, MOST_NOISE
    if (most := rate(high)) < rows.disagreement:
        raise CannotDisagree(
            f"models whose errors correlate by {rows.correlation:g} disagree on at most "
            f"{most:.0%} of the rows here, not {rows.disagreement:.0%}; lower the correlation"
        )
    while high - low > 5e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if rate(middle) >= rows.disagreement else (middle, high)
    return float(f"{high:.3g}")


def best_actions(scores: Single, costs: Single) -> npt.NDArray[np.intp]:
    found: npt.NDArray[np.intp] = (scores @ costs.T).argmin(axis=1)
    return found


# --- writing --------------------------------------------------------------------------------------


def pieces(rows: Rows, count: int, group: int = 2) -> Iterator[list[int]]:
    """Block numbers, so many together as make a row group."""
    blocks = rows.blocks(count)
    return (list(range(b, min(b + group, blocks))) for b in range(0, blocks, group))


def write(rows: Rows, count: int, folder: Path, group: int = 2) -> None:
    """A folder of Parquet files, a few row groups in memory. It is there whole, or not at all."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    schema = rows.schema
    per_file = max(1, FILE_CELLS // (rows.classes * rows.block_rows * group))
    file: pq.ParquetWriter | None = None
    made = ordered(blocks_of(rows, count).group, pieces(rows, count, group))
    try:
        for number, found in enumerate(made):
            if number % per_file == 0:
                if file is not None:
                    file.close()
                name = part / f"part-{number // per_file:05}.parquet"
                file = pq.ParquetWriter(name, schema, compression="zstd", use_dictionary=False)
            assert file is not None
            file.write_table(found, row_group_size=found.num_rows)
    finally:
        if file is not None:
            file.close()
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def write_on_spark(spark: SparkSession, rows: Rows, count: int, folder: str) -> None:
    """The same rows by Spark: a file a task."""
    from redcal_spark.backends.spark.ship import ship_package

    made = blocks_of(rows, count)
    ship_package(spark)
    blocks = rows.blocks(count)
    files = max(1, blocks * rows.block_rows * rows.classes // FILE_CELLS)
    numbers = spark.range(0, blocks, 1, numPartitions=min(blocks, files))
    with by_value():
        frame = numbers.mapInArrow(made, rows.ddl)
        frame.write.mode("overwrite").option("compression", "zstd").parquet(folder)


@contextmanager
def by_value() -> Iterator[None]:
    """What is defined here travels as code, for workers have no folder of tests."""
    from pyspark import cloudpickle

    modules = [sys.modules[made.__module__] for made in (Blocks, as_batch)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale_data", description=__doc__)
    parser.add_argument("out", help="a folder, which is made anew")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    fields: dict[str, Any] = Rows.__dataclass_fields__
    for name, field in fields.items():
        kind = type(field.default)
        parser.add_argument(f"--{name}", type=kind, default=field.default, help="%(default)s")
    given = vars(parser.parse_args(arguments))
    rows = Rows(**{name: given[name] for name in fields})
    try:
        noise = calibrated(rows)
    except CannotDisagree as err:
        parser.error(str(err))
    print(f"{given['rows']:,} rows, noise {noise:g}", flush=True)
    if given["engine"] == "local":
        write(rows, given["rows"], Path(given["out"]))
        return 0
    from redcal_spark.backends.spark.session import get_session

    write_on_spark(get_session(), rows, given["rows"], given["out"])
    return 0


if __name__ == "__main__":
    sys.exit(main())

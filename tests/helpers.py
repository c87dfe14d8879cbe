"""From the oracle's problems to the package and back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import settings

from redcal_spark import ReconciledPair, Reconciler
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.core.blocks import Block, label_rows
from redcal_spark.core.columns import Layout
from redcal_spark.core.kernel import Rules
from redcal_spark.core.patches import PatchLog
from redcal_spark.core.rows import Rows
from redcal_spark.core.scan import ScanResult, each_alone
from redcal_spark.core.splits import Split
from redcal_spark.errors import GridWarning, ScoreWarning
from redcal_spark.model.fit import fit_scanned
from tests import oracle
from tests.oracle import ONE, Grid, Patch, Problem
from tests.problems import PARAMETERS

# The same examples on every machine and every day; `slow` tests draw more.
DRAWN = settings(max_examples=40, deadline=None, derandomize=True, database=None)

Array = npt.NDArray[Any]


@contextmanager
def quietly() -> Iterator[None]:
    """Random problems have rows that do not sum to 1 and costs that merge; other tests see that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScoreWarning)
        warnings.simplefilter("ignore", GridWarning)
        yield


def seeds(every: range, quick: int) -> list[Any]:
    """Seeds for a test: the first ones in every build, all of them in the slow tests."""
    later = [pytest.param(seed, marks=pytest.mark.slow) for seed in every[quick:]]
    return [*every[:quick], *later]


def reconciler(problem: Problem, threads: int = 1, **options: Any) -> Reconciler:
    """A Reconciler with the problem's losses and parameters."""
    given = {name: getattr(problem, name) for name in PARAMETERS}
    given["weight_unit"] = problem.weight_unit
    if problem.more:
        given["models"] = names_of(problem)
    if problem.w is not None:
        given["weight"] = "weight"
    with quietly():
        return Reconciler(threads=threads, **given | options)


def names_of(problem: Problem) -> list[str]:
    """The columns of the models' scores."""
    return [f"model_{i}" for i in range(1, len(problem.models) + 1)]


def arrays(problem: Problem) -> tuple[Array, Array, Any]:
    """What a user with numpy holds. Labels of both kinds at once become vectors."""
    y: Any = problem.y
    if any(isinstance(label, list) for label in y):
        y = [[q / ONE for q in row] for row in oracle.grid_labels(problem)]
    return np.array(problem.f1), np.array(problem.f2), np.array(y)


def fit(problem: Problem, threads: int = 1) -> ReconciledPair:
    """By the public way."""
    with quietly():
        weight = None if problem.w is None else np.array(problem.w)
        model = reconciler(problem, threads)
        if problem.more:
            return model.fit(scores_of(problem), arrays(problem)[2], weight=weight)
        return model.fit(*arrays(problem), weight=weight)


def scores_of(problem: Problem) -> list[Array]:
    """The scores of every model."""
    return [np.array(scores) for scores in problem.models]


def apply(pair: ReconciledPair, problem: Problem) -> tuple[Any, ...]:
    """The reconciled scores as floats, by the public way."""
    with quietly():
        if problem.more:
            return tuple(pair.apply(scores_of(problem)))
        f1, f2 = pair.apply(*arrays(problem)[:2])
    return f1, f2


def fitted(pair: ReconciledPair, problem: Problem) -> tuple[Grid, ...]:
    """The reconciled scores on the grid."""
    return tuple(oracle.grid_scores(f.tolist()) for f in apply(pair, problem))


def log_of(pair: ReconciledPair) -> list[Patch]:
    """The log as plain data, in the oracle's form."""
    return pair.log.to_json()


def same_as(pair: ReconciledPair, result: oracle.Result) -> None:
    """The whole of what a fit gives, field by field; the scores are compared elsewhere."""
    found = log_of(pair)
    assert [list(patch) for patch in found] == [list(oracle.FIELDS)] * len(found)
    for ours, theirs in zip(found, result.log, strict=False):
        assert ours == theirs
    assert len(found) == len(result.log)
    assert pair.status == result.status
    assert (pair.resolved.m, pair.resolved.beta) == (result.m, result.beta)
    assert pair.zero_calibrations == result.zero_calibrations


def batches_of(problem: Problem, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """The problem as a table cut into batches of these sizes; the last takes what is left."""
    scores, y = scores_of(problem), arrays(problem)[2]
    columns = dict(zip(names_of(problem), scores, strict=True)) | {"label": y}
    if problem.w is not None:
        columns["weight"] = np.array(problem.w)
    table = pa.table({name: _column(values) for name, values in columns.items()})
    ends = [0, *(end for end in np.cumsum(sizes).tolist() if end < len(y)), len(y)]
    return [table.slice(a, b - a).combine_chunks().to_batches()[0] for a, b in pairwise(ends)]


def _column(values: Array) -> pa.Array:
    return pa.array(list(values) if values.ndim == 2 else values)


def cuts(rng: Random, n: int) -> list[int]:
    """Random batch sizes that add up to n."""
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(rng.randint(1, max(1, n - sum(sizes))))
    return sizes


def gathered(
    problem: Problem, sizes: Sequence[int] = (), threads: int = 1, reverse: bool = False
) -> tuple[Reconciler, ScanResult, Layout]:
    """The one scan over blocks of these sizes; `reverse` turns the order of the blocks."""
    blocks = batches_of(problem, sizes)
    if reverse:
        blocks.reverse()
    with quietly():
        model = reconciler(problem, threads)
        found, layout = gather(model, blocks, blocks[0].schema)
    return model, found, layout


def gather(
    model: Reconciler,
    blocks: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    split: Split | None = None,
    **changes: Any,
) -> tuple[ScanResult, Layout]:
    """The one scan of a reconciler's problem, but for some changes of it."""
    problem = replace(model.problem, **changes)
    pieces = each_alone(blocks)
    found, layout = gather_pieces(problem, pieces, schema, "the data", split, threads=model.threads)
    problem.check(found, "the data")
    return found, layout


def fit_blocks(
    problem: Problem, sizes: Sequence[int], threads: int = 1, reverse: bool = False
) -> ReconciledPair:
    """Through the local engine, with blocks of these sizes."""
    model, found, layout = gathered(problem, sizes, threads, reverse)
    return fit_gathered(model, found, layout)


def fit_gathered(
    model: Reconciler, found: ScanResult, layout: Layout, log: Sequence[Any] = (), **watching: Any
) -> ReconciledPair:
    """Through the local engine, from the start or from a log."""
    return fit_scanned(model.problem, LocalScan(found, layout, model.threads), log, **watching)


def prefix(log: Sequence[Patch]) -> PatchLog:
    """A part of a log, in the package's form."""
    return PatchLog.from_json(log)


def reordered(problem: Problem, order: Sequence[int]) -> Problem:
    """The rows of a problem in another order, or some of them."""
    return replace(
        problem,
        f1=[problem.f1[i] for i in order],
        f2=[problem.f2[i] for i in order],
        y=[problem.y[i] for i in order],
        more=[[scores[i] for i in order] for scores in problem.more],
        w=None if problem.w is None else [problem.w[i] for i in order],
    )


def with_scores(problem: Problem, *scores: Grid) -> Problem:
    """The problem with other scores, given on the grid."""
    new = []
    for f in scores:
        rows: list[Any] = [[q / ONE for q in row] for row in f]
        new.append([row[1] for row in rows] if problem.binary else rows)
    return replace(problem, f1=new[0], f2=new[1], more=new[2:])


def brier(f: Grid, y: Grid) -> Fraction:
    """The one-hot Brier score, a mean over rows."""
    return Fraction(oracle.brier_sum(f, y), ONE**2 * len(f))


def parameters_of(problem: Problem) -> dict[str, Any]:
    """Everything but the rows."""
    return {name: value for name, value in asdict(problem).items() if name in PARAMETERS}


def refused(kind: type[Exception], action: Callable[[], Any]) -> str:
    """The message with which an action is refused."""
    try:
        action()
    except kind as err:
        return str(err)
    raise AssertionError(f"no {kind.__name__}")


def repeated(table: Any, names: Sequence[str]) -> pa.Table:
    """Columns of an opened table of which every text was read as a dictionary, if it can be."""
    wanted, batches = pa.schema([table.schema.field(name) for name in names]), []
    for piece in table.pieces(wanted.names, wanted.names):
        for _, batch in piece:
            batch.validate(full=True)
            columns = [
                column if column.type == field.type else column.dictionary_decode()
                for column, field in zip(batch.columns, wanted, strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=wanted))
    return pa.Table.from_batches(batches, wanted)


def block_of(problem: Problem) -> Block:
    """All rows of the problem on the grid, labels as vectors."""
    f = (np.array(oracle.grid_scores(scores), dtype=np.int32) for scores in problem.models)
    labels = np.array(oracle.grid_labels(problem), dtype=np.int32)
    return Block(tuple(f), labels, oracle_weights(problem))


def oracle_weights(problem: Problem) -> Array | None:
    """The weights as whole numbers, or None where every row counts once."""
    return None if problem.w is None else np.array(oracle.weights(problem), np.int64)


def squared_error(f: Array, y: Array) -> int:
    """Exact: Python integers do not overflow."""
    return int(((f.astype(object) - y.astype(object)) ** 2).sum())


def check_brier(
    block: Block,
    rules: Rules,
    log: PatchLog,
    error: Callable[[Array, Array], int] = squared_error,
) -> tuple[Array, ...]:
    """Every patch lowers the exact Brier sum by what its mean says; returns the final scores.

    Along the way: the logged number of rows is right, and nothing leaves the box.
    """
    rows = Rows(block, rules)
    assert block.y is not None
    for patch in log:
        f = rows.f[patch.model - 1]
        old = f.copy()
        moved = rows.apply(patch)
        y = label_rows(block.y[moved], block.n_classes).astype(np.int64)
        assert len(moved) == patch.rows > 0
        sums = (y - old[moved]).sum(axis=0, dtype=np.int64).tolist()
        if patch.coordinate is not None:
            sums = [sums[patch.coordinate]]
        gain = Fraction(0)
        for total, phi in zip(sums, patch.phi, strict=True):
            mean = Fraction(total, patch.rows)
            gain += mean**2 - (mean - phi) ** 2
        drop = error(old[moved], y) - error(f[moved], y)
        assert drop >= patch.rows * gain > 0
        assert f.min() >= 0 and f.max() <= ONE
        if rules.binary:
            assert (f.sum(axis=1) == ONE).all()
    return tuple(rows.f)


def some_quick(values: Iterable[Any], every: int) -> list[Any]:
    """Parameters of a test, of which one in so many is in every build and the others are slow."""
    return [
        pytest.param(value, marks=pytest.mark.slow if number % every else ())
        for number, value in enumerate(values)
    ]


def until(true: Callable[[], Any], seconds: float = 90) -> None:
    """Wait; other processes are at work."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)

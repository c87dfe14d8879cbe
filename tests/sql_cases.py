"""Models as SQL, and what `apply` gives of the same rows: the cases that every engine must meet."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark import ReconciledPair, Reconciler
from tests import problems
from tests.helpers import Array, arrays, quietly, reconciler

PATCHES = 100


def column(values: Array) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.array(values.tolist(), pa.list_(pa.float64()))


def random_case(seed: int) -> tuple[ReconciledPair, pa.Table]:
    """A random problem of up to 20 classes, its log cut where the limit is; some rows are bad."""
    problem = problems.random_problem(seed, max_d=20)
    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f1, f2, y = arrays(problem)
        steps = min(problem.max_steps, PATCHES)
        pair = reconciler(problem, max_steps=steps).fit(f1, f2, y)
    table = pa.table({"model_1": column(f1), "model_2": column(f2)})
    return pair, pa.concat_tables([table, bad_rows(pair)])


def bad_rows(pair: ReconciledPair) -> pa.Table:
    """Rows that cannot be used, and some at the very edge of what can."""
    d = pair.n_classes
    odd = [None, math.nan, math.inf, -math.inf, -1e-3, 1.1, 1e308, -1e-17, 1 + 1e-12, 0.5 / 2**26]
    if pair.binary:
        good = [0.5] * len(odd)
        return pa.table({"model_1": pa.array([*odd, *good]), "model_2": pa.array([*good, *odd])})
    plain = [1 / d] * d
    rows: list[Any] = [*([value, *plain[1:]] for value in odd), None, plain[1:], [*plain, 0.0], []]
    kind = pa.list_(pa.float64())
    usual = [plain] * len(rows)
    return pa.table(
        {"model_1": pa.array([*rows, *usual], kind), "model_2": pa.array([*usual, *rows], kind)}
    )


def largest_case(columns: bool = False) -> tuple[ReconciledPair, pa.Table]:
    """100 patches of 20 classes and 20 actions: as large as a model may be."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 20, 4_000)
    scores = rng.random((2, 4_000, 20)) ** 4 + 0.3 * np.eye(20)[y]
    one, two = scores / scores.sum(axis=2, keepdims=True)
    names = [[f"{model}{j}" for j in range(20)] for model in "ab"] if columns else "ab"
    given: dict[str, Any] = {"alpha": 1e-4, "eta": 1e-4, "beta": 1e-5, "max_steps": PATCHES}
    made = Reconciler(
        losses={"route": rng.normal(size=(20, 20))}, model_1=names[0], model_2=names[1], **given
    )
    if columns:
        table = pa.table(
            {name: one[:, j] for j, name in enumerate(names[0])}
            | {name: two[:, j] for j, name in enumerate(names[1])}
        )
    else:
        table = pa.table({"a": column(one), "b": column(two)})
    pair = made.fit(table.append_column("label", pa.array(y)))
    assert len(pair.log) == PATCHES and pair.n_classes == 20
    return pair, table


def expected(pair: ReconciledPair, table: pa.Table) -> pa.Table:
    with quietly():
        return pair.apply(table, on_bad_rows="skip")


def same(found: pa.Table, pair: ReconciledPair, table: pa.Table) -> None:
    """To the bit: NaN and -0.0 included, which were given and must come back."""
    wanted = expected(pair, table)
    assert found.column_names == wanted.column_names
    assert found.num_rows == wanted.num_rows
    for name in wanted.column_names:
        ours, theirs = (t[name].to_pylist() for t in (found, wanted))
        for place, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            assert repr(one) == repr(two), (name, place)

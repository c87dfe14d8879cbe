"""Models as SQL, and what `apply` gives of the same rows: the cases that every engine must meet."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from redcal_spark import ReconciledPair, Reconciler
from tests import problems, real_data
from tests.helpers import Array, arrays, quietly, reconciler, scores_of

PATCHES = 100


def column(values: Array) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.array(values.tolist(), pa.list_(pa.float64()))


LARGER = ("dermamnist", "mnist_pycalib", "imagenet_10")  # real sets that take longer


def real_case(name: str) -> tuple[ReconciledPair, pa.Table]:
    """A real set with up to 100 patches; 500 rows have few events of 1 %."""
    rows = real_data.load(name)
    eta = 0.01 if len(rows.y) > 1_000 else 0.002
    with quietly():
        problem = rows.problem("redcal", max_steps=PATCHES, eta=eta)
        pair = reconciler(problem).fit(rows.f1, rows.f2, rows.y)
    assert len(pair.log) > 3
    return pair, pa.table({"model_1": column(rows.f1), "model_2": column(rows.f2)})


def random_case(seed: int) -> tuple[ReconciledPair, pa.Table]:
    """A random problem of up to 20 classes and 2 or 3 models, its log cut where the limit is.

    Some rows are bad.
    """
    problem = problems.random_problem(seed, max_d=20, models=3 if seed % 4 == 3 else 2)
    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores, y = scores_of(problem), arrays(problem)[2]
        steps = min(problem.max_steps, PATCHES)
        pair = reconciler(problem, max_steps=steps).fit(scores, y)
    names = [str(name) for name in pair.columns.models]
    table = pa.table(dict(zip(names, map(column, scores), strict=True)))
    return pair, pa.concat_tables([table, bad_rows(pair, names)])


def bad_rows(pair: ReconciledPair, names: list[str]) -> pa.Table:
    """Rows that cannot be used, and some at the edge of what can, of one model after another."""
    d = pair.n_classes
    odd = [None, math.nan, math.inf, -math.inf, -1e-3, 1.1, 1e308, -1e-17, 1 + 1e-12, 0.5 / 2**26]
    usual: Any = 0.5
    rows: list[Any] = odd
    kind = pa.float64()
    if not pair.binary:
        usual, kind = [1 / d] * d, pa.list_(pa.float64())
        rows = [*([x, *usual[1:]] for x in odd), None, usual[1:], [*usual, 0.0], []]
    parts = [
        pa.table(
            {name: pa.array(rows if name == own else [usual] * len(rows), kind) for name in names}
        )
        for own in names
    ]
    return pa.concat_tables(parts)


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

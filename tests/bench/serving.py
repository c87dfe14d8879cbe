"""One row at a time, as a service gets them, and a batch of 1,000 against one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from redcal_spark import ReconciledPair, Reconciler
from tests.bench.timing import Ratio, Result, best
from tests.helpers import Array

ALLOWED = 200e-6  # seconds for one row
PATCHES = 100
ROWS = 1_000


@dataclass(frozen=True)
class Sizes:
    rows: int = 60_000  # to fit on
    repeats: int = 40
    drawn: int = 60  # rows that are timed one by one


QUICK = Sizes(rows=6_000, repeats=2, drawn=4)


def fitted(sizes: Sizes) -> tuple[ReconciledPair, Array, Array]:
    """A pair of 4 classes and two losses with 100 patches, and rows."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, sizes.rows)
    scores = rng.random((2, sizes.rows, 4)) ** 2 + 0.8 * np.eye(4)[y]
    one, two = scores / scores.sum(axis=2, keepdims=True)
    losses = {"a": rng.normal(size=(5, 4)), "b": rng.normal(size=(4, 4))}
    made = Reconciler(losses=losses, alpha=0.001, eta=0.002, max_steps=PATCHES, threads=1)
    return made.fit(one, two, y), one, two


def serving(sizes: Sizes) -> Result:
    """Rows in numpy arrays, after warm-up; the row is one that patches touch."""
    pair, one, two = fitted(sizes)
    new = pair.apply(one[:ROWS], two[:ROWS])
    changed = (new[0] != one[:ROWS]).any(axis=1) | (new[1] != two[:ROWS]).any(axis=1)
    touched = np.flatnonzero(changed)[: sizes.drawn].tolist()
    untouched = np.flatnonzero(~changed)[: sizes.drawn].tolist()

    def alone(row: int) -> Callable[[], object]:
        first, second = one[row : row + 1], two[row : row + 1]
        return lambda: pair.apply(first, second)

    work = {str(row): alone(row) for row in [*touched, *untouched]}
    work["batch"] = lambda: pair.apply(one[:ROWS], two[:ROWS])
    best(work, 2)  # warm
    times = best(work, sizes.repeats)
    batch = times["batch"]
    row = median(times[str(i)] for i in touched)
    other = median(times[str(i)] for i in untouched)
    with_patches = f"{len(pair.log)} patches, 4 classes, two losses"
    return Result(
        [
            Ratio(f"one row, {with_patches}, against 200 us", row, ALLOWED, "cost", 1),
            Ratio(f"{ROWS:,} rows at once against one row", batch, row, "cost", 5),
            Ratio(
                f"{ROWS:,} rows at once against five times 200 us", batch, 5 * ALLOWED, "cost", 1
            ),
        ],
        [
            f"one row: the median of {len(touched)} rows that patches touch, each at its best of "
            f"{sizes.repeats}; a row that none touches takes {other * 1e6:.0f} us, the slowest "
            f"{max(times[str(i)] for i in touched) * 1e6:.0f} us",
            f"one row meets the patches of its rounds, {ROWS:,} rows meet those of all: "
            f"{batch / len(pair.log) * 1e6:.1f} us a patch",
        ],
    )


MEASUREMENTS: dict[str, Callable[[Sizes], Result]] = {"serving": serving}

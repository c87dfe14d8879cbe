"""The real predictions beside the repository; tests that use them skip where they are absent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.dense import from_top5, vectors
from tests.helpers import Array
from tests.oracle import Problem

FOLDER = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class RealSet:
    """Scores of two models and the labels, shuffled by a seed."""

    f1: Array
    f2: Array
    y: Array

    def take(self, rows: int) -> RealSet:
        return RealSet(self.f1[:rows], self.f2[:rows], self.y[:rows])

    @property
    def classes(self) -> int:
        return 2 if self.f1.ndim == 1 else int(self.f1.shape[1])

    def problem(self, algorithm: str, **parameters: Any) -> Problem:
        """With four random N(0, 1) losses of different numbers of actions."""
        rng = np.random.default_rng(7)
        d = self.classes
        given: dict[str, Any] = {"alpha": 0.005, "eta": 0.01, "max_steps": 2_000} | parameters
        return Problem(
            self.f1.tolist(),
            self.f2.tolist(),
            self.y.tolist(),
            {f"l{i}": rng.normal(size=(min(d, 3) + i, d)).tolist() for i in range(4)},
            algorithm,
            **given,
        )


def read(name: str, columns: list[str]) -> Any:
    path = FOLDER / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{path.name} is not in ../shared/data")
    return pq.read_table(path, columns=columns)


def shuffled(f1: Array, f2: Array, y: Array) -> RealSet:
    order = np.random.default_rng(11).permutation(len(y))
    return RealSet(f1[order], f2[order], y[order])


@cache
def load(name: str) -> RealSet:
    """A set by name: nfl_elo, dermamnist, mnist_pycalib, imagenet_10 or imagenet_100."""
    if name.startswith("imagenet"):
        return imagenet(int(name.split("_")[1]))
    scores = ["p1", "p2"] if name == "nfl_elo" else ["f1", "f2"]
    table = read(name, ["label", *scores])
    y = table["label"].to_numpy()
    if name == "nfl_elo":
        return shuffled(table["p1"].to_numpy(), table["p2"].to_numpy(), y.astype(np.int64))
    return shuffled(vectors(table["f1"]), vectors(table["f2"]), y)


def imagenet(classes: int) -> RealSet:
    """A draw of classes: their columns, renormalised, and their images."""
    table = read("imagenet_top5", ["label", "f1_cls", "f1_prob", "f2_cls", "f2_prob"])
    y = table["label"].to_numpy()
    drawn = np.sort(np.random.default_rng(classes).choice(1_000, classes, replace=False))
    kept = np.flatnonzero(np.isin(y, drawn))
    scores = [from_top5(table, model, kept, drawn) for model in ("f1", "f2")]
    return shuffled(scores[0], scores[1], np.searchsorted(drawn, y[kept]))


def six_models(rows: int) -> Problem:
    """The first of shuffled rows of dermamnist with all of its models, for the oracle."""
    names = [f"f{i}" for i in range(1, 7)]
    table = read("dermamnist", ["label", *names])
    order = np.random.default_rng(11).permutation(table.num_rows)[:rows]
    y = table["label"].to_numpy()[order]
    one, two, *more = (vectors(table[name])[order] for name in names)
    two_models = RealSet(one, two, y).problem("redcal")
    return replace(two_models, more=[scores.tolist() for scores in more])

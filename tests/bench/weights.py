"""`python -m tests.bench.weights`: a sample of skin lesions that stands for another population.

Needs the predictions beside the checkout. The images of the sample are mostly of one class. In the
population that the models shall decide for, all seven are equally common: a row's weight says for
how many lesions it stands, in units of 0.01.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from redcal_spark import Reconciler
from redcal_spark.errors import FitWarning
from tests.bench.results import save_printed
from tests.bench.timing import machine
from tests.helpers import Array
from tests.real_data import FOLDER

UNIT = 0.01
CLASSES = 7


def population(label: Array) -> Array:
    """A weight per row: all classes count alike, and the mean is 1. Two digits are kept."""
    counts = np.bincount(label, minlength=CLASSES)
    return np.round(len(label) / (CLASSES * counts[label]), 2)


def losses() -> dict[str, list[list[float]]]:
    """A wrong decision costs 1; to miss one of the malignant classes (0, 1, 4) costs 5."""
    costs = 1 - np.eye(CLASSES)
    costs[:, [0, 1, 4]] *= 5
    return {"diagnosis": costs.tolist()}


def mean_cost(scores: Array, label: Array, w: Array) -> float:
    """In the population: what the decisions by these scores cost on average."""
    costs = np.array(losses()["diagnosis"])
    action = (scores @ costs.T).argmin(axis=1)
    return float((w * costs[action, label]).sum() / w.sum())


def table(seeds: Sequence[int] = range(20)) -> str:
    """Half of the rows are fitted, the others are looked at; means over several such halves."""
    import pyarrow.parquet as pq

    rows = pq.read_table(FOLDER / "dermamnist.parquet", columns=["label", "f1", "f3"])
    label = rows["label"].to_numpy()
    one, three = (np.array(rows[name].to_pylist(), np.float64) for name in ("f1", "f3"))
    w = population(label)
    model = Reconciler(losses=losses(), alpha=0.01, eta=0.01, weight_unit=UNIT)
    found: dict[str, list[tuple[float, ...]]] = {"before": [], "plain": [], "weighted": []}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(label))
        fit, new = order[: len(order) // 2], order[len(order) // 2 :]
        found["before"].append(
            (0.0, *(mean_cost(f[new], label[new], w[new]) for f in (one, three)))
        )
        for name, given in (("plain", None), ("weighted", w[fit])):
            pair = model.fit(one[fit], three[fit], label[fit], weight=given)
            scores = pair.apply(one[new], three[new])
            costs = (mean_cost(f, label[new], w[new]) for f in scores)
            found[name].append((float(len(pair.log)), *costs))
    lines = ["| fit | patches | cost, f1 | cost, f3 |", "|---|---|---|---|"]
    titles = {"before": "none", "plain": "without weights", "weighted": "with weights"}
    for name, numbers in found.items():
        patches, *costs = np.mean(numbers, axis=0)
        shown = "" if name == "before" else f"{patches:.1f}"
        lines.append(f"| {titles[name]} | {shown} | {costs[0]:.4f} | {costs[1]:.4f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.weights", description=__doc__)
    parser.add_argument("--save", type=Path, metavar="FILE", help="docs/results/weights.json")
    given = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        printed = table()
    print(printed)
    if given.save is not None:
        save_printed(given.save, "python -m tests.bench.weights", machine(), printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

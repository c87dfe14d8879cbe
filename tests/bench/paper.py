"""The paper's experiments on real predictions: repeated draws of losses, classes and splits.

`python -m tests.bench paper [--quick] [--to FOLDER] [set ...]` writes one small file a draw, leaves
out those that are there already, and prints what all of them say together.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from redcal_spark import Reconciler
from redcal_spark.backends.backend import Scan
from redcal_spark.backends.local.backend import LocalScan
from redcal_spark.backends.local.scan import gather_pieces
from redcal_spark.certificate.case import Case
from redcal_spark.certificate.certify import DELTA
from redcal_spark.certificate.holdout import HoldoutRows, statements
from redcal_spark.certificate.intervals import Level
from redcal_spark.core import history
from redcal_spark.core.arrow import batches, from_numpy
from redcal_spark.core.metrics import Metrics
from redcal_spark.core.problem import Problem
from redcal_spark.core.scan import each_alone
from redcal_spark.core.splits import ColumnSplit
from redcal_spark.errors import GridWarning, ScoreWarning
from redcal_spark.runs.compare import (
    RECONCILE_ALPHA,
    Compared,
    Comparison,
    compare,
    mean_brier,
    mean_gap,
)
from tests.bench import paper_summary
from tests.bench.results import save_printed
from tests.bench.timing import machine
from tests.dense import Scores, from_top5, vectors

VARIABLE = "REDCAL_DATA"
SPLIT = ColumnSplit("part", "fit", "holdout")
Setting = Literal["paper", "auto", "finer", "tuned", "raw", "raw_finer"]
# the paper's takes longest
SETTINGS: tuple[Setting, ...] = ("auto", "finer", "tuned", "raw", "raw_finer", "paper")


@dataclass(frozen=True)
class Experiment:
    """One set under one setting.

    setting: "paper" has the paper's beta, and its alpha for Reconcile too, of which the paper says
    nothing; "auto" has beta: auto and Reconcile's default alpha; "finer" is auto with eta / 5;
    "tuned" is auto with eta: auto, which is ReDCal's choice and the other procedures' eta, too.
    "raw" and "raw_finer" are these two on scores of the drawn classes that are not renormalised:
    they sum to less than 1.
    rows: at most so many are drawn. max_steps: where it binds, results say `capped`.
    points: measured during a calibration everywhere.
    """

    name: str
    classes: int
    actions: int
    alpha: float
    beta: float
    fitted: float  # share of the rows
    draws: dict[Setting, int]
    setting: Setting = "paper"
    eta: float = 0.01
    rows: int | None = None
    max_steps: int = 100_000
    points: int = history.POINTS

    @property
    def key(self) -> str:
        return f"{self.name}-{self.setting}"

    def under(self, setting: Setting) -> Experiment:
        return replace(self, setting=setting)

    @property
    def reconcile_alpha(self) -> float:
        return self.alpha if self.setting == "paper" else RECONCILE_ALPHA

    @property
    def chosen_eta(self) -> float | Literal["auto"]:
        if self.setting == "tuned":
            return "auto"
        return self.eta / 5 if self.setting.endswith("finer") else self.eta

    def reconciler(self, losses: Any) -> Reconciler:
        return Reconciler(
            losses=losses,
            alpha=self.alpha,
            eta=self.chosen_eta,
            beta=self.beta if self.setting == "paper" else "auto",
            max_steps=self.max_steps,
            threads=1,  # draws are spread over the cores
        )


def _imagenet(classes: int, **given: Any) -> Experiment:
    name = f"imagenet_{classes}"
    return Experiment(name, classes, 10, 0.1 / classes, 0.001 / classes, 0.8, **given)


# ImageNet with 100 classes has the parameters of the paper's main experiment, too.
EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("ham10000", 7, 2, 0.1, 1e-6, 0.5, {"paper": 10, "auto": 40, "tuned": 40}),
        _imagenet(10, draws={"paper": 20, "auto": 20, "tuned": 20, "raw": 20}),
        _imagenet(100, draws={"paper": 5, "auto": 20, "finer": 10, "tuned": 10, "raw_finer": 10}),
        # as many rows as at 100 classes; measuring them takes ten times as long
        _imagenet(
            1_000,
            draws={"paper": 2, "auto": 5, "finer": 5},
            rows=5_000,
            max_steps=300,
            points=20,
        ),
    )
}


@dataclass(frozen=True)
class Draw:
    """Rows in an order of chance, those to fit first, and one loss with N(0, 1) costs."""

    f1: Scores
    f2: Scores
    y: Any
    fitted: int
    costs: Scores


def folder() -> Path:
    """Where the real predictions are: $REDCAL_DATA, or beside the repository."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get(VARIABLE, beside))


def missing() -> str | None:
    """Why there is nothing to experiment with, if so."""
    names = ("imagenet_top5.parquet", "dermamnist.parquet")
    absent = [name for name in names if not (folder() / name).is_file()]
    if not absent:
        return None
    return f"no {', no '.join(absent)} in {folder()}; {VARIABLE} says where they are"


def draw(experiment: Experiment, seed: int) -> Draw:
    """The same for every setting, so that settings compare, too."""
    rng = np.random.default_rng([seed, experiment.classes])
    if experiment.name == "ham10000":
        table = pq.read_table(folder() / "dermamnist.parquet", columns=["label", "f1", "f2"])
        y = table["label"].to_numpy()
        one, two = (vectors(table[name]).astype(np.float64) for name in ("f1", "f2"))
    else:
        columns = ["label", "f1_cls", "f1_prob", "f2_cls", "f2_prob"]
        table = pq.read_table(folder() / "imagenet_top5.parquet", columns=columns)
        label = table["label"].to_numpy()
        drawn = np.sort(rng.choice(1_000, experiment.classes, replace=False))
        rows = np.flatnonzero(np.isin(label, drawn))
        if experiment.rows is not None:
            rows = rng.choice(rows, experiment.rows, replace=False)
        whole = not experiment.setting.startswith("raw")
        one, two = (from_top5(table, model, rows, drawn, whole) for model in ("f1", "f2"))
        y = np.searchsorted(drawn, label[rows])
    order = rng.permutation(len(y))
    costs = rng.normal(size=(experiment.actions, experiment.classes))
    fitted = round(experiment.fitted * len(y))
    return Draw(one[order], two[order], y[order], fitted, costs)


def compared(experiment: Experiment, drawn: Draw) -> Comparison:
    """The four procedures on one draw, and the mean of both models."""
    with warnings.catch_warnings():  # of 10,000 costs by chance some are equal on the grid
        warnings.simplefilter("ignore", GridWarning)
        reconciler = experiment.reconciler({"loss": drawn.costs})
    parts = np.where(np.arange(len(drawn.y)) < drawn.fitted, SPLIT.fit, SPLIT.holdout)
    table = from_numpy(reconciler.columns, [drawn.f1, drawn.f2], drawn.y)
    table = table.append_column(SPLIT.column, pa.array(parts))

    def scan(problem: Problem) -> Scan:
        rows, name = each_alone(batches(table)), experiment.name
        return LocalScan(*gather_pieces(problem, rows, table.schema, name, SPLIT, threads=1), 1)

    with measured_at(experiment.points), warnings.catch_warnings():
        if experiment.setting.startswith("raw"):
            warnings.simplefilter("ignore", ScoreWarning)  # that they do not sum to 1 is the point
        return compare(reconciler.problem, scan, experiment.reconcile_alpha)


@contextmanager
def measured_at(points: int) -> Iterator[None]:
    """So many points of a calibration everywhere, for a while."""
    before, history.POINTS = history.POINTS, points
    try:
        yield
    finally:
        history.POINTS = before


def told(one: Compared) -> dict[str, Any]:
    """A procedure's curves: means of both models after so many patches, per split."""
    curves: dict[str, dict[str, Any]] = {}
    for split, points in one.histories.items():
        found: list[Metrics] = one.metrics(split)
        curves[split] = {
            "steps": [point.steps for point in points],
            "brier": [float(mean_brier(m)) for m in found],
            "gap": [float(mean_gap(m, 0)) for m in found],
            "disagreement": [float(m.disagreement(0)) for m in found],
        }
    log = one.pair.log
    eta = one.pair.resolved.eta
    return {
        "eta": None if eta is None else float(eta),
        "falls": falls(one),
        "status": one.pair.status,
        "patches": len(log),
        "rounds": sum(patch.kind == "reconcile" for patch in log),
        "seconds": round(one.seconds, 2),
        "curves": curves,
    }


def falls(one: Compared) -> list[list[float] | None]:
    """Per model, between what its loss fell on new rows by the certificate, if it was patched."""
    case = Case(one.pair, one.histories["fit"])
    held = HoldoutRows(case, one.histories["holdout"], Level(DELTA, statements(case)))
    patched = {patch.model for patch in one.pair.log}
    fell = [held.fall(0, model) if model in patched else None for model in case.models]
    return [None if each is None else [float(end) for end in each.ends] for each in fell]


def everything_of(comparison: Comparison) -> dict[str, Any]:
    """A draw: every procedure by its name, and the mean of both models."""
    means = {
        split: {"brier": float(mean_brier(metrics)), "gap": float(mean_gap(metrics, 0))}
        for split, metrics in comparison.mean.items()
    }
    equal = {
        measure: {
            prefix.algorithm: {
                split: {"brier": float(mean_brier(m)), "gap": float(mean_gap(m, 0))}
                for split, m in prefix.metrics.items()
            }
            for prefix in prefixes
        }
        for measure, prefixes in comparison.equal.items()
    }
    procedures = {one.algorithm: told(one) for one in comparison.procedures}
    return procedures | {"mean": means, "equal": equal}


def file_of(experiment: Experiment, to: Path, seed: int) -> Path:
    return to / f"{experiment.key}-{seed:03}.json"


def run(experiment: Experiment, to: Path, seed: int) -> None:
    """One draw, written to its file: whole or not at all."""
    found = everything_of(compared(experiment, draw(experiment, seed)))
    path = file_of(experiment, to, seed)
    half = path.with_suffix(".part")
    half.write_text(json.dumps(found), encoding="utf-8")
    half.rename(path)


def run_all(
    experiment: Experiment, to: Path, draws: int, workers: int | None = None
) -> list[dict[str, Any]]:
    """All draws of a set under a setting, the missing ones spread over the cores."""
    to.mkdir(parents=True, exist_ok=True)
    paths = [file_of(experiment, to, seed) for seed in range(draws)]
    left = [seed for seed, path in enumerate(paths) if not path.exists()]
    workers = min(workers or os.cpu_count() or 1, len(left))
    if workers > 1:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            list(pool.map(partial(run, experiment, to), left))
    else:
        for seed in left:
            run(experiment, to, seed)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench paper", description=__doc__)
    known = ", ".join(EXPERIMENTS)
    parser.add_argument("names", nargs="*", metavar="set", help=f"of: {known}; default: all")
    parser.add_argument("--to", type=Path, default=Path("out/paper"), metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="one draw each: does it run at all?")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep it: docs/results/paper.json"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no {', '.join(unknown)}; there are: {known}")
    if (reason := missing()) is not None:
        print(reason, file=sys.stderr)
        return 2
    to = given.to / "quick" if given.quick else given.to
    everything: dict[str, list[dict[str, Any]]] = {}
    for name, setting in product(given.names or EXPERIMENTS, SETTINGS):
        experiment = EXPERIMENTS[name].under(setting)
        draws = experiment.draws.get(experiment.setting, 0)
        if given.quick:
            experiment, draws = replace(experiment, max_steps=20), min(draws, 1)
        if draws:
            print(f"{experiment.key}: {draws} draws ...", file=sys.stderr, flush=True)
            everything[experiment.key] = run_all(experiment, to, draws)
    summaries = {key: paper_summary.summary(found) for key, found in everything.items()}
    (to / "summary.json").write_text(json.dumps(summaries), encoding="utf-8")
    tables = (
        paper_summary.results_table(everything),
        paper_summary.claims_table(everything),
        paper_summary.certified_table(everything),
    )
    print("\n\n".join(tables))
    if given.save is not None:
        save_printed(given.save, "python -m tests.bench paper", machine(), "\n\n".join(tables))
    return 0

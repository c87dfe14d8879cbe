"""A folder with scores of two models and a configuration, and `redcal` run in it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable

from redcal_spark.cli import main
from tests.helpers import Array
from tests.oracle import Problem

CLASSES = ("mild", "grave", "rare", "none")
LOSSES: dict[str, dict[str, Any]] = {
    "triage": {
        "actions": ["home", "ward", "icu"],
        "costs": [[0.0, 4.0, 9.0, 0.0], [1.0, 0.5, 3.0, 1.0], [3.0, 1.0, 0.0, 4.0]],
    },
    "beds": {"costs": [[0.0, 2.0, 1.0, 0.0], [1.0, 0.0, 0.5, 2.0]]},
}


@dataclass(frozen=True)
class Told:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def configuration(table: str = "scores.parquet") -> dict[str, Any]:
    """What reconciles the scores; its own, to be changed by a test."""
    return {
        "input": {
            "table": table,
            "id": "case",
            "label": "outcome",
            "classes": list(CLASSES),
            "model_1": "a",
            "model_2": "b",
            "split": {"column": "fold", "fit": "train", "holdout": "test"},
        },
        "losses": deepcopy(LOSSES),
        "reconcile": {"alpha": 0.005, "eta": 0.01},
        "output": {"table": "out/rows"},
        "engine": {"name": "local"},
    }


class Work:
    """Paths in the configuration are relative, so that the current directory must be the folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        self.folder = folder
        self._capsys = capsys
        self.tree = configuration()

    def cli(self, *arguments: str) -> Told:
        self._capsys.readouterr()
        code = main(arguments)
        told = self._capsys.readouterr()
        return Told(code, told.out, told.err)

    def redcal(self, command: str, *arguments: str) -> Told:
        """A command with the configuration as it is now."""
        Path("config.yaml").write_text(yaml.safe_dump(self.tree, sort_keys=False), "utf-8")
        return self.cli(command, "-c", "config.yaml", *arguments)

    def ran(self, command: str = "run", *arguments: str) -> Any:
        told = self.redcal(command, "--json", *arguments)
        assert told.code == 0, told.err
        return told.json

    def delta(self, name: str = "out/rows") -> DeltaTable:
        return DeltaTable(name)

    def table(self, name: str = "out/rows") -> pa.Table:
        return self.delta(name).to_pyarrow_table()

    def runs(self) -> list[Any]:
        return self.redcal("runs", "--json").lines

    def files(self) -> set[str]:
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()}


def scores(rows: int = 600, seed: int = 5) -> pa.Table:
    """Two noisy views of one truth; some labels are late."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.6, (rows, len(CLASSES)))
    views = [softmax(truth + rng.normal(0, 0.9, truth.shape)) for _ in range(2)]
    label = (softmax(truth).cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(0, 3)
    names = [CLASSES[k] if rng.random() > 0.03 else None for k in label]
    fold = rng.choice(["train", "test", "later"], rows, p=[0.6, 0.35, 0.05])
    return pa.table(
        {
            "case": pa.array(np.arange(rows) + 1_000),
            "outcome": pa.array(names, pa.string()),
            "fold": pa.array(fold),
            "note": pa.array([f"n{i}" for i in range(rows)]),
            "a": pa.array(list(views[0]), pa.list_(pa.float64())),
            "b": pa.array(list(views[1]), pa.list_(pa.float64())),
        }
    )


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def write(table: pa.Table, name: str = "scores.parquet") -> None:
    pq.write_table(table, name)


def split_rows(table: pa.Table, fold: str) -> pa.Table:
    """The labelled rows of a fold."""
    kept = [
        i
        for i, (found, label) in enumerate(
            zip(table["fold"].to_pylist(), table["outcome"].to_pylist(), strict=True)
        )
        if found == fold and label is not None
    ]
    return table.take(kept)


def problem(table: pa.Table, one: str = "a", two: str = "b", **parameters: Any) -> Problem:
    """Labelled rows as the oracle's problem."""
    given: dict[str, Any] = {"algorithm": "redcal", "alpha": 0.005, "eta": 0.01}
    return Problem(
        table[one].to_pylist(),
        table[two].to_pylist(),
        [CLASSES.index(name) for name in table["outcome"].to_pylist()],
        {name: loss["costs"] for name, loss in LOSSES.items()},
        **given | parameters,
    )

"""Writes the fixtures of this version: `python -m tests.compat.make 0.2`, once, before a release.

A small input, a configuration, the tables of a run, an exported model and one that Python saved, as
this version writes them. The folder is then never changed: tests of all later versions read it.
"""

from __future__ import annotations

import io
import os
import socket
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark import Reconciler
from redcal_spark.cli import main

HERE = Path(__file__).parent
ROWS = 80
CONFIG = """\
input:
  table: tables/scores
  id: case
  label: outcome
  classes: [mild, grave, rare]
  model_1: a
  model_2: b
  split: {column: fold, fit: train, holdout: test}
losses:
  triage: {actions: [home, ward], costs: [[0, 2, 3], [1, 0, 0.5]]}
reconcile: {algorithm: dc_then_redcal, alpha: 0.01, eta: 0.05}
output: {table: tables/rows, report: null}
engine: {name: local}
"""


def scores() -> pa.Table:
    rng = np.random.default_rng(1)
    truth = rng.dirichlet([2, 1, 0.5], ROWS)
    models = [0.4 * truth + 0.6 * rng.dirichlet([1, 1, 1], ROWS) for _ in range(2)]
    outcome = (truth.cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(0, 2)
    names = np.array(["mild", "grave", "rare"])[outcome]
    labels = [None if i % 20 == 19 else str(name) for i, name in enumerate(names)]
    folds = ["train" if i % 2 else "test" for i in range(ROWS)]
    return pa.table(
        {
            "case": list(range(ROWS)),
            "fold": folds,
            "outcome": labels,
            "a": models[0].tolist(),
            "b": models[1].tolist(),
        }
    )


def make(version: str) -> None:
    folder = HERE / version
    folder.mkdir()
    os.chdir(folder)
    socket.gethostname = lambda: "a-machine"
    write_deltalake("tables/scores", scores())
    Path("config.yaml").write_text(CONFIG, encoding="utf-8")
    assert main(["run", "-c", "config.yaml"]) == 0
    exported = io.StringIO()
    with redirect_stdout(exported):
        assert main(["export", "-c", "config.yaml"]) == 0
    Path("model.json").write_text(exported.getvalue(), encoding="utf-8")
    given = yaml.safe_load(CONFIG)
    columns = {name: given["input"][name] for name in ("model_1", "model_2", "label", "id")}
    model = Reconciler(
        losses=given["losses"], **columns, **given["reconcile"], classes=given["input"]["classes"]
    )
    model.fit(scores(), holdout=0.5).save("pair.json")
    # versions of the ledger's row while the run was going on
    DeltaTable("tables/rows_runs").vacuum(0, dry_run=False, enforce_retention_duration=False)


if __name__ == "__main__":
    make(sys.argv[1])

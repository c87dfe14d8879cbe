"""A folder in which the commands of the pages run: scores, configurations, a run, a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from deltalake import write_deltalake

from redcal_spark.cli import main
from tests.docs.made import inside
from tests.docs.pages import ROOT, fences

ROWS = 2_000
DEMO_ROWS = "4000"


def whole_config() -> dict[str, Any]:
    """The configuration that the README shows."""
    (text,) = [fence.text for fence in fences(ROOT / "README.md") if fence.language == "yaml"]
    tree: dict[str, Any] = yaml.safe_load(text)
    return tree


def prepare(folder: Path) -> None:
    """Everything that the pages take for given: conf/my.yaml has been run, and the demo."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    config = whole_config()
    config["input"]["split"] = {"holdout_fraction": 0.5}
    config["engine"] = {"name": "auto"}
    (folder / "conf" / "my.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    write_deltalake(str(folder / "data" / "scores"), scores())
    write_csv_files(folder)
    with inside(str(folder)):
        for arguments in (
            ["run", "-c", "conf/my.yaml"],
            ["export", "-c", "conf/my.yaml", "-o", "model.json"],
            ["demo", "--rows", DEMO_ROWS],
        ):
            assert main([*arguments, "--quiet"]) == 0, arguments


def scores() -> pa.Table:
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([2, 1, 1], ROWS)
    outcome = (truth.cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(0, 2)
    a, b = (0.4 * truth + 0.6 * rng.dirichlet([1, 1, 1], ROWS) for _ in range(2))
    return pa.table(
        {
            "case_id": list(range(ROWS)),
            "outcome": outcome,
            "scores_a": a.tolist(),
            "scores_b": b.tolist(),
        }
    )


def write_csv_files(folder: Path) -> None:
    """The same rows as somebody has them who has two CSV files, in another order each."""
    rows = scores().to_pylist()
    for name, scores_of, label, order in (
        ("model_a.csv", "scores_a", ["outcome"], 1),
        ("model_b.csv", "scores_b", [], -1),
        ("a.csv", "scores_a", [], -1),
        ("b.csv", "scores_b", [], 1),
        ("labels.csv", None, ["outcome"], 1),
    ):
        lines = [["case_id", *label, *(["p0", "p1", "p2"] if scores_of else [])]]
        lines += [
            [row["case_id"], *(row[c] for c in label), *(row[scores_of] if scores_of else [])]
            for row in rows[::order]
        ]
        text = "\n".join(",".join(map(str, line)) for line in lines)
        (folder / name).write_text(text + "\n", encoding="utf-8")

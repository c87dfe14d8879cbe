"""Real predictions through the command line; skipped where ../shared/data is absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dense import vectors
from tests.e2e.work import Work
from tests.helpers import Array
from tests.real_data import FOLDER, read

IMAGES = 3_000


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("name", "classes", "columns"),
    [
        ("nfl_elo", 2, ("p1", "p2")),
        ("dermamnist", 7, ("f1", "f2")),
        ("mnist_pycalib", 10, ("f1", "f2")),
        ("imagenet", 1_000, ("f1", "f2")),
    ],
)
def test_converges_and_has_nothing_left_to_patch(
    work: Work, name: str, classes: int, columns: tuple[str, str]
) -> None:
    if name == "imagenet":
        pq.write_table(dense_imagenet(), "imagenet.parquet")
        table = "imagenet.parquet"
    else:
        read(name, ["id"])  # skips where it is absent
        table = str(FOLDER / f"{name}.parquet")
    rng = np.random.default_rng(17)
    work.tree = {
        "input": {"table": table, "id": "id", "label": "label"}
        | {"model_1": columns[0], "model_2": columns[1], "split": {"holdout_fraction": 0.5}},
        "losses": {
            f"l{i}": {"costs": rng.normal(size=(min(classes, 4) + i, classes)).tolist()}
            for i in range(2)
        },
        "reconcile": {"alpha": 0.005, "eta": 0.01},
        "output": {"table": "out/rows"},
        "engine": {"name": "local"},
    }
    run = work.ran()
    assert run["patches"] > 0
    after = run["metrics"]["fit"]["after"]
    assert all(point["largest_event"] < 0.01 for point in after)
    for before, now in zip(run["metrics"]["fit"]["before"], after, strict=True):
        assert int(now["brier_sum"]) <= int(before["brier_sum"])
    same_input(work, table)
    check_again(work, columns)


def same_input(work: Work, table: str) -> None:
    """Rows that no patch touched keep their scores to the bit, whatever the type was."""
    given, rows = pq.read_table(table).sort_by("id"), work.table().sort_by("id")
    assert rows.select(given.column_names).cast(given.schema).equals(given)
    model = work.tree["input"]["model_1"]
    untouched = rows.filter(pa.compute.invert(rows["touched"]))
    assert untouched.num_rows > 0
    wide = untouched[model].cast(untouched[f"{model}_reconciled"].type)
    assert wide.equals(untouched[f"{model}_reconciled"])


def check_again(work: Work, columns: tuple[str, str]) -> None:
    """Fitting on the reconciled columns gives no patch."""
    work.tree["input"] |= {
        "table": "out/rows",
        "model_1": f"{columns[0]}_reconciled",
        "model_2": f"{columns[1]}_reconciled",
    }
    # the same rows as before: n decides the mass of an event, and beta
    work.tree["output"] = {"table": "again/rows"}
    again = work.ran("fit")
    assert (again["status"], again["patches"]) == ("converged", 0)
    assert work.redcal("log", "--json").out == ""


def dense_imagenet() -> pa.Table:
    """A seeded draw of images, the five largest scores spread out to all 1,000 classes."""
    names = ["id", "label", "f1_cls", "f1_prob", "f2_cls", "f2_prob"]
    table: Any = read("imagenet_top5", names)
    rng = np.random.default_rng(3)
    table = table.take(np.sort(rng.choice(table.num_rows, IMAGES, replace=False)))
    columns = {"id": table["id"], "label": table["label"]}
    for model in ("f1", "f2"):
        columns[model] = _dense(vectors(table[f"{model}_cls"]), vectors(table[f"{model}_prob"]))
    return pa.table(columns)


def _dense(classes: Array, scores: Array) -> pa.Array:
    scores = scores.astype(np.float64)
    rest = np.maximum(1 - scores.sum(axis=1), 1e-6) / 995
    full = np.repeat(rest[:, None], 1_000, axis=1)
    np.put_along_axis(full, classes.astype(np.intp), scores, axis=1)
    full /= full.sum(axis=1, keepdims=True)
    offsets = pa.array(np.arange(0, full.size + 1, 1_000, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(full.reshape(-1)))


def test_the_shared_folder_is_where_these_tests_look() -> None:
    if not FOLDER.exists():
        pytest.skip("../shared/data is not here")
    assert (Path(FOLDER) / "README.md").exists()

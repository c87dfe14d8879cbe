"""What is fine before it is spoiled: tables, configurations and a model that belong together."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from deltalake import write_deltalake

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ["healthy", "mild", "severe"]
DEMO_CLASSES = ["nothing_serious", "infection", "heart_failure", "pneumonia", "sepsis"]
ROWS = 30


def _scores(rng: Random, d: int) -> list[float]:
    drawn = [rng.randrange(1, 9) for _ in range(d)]
    return [x / sum(drawn) for x in drawn]


@cache
def reference_rows() -> list[dict[str, Any]]:
    """Rows for conf/reference.yaml."""
    rng = Random(1)
    return [
        {
            "case_id": i,
            "outcome": rng.choice(CLASSES),
            "scores_a": _scores(rng, 3),
            "scores_b": _scores(rng, 3),
            "fold": rng.choice(["train", "test"]),
        }
        for i in range(ROWS)
    ]


@cache
def demo_rows() -> list[dict[str, Any]]:
    """Rows for conf/demo.yaml."""
    rng = Random(2)
    return [
        {
            "patient_id": f"p{i}",
            "condition": rng.choice(DEMO_CLASSES),
            "model_vitals": _scores(rng, 5),
            "model_notes": _scores(rng, 5),
            "cohort": rng.choice(["fit", "holdout"]),
        }
        for i in range(ROWS)
    ]


def parquet(table: pa.Table, **options: Any) -> bytes:
    found = io.BytesIO()
    pq.write_table(table, found, **options)
    return found.getvalue()


@cache
def reference_parquet() -> bytes:
    return parquet(pa.Table.from_pylist(reference_rows()))


@cache
def demo_parquet() -> bytes:
    return parquet(pa.Table.from_pylist(demo_rows()))


def flat_rows() -> list[list[str]]:
    """The reference rows as a CSV file has them, a column per score."""
    head = ["case_id", "outcome", *(f"{m}_{c}" for m in "ab" for c in range(3)), "fold"]
    return [
        head,
        *(
            [
                str(row["case_id"]),
                str(CLASSES.index(row["outcome"])),
                *(f"{x:.6f}" for x in (*row["scores_a"], *row["scores_b"])),
                row["fold"],
            ]
            for row in reference_rows()
        ),
    ]


def csv_bytes(rows: list[list[str]]) -> bytes:
    found = io.StringIO(newline="")
    csv.writer(found, lineterminator="\n").writerows(rows)
    return found.getvalue().encode("utf-8", "surrogatepass")


def config(name: str) -> dict[str, Any]:
    """conf/NAME.yaml as a tree, its fold turned into the column of our rows."""
    with open(ROOT / "conf" / f"{name}.yaml", encoding="utf-8") as file:
        found: dict[str, Any] = yaml.safe_load(file)
    return found


def csv_config() -> dict[str, Any]:
    """A configuration for the rows as CSV."""
    return {
        "input": {
            "table": "scores.csv",
            "id": "case_id",
            "label": "outcome",
            "model_1": ["a_0", "a_1", "a_2"],
            "model_2": ["b_0", "b_1", "b_2"],
            "split": {"column": "fold", "fit": "train", "holdout": "test"},
        },
        "losses": {"triage": {"costs": [[0, 1, 2], [1, 0, 0.5]]}},
        "reconcile": {"alpha": 0.01, "eta": 0.05},
        "output": {"table": "out/result"},
        "engine": {"name": "local", "threads": 1},
    }


def parquet_config() -> dict[str, Any]:
    """A configuration for the rows as Parquet."""
    return csv_config() | {
        "input": {
            "table": "scores.parquet",
            "id": "case_id",
            "label": "outcome",
            "classes": CLASSES,
            "model_1": "scores_a",
            "model_2": "scores_b",
        }
    }


def dumped(tree: Any) -> bytes:
    return json.dumps(tree).encode()  # JSON is YAML


@cache
def model() -> dict[str, Any]:
    """A model of the Parquet rows, as exported."""
    return _exported(parquet_config(), {"scores.parquet": reference_parquet()})


@cache
def csv_model() -> dict[str, Any]:
    """A model of the CSV rows."""
    return _exported(csv_config(), {"scores.csv": csv_bytes(flat_rows())})


def _exported(tree: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    from redcal_spark.cli import main

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, data in {"c.yaml": dumped(tree), **files}.items():
            Path(folder, name).write_bytes(data)
        os.chdir(folder)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                assert main(["fit", "-c", "c.yaml"]) in (0, 3)
                assert main(["export", "-c", "c.yaml", "-o", "m.json"]) == 0
        finally:
            os.chdir(here)
        found: dict[str, Any] = json.loads(Path(folder, "m.json").read_text())
    assert found["log"], "a model without patches would leave little to spoil"
    return found


@cache
def delta_files() -> dict[str, bytes]:
    """The files of a Delta table of the reference rows, by their path in it."""
    with tempfile.TemporaryDirectory() as folder:
        table = pa.Table.from_pylist(reference_rows())
        write_deltalake(folder, table.slice(0, 20))
        write_deltalake(folder, table.slice(20), mode="append")
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }

"""A model as SQL in DuckDB: bit for bit what `apply` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from redcal_spark import ReconciledPair, Reconciler, cli
from redcal_spark.errors import UsageError
from tests import sql_cases
from tests.helpers import refused, seeds


def queried(
    pair: ReconciledPair, rows: pa.Table, dialect: str = "duckdb", **options: Any
) -> pa.Table:
    connection = duckdb.connect()
    connection.register("rows", rows)
    return connection.sql(pair.to_sql("rows", dialect, **options)).to_arrow_table()


@pytest.mark.parametrize("seed", seeds(range(200), 10))
def test_random_problems(seed: int) -> None:
    pair, rows = sql_cases.random_case(seed)
    sql_cases.same(queried(pair, rows), pair, rows)


@pytest.mark.parametrize("seed", seeds(range(200), 4))
def test_random_problems_in_plain_sql(seed: int) -> None:
    """Scores in one column a class; arrays are refused."""
    pair, rows = sql_cases.random_case(seed)
    if not pair.binary:
        assert "array columns" in refused(UsageError, lambda: pair.to_sql("rows", "ansi"))
        keys = rows.column_names
        names = [[f"{key}_{j}" for j in range(pair.n_classes)] for key in keys]
        data = pair.to_json()
        columns = data["columns"] | {"models": names}
        pair = ReconciledPair.from_json(data | {"columns": columns})
        usable = [row for row in rows.to_pylist() if _whole(row, pair.n_classes)]
        rows = pa.table(
            {
                name: pa.array([row[key][j] for row in usable], pa.float64())
                for key, own in zip(keys, names, strict=True)
                for j, name in enumerate(own)
            }
        )
    sql_cases.same(queried(pair, rows, "ansi"), pair, rows)


def _whole(row: dict[str, Any], d: int) -> bool:
    return all(value is not None and len(value) == d for value in row.values())


@pytest.mark.slow
@pytest.mark.parametrize("columns", [False, True])
def test_the_largest_model(columns: bool) -> None:
    pair, rows = sql_cases.largest_case(columns)
    assert len(pair.to_sql("rows", "duckdb")) < 2_000_000
    sql_cases.same(queried(pair, rows), pair, rows)


@pytest.mark.parametrize(
    "name", ["nfl_elo", *(pytest.param(x, marks=pytest.mark.slow) for x in sql_cases.LARGER)]
)
def test_real_sets(name: str) -> None:
    pair, rows = sql_cases.real_case(name)
    sql_cases.same(queried(pair, rows), pair, rows)


def lend(**options: Any) -> ReconciledPair:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 2_000)
    one, two = np.clip(0.3 + 0.4 * y + rng.normal(0, 0.25, (2, 2_000)), 0, 1)
    losses = {"lend": {"costs": [[0, 5], [1, 0]], "actions": ["it's \\ 'ok'", 'refuse\n"']}}
    table = pa.table({"case": [str(i) for i in range(2_000)], 'a`"': one, "b": two, "label": y})
    made = Reconciler(losses=losses, alpha=0.01, eta=0.02, model_1='a`"', model_2="b", **options)
    return made.fit(table)


def test_names_and_columns() -> None:
    """Odd names, an id that may be null, float32 scores, other columns that come along."""
    pair = lend(id="case")
    rng = np.random.default_rng(2)
    rows = pa.table(
        {
            "note": pa.array([f"n{i}" for i in range(50)]),
            "case": pa.array([None if i == 7 else str(i) for i in range(50)]),
            'a`"': pa.array(rng.random(50), pa.float32()),
            "b": pa.array(rng.random(50), pa.float32()),
        }
    )
    sql_cases.same(queried(pair, rows, columns=rows.column_names), pair, rows)
    few = queried(pair, rows, columns=["case"], suffix="_v2")
    wanted = pair.apply(rows, on_bad_rows="skip", suffix="_v2")
    assert few.column_names == ["case", *wanted.column_names[4:]]
    assert few["valid_v2"].to_pylist().count(False) == 1
    assert few["b_v2"].to_pylist() == wanted["b_v2"].to_pylist()


def test_no_function_of_ones_own_and_one_statement() -> None:
    text = lend().to_sql("main.scores")
    assert text.count("SELECT") == 2 * len(lend().log) + 7 and ";" not in text
    assert text.startswith("WITH s3 AS (SELECT") and "FROM main.scores" in text


def test_what_is_too_large_is_refused() -> None:
    pair, _ = sql_cases.largest_case()
    text = pair.to_sql("t")
    assert text.count(" AS (SELECT ") < 60, "Spark's analyzer resolves one a pass, and has 100"
    data = pair.to_json()
    more = ReconciledPair.from_json(data | {"log": [*data["log"], data["log"][-1] | {"step": 100}]})
    words = refused(UsageError, lambda: more.to_sql("t"))
    assert "101 patches, and the limit is 100" in words and "redcal apply" in words
    rng = np.random.default_rng(3)
    scores = rng.dirichlet([1] * 21, (2, 200))
    many = Reconciler(losses={"x": rng.normal(size=(2, 21))}, alpha=0.1, eta=0.1)
    wide = many.fit(scores[0], scores[1], rng.integers(0, 21, 200))
    words = refused(UsageError, lambda: wide.to_sql("t"))
    assert "21 classes, and the limit is 20" in words
    assert "dialect: must be one of spark, duckdb, ansi; got 'oracle'" in refused(
        UsageError, lambda: lend().to_sql("t", "oracle")
    )


def test_export_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--rows", "2000", "--quiet"]) == 0
    config = "out/demo.yaml"
    capsys.readouterr()
    export = ["export", "-c", config, "--format", "sql"]
    assert cli.main([*export, "--dialect", "duckdb", "--table", "rows"]) == 0
    statement = capsys.readouterr().out
    assert cli.main([*export, "--dialect", "duckdb", "-o", "model.sql", "--table", "rows"]) == 0
    assert Path("model.sql").read_text() == statement
    capsys.readouterr()
    assert cli.main(["export", "-c", config, "-o", "model.json"]) == 0
    assert cli.main(["export", "-c", config, "--dialect", "duckdb"]) == 2
    assert "--dialect and --table need --format sql" in capsys.readouterr().err
    pair = ReconciledPair.load("model.json")
    rows = DeltaTable("out/demo/patients").to_pyarrow_table()
    connection = duckdb.connect()
    connection.register("rows", rows)
    sql_cases.same(connection.sql(statement).to_arrow_table(), pair, rows)


@pytest.mark.parametrize(
    ("dialect", "source"),
    [("spark", "delta.`out/demo/patients`"), ("duckdb", "delta_scan('out/demo/patients')")],
)
def test_the_inputs_table_by_default(
    dialect: str,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--rows", "600", "--quiet"]) in (0, 3)
    capsys.readouterr()
    export = ["export", "-c", "out/demo.yaml", "--format", "sql", "--dialect", dialect]
    assert cli.main(export) == 0
    assert f"FROM {source})" in capsys.readouterr().out
    assert cli.main([*export[:-1], "ansi"]) == 2
    assert "--table" in capsys.readouterr().err

"""Spark DataFrames in and out: which engine, which columns, which messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redcal_spark import Reconciler
from redcal_spark.errors import InputError, UsageError
from tests.contract.cases import bits, expected, made, of_problem, same_rows, table
from tests.helpers import arrays, log_of, quietly, reconciler, refused, some_quick
from tests.problems import random_problem

PROBLEM = ("redcal", 10, 5)


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame(table(made(*PROBLEM))).repartition(3)


def fits(data: Any, scratch: str, **options: Any) -> None:
    with quietly():
        pair = reconciler(made(*PROBLEM), scratch=scratch, **options).fit(data)
    assert log_of(pair) == log_of(expected(*PROBLEM).pair)


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "local", "spark"])
def test_a_spark_frame_with_every_engine(frame: Any, scratch: str, engine: str) -> None:
    fits(frame, scratch, engine=engine)


@pytest.mark.slow
def test_tables_in_memory_on_spark(spark: Any, scratch: str) -> None:
    """Through the active session."""
    rows = table(made(*PROBLEM))
    fits(rows, scratch, engine="spark", driver_budget=0)
    fits(rows.to_pandas(), scratch, engine="spark")
    with quietly():
        pair = reconciler(made(*PROBLEM), engine="spark").fit(*arrays(made(*PROBLEM)))
    assert log_of(pair) == log_of(expected(*PROBLEM).pair)


def test_the_choice_is_logged(frame: Any, scratch: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "redcal_spark"):
        fits(frame, scratch)
    assert "engine spark: the data is a Spark DataFrame" in caplog.messages
    assert any(message.startswith("handing over: ") for message in caplog.messages)


def test_an_unknown_engine_is_refused() -> None:
    told = refused(UsageError, lambda: reconciler(made(*PROBLEM), engine="dask"))
    assert told == "engine: must be 'auto', 'local' or 'spark', got 'dask'"


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["spark", "local"])
@pytest.mark.parametrize("kind", ["dense", "both"])
def test_vectors_of_spark_ml(spark: Any, scratch: str, kind: str, engine: str) -> None:
    from pyspark.ml.linalg import DenseVector, SparseVector

    problem = random_problem(3, algorithm="redcal", n=50, d=4, vector_labels=False)
    wanted = of_problem(problem)
    assert wanted.pair.log

    def vector(row: list[float], number: int) -> Any:
        if kind == "dense" or (kind == "both" and number % 2):
            return DenseVector(row)
        return SparseVector(len(row), {i: v for i, v in enumerate(row) if v})

    rows = [
        (i, vector(one, i), vector(two, i), y)
        for i, (one, two, y) in enumerate(zip(problem.f1, problem.f2, problem.y, strict=True))
    ]
    frame = spark.createDataFrame(rows, ["id", "model_1", "model_2", "label"])
    with quietly():
        pair = reconciler(problem, scratch=scratch, engine=engine).fit(frame)
    assert log_of(pair) == log_of(wanted.pair)
    new = ["id", *wanted.rows.column_names[4:]]
    found = pair.apply(frame)
    assert found.schema["model_1"] == frame.schema["model_1"]
    same_rows(found.select(*new).toArrow(), wanted.rows.select(new))


def test_vectors_with_nulls_are_named(spark: Any, scratch: str) -> None:
    from pyspark.ml.linalg import DenseVector, VectorUDT
    from pyspark.sql.types import IntegerType, StructField, StructType

    kinds = {"id": IntegerType(), "model_1": VectorUDT(), "model_2": VectorUDT()}
    kinds["label"] = IntegerType()
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    rows = [(1, DenseVector([0.5, 0.5]), None, 0), (2, DenseVector([1, 0]), DenseVector([1]), 1)]
    model = Reconciler(losses={"a": [[0, 1], [1, 0]]}, alpha=0.1, eta=0.1, id="id", scratch=scratch)
    told = refused(InputError, lambda: model.fit(spark.createDataFrame(rows, schema).coalesce(1)))
    assert "column 'model_2': 1 row with null; first: id 1: None" in told
    assert "column 'model_2': 1 row without exactly 2 values; first: id 2: [1.0]" in told


def test_types_that_arrow_cannot_carry_are_named(frame: Any, scratch: str) -> None:
    odd = frame.selectExpr("*", "make_interval(1) as gap", "interval '2' year as `a.b`")
    told = refused(InputError, lambda: expected(*PROBLEM).pair.apply(odd))
    assert told.splitlines() == [
        "column 'gap' has type interval, which Arrow cannot carry; cast or drop it",
        "column 'a.b' has type interval year, which Arrow cannot carry; cast or drop it",
    ]
    fits(odd, scratch)  # fitting does not read them


def test_such_a_type_in_a_column_that_is_read(frame: Any, scratch: str) -> None:
    odd = frame.drop("label").selectExpr("*", "make_interval(1) as label")
    told = refused(InputError, lambda: fits(odd, scratch))
    assert told == "column 'label' has type interval, which Arrow cannot carry; cast or drop it"


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_names_with_dots_backticks_and_spaces(spark: Any, scratch: str, engine: str) -> None:
    names: dict[str, Any] = {"model_1": "a.b", "model_2": "c`d e", "label": "y.`z`", "id": "i.d"}
    rows = table(made(*PROBLEM))
    rows = rows.rename_columns([names[name] for name in rows.column_names])
    frame = spark.createDataFrame(rows)
    with quietly():
        model = reconciler(made(*PROBLEM), scratch=scratch, driver_budget=0, engine=engine, **names)
        pair = model.fit(frame)
        assert log_of(pair) == log_of(expected(*PROBLEM).pair)
        found, wanted = pair.apply(frame).toArrow(), pair.apply(rows)
    assert found.column_names == wanted.column_names
    for name in wanted.column_names:
        assert bits(found.column(name)) == bits(wanted.column(name)), name


def test_all_types_pass_through(spark: Any) -> None:
    extra = (
        "timestamp'2024-03-31 02:30:00' as ts, timestamp_ntz'2024-01-01 00:00:00' as ntz, "
        "date'1582-10-04' as day, interval '3' day as gap, cast(1.5 as decimal(38, 9)) as money, "
        "map('a', 1) as pairs, named_struct('x', 1, 'y', array('b')) as nested, "
        "parse_json('{\"a\": 1}') as tree, binary('a') as raw, cast(null as string) as nothing"
    )
    frame = spark.createDataFrame(table(made(*PROBLEM)).slice(0, 5)).selectExpr("*", *split(extra))
    found = expected(*PROBLEM).pair.apply(frame)
    assert found.select(*frame.columns).schema == frame.schema
    one, two = (f.orderBy("id").collect() for f in (found.select(*frame.columns), frame))
    assert str(one) == str(two)  # variants have no equality


def split(text: str) -> list[str]:
    """At commas before a new column."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "({") - (sign in ")}")
        if sign == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


# --- messages -------------------------------------------------------------------------------------

Change = Callable[[Any], Any]


def with_label(values: Any) -> Change:
    return lambda rows: rows.set_column(3, "label", pa.array(values))


def spoiled(value: Any) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        scores = rows["model_1"].to_pylist()
        scores[7] = value(scores[7])
        return rows.set_column(1, "model_1", pa.array(scores, pa.list_(pa.float64())))

    return change


N = len(made(*PROBLEM).y)
BAD: dict[str, Change] = {
    "missing column": lambda rows: rows.drop_columns(["model_2"]),
    "missing label": lambda rows: rows.drop_columns(["label"]),
    "no rows": lambda rows: rows.slice(0, 0),
    "text labels": with_label(["yes"] * N),
    "text labels after a null": with_label([None, *["yes"] * (N - 1)]),
    "no label at all": with_label(pa.nulls(N, pa.int32())),
    "label out of range": with_label([11, *[0] * (N - 1)]),
    "scores are text": lambda rows: rows.set_column(1, "model_1", pa.array(["a"] * N)),
    "arrays of text": lambda rows: rows.set_column(1, "model_1", pa.array([["a"]] * N)),
    "nan": spoiled(lambda row: [float("nan"), *row[1:]]),
    "above one": spoiled(lambda row: [1.5, *row[1:]]),
    "short": spoiled(lambda row: row[1:]),
    "null": spoiled(lambda row: None),
    "null inside": spoiled(lambda row: [None, *row[1:]]),
    "null id": lambda rows: rows.set_column(0, "id", pa.array([None, *range(1, N)])),
}


@pytest.mark.parametrize("losses", [True, False], ids=["classes known", "classes unknown"])
@pytest.mark.parametrize("what", some_quick(BAD, 3))
def test_the_same_message_as_in_memory(spark: Any, scratch: str, what: str, losses: bool) -> None:
    rows = BAD[what](table(made(*PROBLEM)))
    given: dict[str, Any] = {"alpha": 0.1, "eta": 0.1, "id": "id", "scratch": scratch}
    if losses:
        given["losses"] = made(*PROBLEM).losses
    else:
        given["algorithm"] = "reconcile"
    with quietly():
        model = Reconciler(**given)
        wanted = refused(InputError, lambda: model.fit(rows))
        found = refused(InputError, lambda: model.fit(spark.createDataFrame(rows).coalesce(1)))
    told = wanted.replace(f"first {N} rows", "first 100 rows")
    told = told.replace("row 0: None", "a row: None")  # rows have numbers in memory only
    assert found == told


@pytest.mark.slow
def test_bad_rows_are_skipped_alike(spark: Any, scratch: str) -> None:
    rows = BAD["nan"](table(made(*PROBLEM)))
    frame = spark.createDataFrame(rows).repartition(3)
    with quietly():
        model = reconciler(made(*PROBLEM), on_bad_rows="skip", scratch=scratch, driver_budget=0)
        pair, wanted = model.fit(frame), model.fit(rows)
        assert log_of(pair) == log_of(wanted)
        found = pair.apply(frame, on_bad_rows="skip").toArrow()
        same_rows(found, wanted.apply(rows, on_bad_rows="skip"))


def test_a_bad_row_at_apply_is_told(spark: Any) -> None:
    rows = BAD["above one"](table(made(*PROBLEM)))
    found = expected(*PROBLEM).pair.apply(spark.createDataFrame(rows))
    with pytest.raises(Exception, match="with a value outside"):
        found.collect()


def test_a_column_that_is_there_already(frame: Any) -> None:
    pair = expected(*PROBLEM).pair
    told = refused(InputError, lambda: pair.apply(pair.apply(frame)))
    assert told == refused(InputError, lambda: pair.apply(expected(*PROBLEM).rows))


# --- batch and streaming --------------------------------------------------------------------------


def test_a_stream_of_files(spark: Any, tmp_path: Path) -> None:
    wanted, rows = expected(*PROBLEM), table(made(*PROBLEM))
    for number, start in enumerate(range(0, len(rows), 200)):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(rows.slice(start, 200), tmp_path / "in" / f"{number}.parquet")
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    found = wanted.pair.apply(stream.parquet(str(tmp_path / "in")))
    assert found.isStreaming
    writer = found.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "state"))
    writer.start(str(tmp_path / "out")).awaitTermination()
    back = spark.read.parquet(str(tmp_path / "out")).toArrow()
    same_rows(back, wanted.rows)
    assert len(list((tmp_path / "out").glob("*.parquet"))) >= 3


def test_pandas_and_spark_apply_alike(frame: Any) -> None:
    pair = expected(*PROBLEM).pair
    one = pair.apply(frame).toPandas().sort_values("id").reset_index(drop=True)
    two = pair.apply(table(made(*PROBLEM)).to_pandas())
    for name in two.columns:
        if name.endswith("_reconciled"):
            assert np.stack(one[name]).tobytes() == np.stack(two[name]).tobytes()
        elif not name.startswith("model"):
            assert one[name].equals(two[name]), name

"""What Spark Connect must show of its own. Not collected by itself: test_processes.py names it."""

from __future__ import annotations

from typing import Any

from redcal_spark.session import active_session, get_session
from tests.contract.cases import bits, expected, made, table
from tests.helpers import log_of, quietly, reconciler
from tests.spark.test_runs import lake, test_again_changed_and_back  # noqa: F401


def test_this_is_connect(spark: Any) -> None:
    assert type(spark).__module__.startswith("pyspark.sql.connect")


def test_the_active_session_is_used(spark: Any) -> None:
    assert active_session() is spark
    assert get_session() is spark


def test_numpy_and_pandas_through_the_active_session(spark: Any) -> None:
    problem = ("redcal", 10, 5)
    with quietly():
        model = reconciler(made(*problem), engine="spark")
        pair = model.fit(table(made(*problem)).to_pandas())
    assert log_of(pair) == log_of(expected(*problem).pair)


def test_streaming(spark: Any, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    problem = ("redcal", 10, 5)
    (tmp_path / "in").mkdir()
    rows = table(made(*problem))
    pq.write_table(rows, tmp_path / "in" / "1.parquet")
    wanted = expected(*problem)
    stream = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema)
    with quietly():
        found = wanted.pair.apply(stream.parquet(str(tmp_path / "in")))
    writer = found.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "state"))
    writer.start(str(tmp_path / "out")).awaitTermination()
    back = spark.read.parquet(str(tmp_path / "out")).toArrow().sort_by("id")
    for name in wanted.rows.column_names:
        assert bits(back.column(name)) == bits(wanted.rows.column(name)), name

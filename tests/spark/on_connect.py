"""What Spark Connect must show of its own. Not collected by itself: test_processes.py names it.

Serverless Databricks is Spark Connect with some of it taken away: so is it here, in `serverless`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import AnalysisException

from redcal_spark.backends.spark.session import active_session, get_session
from redcal_spark.backends.spark.watch import Watch
from redcal_spark.demo import SCHEMA, patients
from tests import wheels
from tests.contract.cases import bits, expected, made, table
from tests.e2e.test_resume import outcome
from tests.e2e.work import scores
from tests.helpers import log_of, quietly, reconciler
from tests.spark.test_plans import TAKEN_AWAY
from tests.spark.test_runs import Lake, lake, test_again_changed_and_back  # noqa: F401
from tests.spark.test_stream import river, test_twice_is_as_good_as_the_whole  # noqa: F401
from tests.spark.test_workers import (  # noqa: F401
    fitted,
    test_a_worker_that_dies,
    test_bad_scores_in_apply_are_told_as_by_the_local_engine,
)
from tests.unit import test_bundle

# Here one test each of a run and of a worker's death; these are quick tests on classic Spark.
pytest.mark.slow(test_again_changed_and_back)
pytest.mark.slow(test_twice_is_as_good_as_the_whole)
pytest.mark.slow(test_bad_scores_in_apply_are_told_as_by_the_local_engine)


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


@pytest.mark.slow
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


# --- serverless -----------------------------------------------------------------------------------


@pytest.fixture
def serverless(spark: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What serverless refuses is refused; the names of what was asked for all the same."""
    from pyspark.sql.connect.catalog import Catalog
    from pyspark.sql.connect.conf import RuntimeConf
    from pyspark.sql.connect.dataframe import DataFrame

    asked: list[str] = []

    def refusing(name: str) -> Any:
        def refused(*given: Any, **named: Any) -> Any:
            asked.append(name)
            raise AnalysisException(f"[NOT_SUPPORTED_WITH_SERVERLESS] {name}")

        return refused

    for name in TAKEN_AWAY:
        owner = Catalog if hasattr(Catalog, name) else DataFrame
        monkeypatch.setattr(owner, name, refusing(name))
    for name in ("set", "unset"):
        monkeypatch.setattr(RuntimeConf, name, refusing(f"conf.{name}"))
    get = RuntimeConf.get

    def some(self: Any, key: str, *default: Any) -> Any:
        if key == "spark.master":
            return refusing("conf.get(spark.master)")()
        return get(self, key, *default)

    monkeypatch.setattr(RuntimeConf, "get", some)
    with pytest.raises(AnalysisException, match="NOT_SUPPORTED_WITH_SERVERLESS"):
        spark.range(1).persist()
    assert asked == ["persist"]
    asked.clear()
    return asked


@pytest.mark.parametrize("budget", [0, pytest.param(2**28, marks=pytest.mark.slow)])
def test_run_and_apply_as_on_serverless(
    lake: Lake,  # noqa: F811
    serverless: list[str],
    budget: int,
) -> None:
    """Merging, too: its commits cannot name the run through the session's settings here."""
    lake.tree["reconcile"]["eta"] = 0.03
    lake.tree["engine"]["driver_budget"] = budget
    lake.tree["output"]["mode"] = "merge"
    first = lake.ran_on("spark")
    assert lake.ran_on("spark")["unchanged"]
    write_deltalake("scores", scores(650), mode="overwrite")
    second = lake.redcal("apply", "--json")
    assert second.code == 0, second.err
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 650
    assert second.json["outputs"]["out/rows"] > first["outputs"]["out/rows"]
    there = outcome()
    write_deltalake("scores", scores(), mode="overwrite")
    lake.tree["output"]["table"] = "local/out/rows"
    lake.ran_on("local")
    write_deltalake("scores", scores(650), mode="overwrite")
    assert lake.redcal("apply", "--json", "--engine", "local").code == 0
    here = outcome("local")
    for name in ("rows", "patches", "history"):
        assert there[name] == here[name]
    assert set(serverless) <= {"conf.set"}  # asked for politely: see backends/spark/merge


def test_without_scratch_serverless_is_told(lake: Lake, serverless: list[str]) -> None:  # noqa: F811
    del lake.tree["engine"]["scratch"]
    told = lake.redcal("run")
    assert told.code == 2
    assert "engine.scratch: is required, because this Spark session is not local" in told.err


@pytest.mark.slow
def test_the_tasks_of_the_bundle(spark: Any, tmp_path: Path) -> None:
    """audit, fit, apply, report: the wheel in a clean environment, three-part names, a volume."""
    spark.sql("CREATE SCHEMA risk")
    try:
        table = pa.Table.from_batches(patients(3_000), SCHEMA)
        spark.createDataFrame(table).write.format("delta").saveAsTable("risk.patients")
        (environment,) = test_bundle.job()["environments"]
        others = environment["spec"]["dependencies"][1:]
        wheel = wheels.build(tmp_path / "sources")
        python = wheels.install(wheel, tmp_path / "venv", *others, "pyspark[connect]")
        volumes = f"{tmp_path}/Volumes/"
        commands = [
            [
                text.replace("=main.", "=spark_catalog.").replace("/Volumes/", volumes)
                for text in test_bundle.parameters(name)
            ]
            for name in test_bundle.TASKS
        ]
        (tmp_path / "elsewhere").mkdir()
        told = wheels.tasks(python, tmp_path / "elsewhere", *commands, env=as_databricks())
        assert told == ["succeeded"] * 4
        rows = spark.read.table("risk.triage")
        assert rows.count() == 3_000
        assert rows.where("triage_1_before <> triage_2_before").count() > 600
        assert rows.where("triage_1_after <> triage_2_after").count() < 100
        page = Path(volumes, "main/risk/redcal/triage.html").read_text("utf-8")
        [run] = spark.read.table("risk.triage_runs").where("command = 'fit'").collect()
        assert run.run_id in page
        assert list(Path(volumes, "main/risk/redcal/scratch").iterdir()) == []
        assert list((tmp_path / "elsewhere").iterdir()) == []
    finally:
        spark.sql("DROP SCHEMA risk CASCADE")


def as_databricks() -> dict[str, str]:
    """The environment of a task: a runtime, and the server of this process as its Spark."""
    given = {"DATABRICKS_RUNTIME_VERSION": "client.4", "SPARK_REMOTE": "sc://localhost"}
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" in os.environ
    return given


# --- how far a job is -----------------------------------------------------------------------------


def test_without_a_shared_folder_connect_tells_how_far_a_job_is(spark: Any) -> None:
    """By the tasks that are done: half of them while the other half goes on."""

    def slow(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(1.5)
            yield batch

    told: list[int] = []
    with Watch(spark, None, told.append, 800):
        rows = spark.range(0, 8, 1, 8).mapInArrow(slow, "id bigint").toArrow()
    assert rows.num_rows == 8
    assert told == sorted(told)
    assert any(0 < done < 800 for done in told), told

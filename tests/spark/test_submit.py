"""`spark-submit jobs/run.py` on a standalone cluster that has not got the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from redcal_spark.engines.spark import archive
from tests import backends
from tests.e2e.test_resume import outcome
from tests.e2e.work import Work, scores

ROOT = Path(__file__).parents[2]


def packages() -> str:
    """Delta's jars, as delta-spark itself would name them for this Spark."""
    from delta import pip_utils
    from pyspark.sql import SparkSession

    builder = pip_utils.configure_spark_with_delta_pip(SparkSession.builder)
    return str(builder._options["spark.jars.packages"])


def submit(cluster: backends.Cluster, job: str, *arguments: str) -> tuple[int, str]:
    import pyspark

    done = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", cluster.url, "--packages", packages(), "--py-files", archive()),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.log.level=ERROR"),
            # small tables, two cores: the defaults are for large ones
            *("--conf", "spark.sql.shuffle.partitions=4"),
            *("--conf", "spark.databricks.delta.snapshotPartitions=2"),
            str(ROOT / "jobs" / job),
            *arguments,
        ],
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", backends.VARIABLE)}
        | {
            "PYSPARK_PYTHON": str(cluster.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(backends.name() != "classic", reason="has a cluster of its own")
def test_run_again_changed_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redcal_spark.work._in_spark", lambda: False)
    work = Work(tmp_path, capsys)
    work.tree["input"]["table"] = "scores"
    work.tree["reconcile"]["eta"] = 0.03
    work.tree["engine"] = {"scratch": str(tmp_path / "scratch")}
    write_deltalake("scores", scores())
    Path("config.yaml").write_text(yaml.safe_dump(work.tree, sort_keys=False), "utf-8")
    (tmp_path / "cluster").mkdir()
    with backends.cluster(tmp_path / "cluster") as cluster:
        code, said = submit(cluster, "run.py", "-c", "config.yaml", "--json")
        assert code == 0, said
        first = outcome()
        code, said = submit(cluster, "run.py", "-c", "config.yaml")
        assert code == 0, said
        assert "nothing to do: run" in said
        rows = scores().to_pylist()
        rows[0]["outcome"] = "none" if rows[0]["outcome"] != "none" else "mild"
        write_deltalake("scores", pa.Table.from_pylist(rows, scores().schema), mode="overwrite")
        code, said = submit(cluster, "run.py", "-c", "config.yaml", "--json")
        assert code == 0, said
    assert [json.loads(run["inputs"])["version"] for run in work.runs()] == [0, 1]
    then = DeltaTable("out/rows", version=0).to_pyarrow_table().sort_by("case").to_pylist()
    assert then == first["rows"]
    assert list(Path("scratch").iterdir()) == []
    work.tree["output"]["table"] = "local/out/rows"
    work.tree["input"]["version"] = 0
    told = work.redcal("run", "--engine", "local")
    assert told.code == 0, told.err
    assert outcome("local") == first

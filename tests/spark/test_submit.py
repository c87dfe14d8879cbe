"""`spark-submit jobs/run.py` on a standalone cluster where nobody has the package installed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from packaging.requirements import Requirement

from tests import backends, wheels
from tests.e2e.test_resume import outcome
from tests.e2e.work import Work, scores

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),  # each test submits several times
    pytest.mark.skipif(backends.name() != "classic", reason="has a cluster of its own"),
]


def packages() -> str:
    """Delta's jars, as delta-spark itself would name them for this Spark."""
    from delta import pip_utils
    from pyspark.sql import SparkSession

    builder = pip_utils.configure_spark_with_delta_pip(SparkSession.builder)
    return str(builder._options["spark.jars.packages"])


@dataclass(frozen=True)
class Submitter:
    """Workers have numpy and pyarrow; the driver has pandas, too, and what the wheel asks for."""

    cluster: backends.Cluster
    driver: Path
    wheel: Path

    def __call__(self, job: str, *arguments: str) -> tuple[int, str]:
        import pyspark

        done = subprocess.run(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
                *("--master", self.cluster.url, "--packages", packages()),
                *("--py-files", str(self.wheel)),
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
                "PYSPARK_PYTHON": str(self.cluster.python),
                "PYSPARK_DRIVER_PYTHON": str(self.driver),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitter]:
    folder = tmp_path_factory.mktemp("cluster")
    wheel = wheels.build(folder / "sources")
    needed = wheels.needed([*wheels.requirements(wheel), Requirement("pandas")])
    driver = backends.environment(folder / "driver", [*needed, "pyspark", "py4j"])
    for python in (driver, backends.environment(folder / "look")):
        wheels.run([str(python), "-c", "import redcal_spark"], folder, code=1)
    with backends.cluster(folder) as cluster:
        yield Submitter(cluster, driver, wheel)


@pytest.fixture
def work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Work:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redcal_spark.cli.open_job._in_spark", lambda: False)
    found = Work(tmp_path, capsys)
    found.tree["input"]["table"] = "scores"
    found.tree["reconcile"]["eta"] = 0.03
    found.tree["engine"] = {"scratch": str(tmp_path / "scratch")}
    write_deltalake("scores", scores())
    Path("config.yaml").write_text(yaml.safe_dump(found.tree, sort_keys=False), "utf-8")
    return found


def test_run_again_changed_and_back(submit: Submitter, work: Work) -> None:
    code, said = submit("run.py", "-c", "config.yaml", "--json")
    assert code == 0, said
    first = outcome()
    code, said = submit("run.py", "-c", "config.yaml")
    assert code == 0, said
    assert "nothing to do: run" in said
    rows = scores().to_pylist()
    rows[0]["outcome"] = "none" if rows[0]["outcome"] != "none" else "mild"
    write_deltalake("scores", pa.Table.from_pylist(rows, scores().schema), mode="overwrite")
    code, said = submit("run.py", "-c", "config.yaml", "--json")
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


def test_the_other_jobs_and_their_exit_codes(submit: Submitter, work: Work) -> None:
    code, said = submit("run.py", "-c", "missing.yaml")
    assert (code, "missing.yaml" in said) == (2, True), said
    code, said = submit("audit.py", "-c", "config.yaml", "--json")
    assert code == 0, said
    assert not Path("out").exists()  # it writes nothing
    two = ("-c", "config.yaml", "--set", "reconcile.max_steps=2")
    code, said = submit("fit.py", *two)
    assert code == 3, said
    assert "capped: 2 patches" in said
    assert not Path("out/rows").exists()
    code, said = submit("apply.py", *two)
    assert code == 0, said
    assert DeltaTable("out/rows").to_pyarrow_table().num_rows == 600
    on_cluster = work.redcal("log", "--json", "--engine", "local", *two[2:]).lines
    work.tree["output"]["table"] = "local/out/rows"
    assert work.redcal("run", "--engine", "local", *two[2:]).code == 3
    assert work.redcal("log", "--json", "--engine", "local", *two[2:]).lines == on_cluster

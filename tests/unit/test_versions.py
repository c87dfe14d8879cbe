"""The Sparks that the package asks for, what it says of others, and what a worker must have."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyspark.errors import PySparkException

from redcal_spark.backends.comments import Comments
from redcal_spark.backends.spark import query, ship, spark_version, tasks
from redcal_spark.backends.spark.arrow_batches import batch_bytes, bytes_of
from redcal_spark.backends.spark.workers import of_worker
from redcal_spark.errors import UsageError
from redcal_spark.runs.ledger import SCHEMA
from redcal_spark.runs.tables import HISTORY, METRICS, PATCHES
from tests.versions.rows import NEWEST, OLDEST, ROWS
from tests.versions.table import STEPS, Outcome, save, saved

ROOT = Path(__file__).parents[2]


def asked(name: str) -> Requirement:
    lines = importlib.metadata.requires("redcal-spark") or []
    (found,) = [one for one in map(Requirement, lines) if one.name == name]
    return found


def test_setup_asks_for_what_is_tested() -> None:
    spark, delta = asked("pyspark").specifier, asked("delta-spark").specifier
    for row in ROWS:
        inside = row.spark in spark and (row.without_delta or row.delta in delta)
        assert inside == (row.name not in ("4.2-last", "index")), row.name
    assert "3.5.8" not in spark and "4.4.1" not in delta
    rows = {row.name: row for row in ROWS}
    assert (rows[OLDEST].spark, rows[NEWEST].spark) == ("4.0.0", "4.2.0")
    assert str(spark) == f"<={rows[NEWEST].spark},>=4.0"
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert f"pyspark=={rows[NEWEST].spark} " in lock
    assert f"delta-spark=={rows[NEWEST].delta} " in lock


@pytest.mark.parametrize("version", ["3.5.8", "3.5.2-amzn-1", "2.4"])
def test_an_older_spark_is_refused_in_words(version: str) -> None:
    with pytest.raises(UsageError) as told:
        spark_version._check("Spark", version)
    assert f"needs Spark 4.0 or later, and this is Spark {version}" in str(told.value)
    assert "exported as SQL" in str(told.value) and "engine.name: local" in str(told.value)


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1-amzn-0", "4.2.0", "4.3.0", "5.0", "nightly"])
def test_others_are_not(version: str) -> None:
    spark_version._check("Spark", version)


def test_a_driver_without_pandas_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_version.need_pyspark_4()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"needs pandas at the driver.*pip install 'pandas>=2\.2"):
        spark_version.need_pyspark_4()


def test_a_spark_that_has_no_delta_yet_is_named() -> None:
    assert spark_version.newer_than_delta("4.2.1") == ""
    assert "this is PySpark 4.3.0" in spark_version.newer_than_delta("4.3.0")


@pytest.mark.parametrize("form", [dict, json.dumps, str])
def test_where_a_batch_ended_is_read_in_the_form_of_every_spark(form: Callable[..., Any]) -> None:
    """A dict, its JSON, or what Python prints of it (4.1)."""
    ended = {"sourceVersion": 1, "reservoirVersion": 7, "index": -1, "isStartingVersion": False}
    assert query._version(form(ended)) == 6
    assert query._version(form(ended | {"index": 3})) == 7
    assert query._version("None") is None and query._version("KafkaV2[x]") is None


def test_the_oldest_spark_is_in_every_build() -> None:
    assert "test-oldest" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(r"^test-oldest:.*\n\t.*tests.versions oldest --quick$", MAKE, re.MULTILINE)


MAKE = (ROOT / "Makefile").read_text("utf-8")


def test_an_outcome_is_good_only_if_all_of_it_is() -> None:
    passed = Outcome({"classic": dict.fromkeys(STEPS, "ok")}, {"classic": "x"})
    assert passed.good and passed.told == "all passed"
    assert passed.good_for("x", ["classic"]) and not passed.good_for("y", ["classic"])
    assert not passed.good_for("x", ["classic", "connect"])
    for other in (
        Outcome(),
        Outcome(passed.steps, passed.digests, replaced=["numpy 2.1.3, now 2.4.0"]),
        Outcome({"classic": {"run": "failure: test_run: no"}}, {"classic": "x"}),
        Outcome(problem="there is no Python 3.12 here"),
    ):
        assert not other.good and other.told != "all passed"


def test_what_earlier_commits_got_stays_with_their_name(tmp_path: Path) -> None:
    ran = {"local": {step: "ok" for step in STEPS if step != "stream"}}
    ran["local"] |= {"contract": "ok (19)", "workers": "-"}
    known = {"oldest": Outcome(ran, {"local": "x"}, {"local": "abc1234"})}
    save(tmp_path / "versions.json", known)
    again = saved(tmp_path / "versions.json")
    assert [*again] == ["oldest"]
    assert (again["oldest"].steps, again["oldest"].commits) == (ran, {"local": "abc1234"})
    assert again["oldest"].good and not again["oldest"].good_for("x", ["local"])
    assert saved(tmp_path / "none.json") == {}


# --- the package on workers -----------------------------------------------------------------------

LOOKS = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark import cloudpickle
look = cloudpickle.loads(sys.stdin.buffer.read())
print(next(look(iter(()))).column(0)[0].as_py(), "redcal_spark" in sys.modules)
"""


def seen_by_worker(place: str) -> list[str]:
    """What a process finds that has this on its path; it does not import it."""
    from pyspark import cloudpickle

    given = cloudpickle.dumps(ship._look())  # type: ignore[no-untyped-call]
    hidden = "import sys; sys.meta_path = [f for f in sys.meta_path if 'edit' not in repr(f)]\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + LOOKS, place], input=given, capture_output=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr.decode()
    return str(done.stdout.decode()).split()


@pytest.mark.slow
def test_a_worker_finds_the_very_package(tmp_path: Path) -> None:
    assert seen_by_worker(str(ROOT)) == [ship.digest(), "False"]
    assert seen_by_worker(ship.archive()) == [ship.digest(), "False"]
    other = tmp_path / "other"
    with zipfile.ZipFile(ship.archive()) as packed:
        packed.extractall(other)
    assert seen_by_worker(str(other)) == [ship.digest(), "False"]
    (other / "redcal_spark" / "errors.py").write_text("# the same version, other code\n")
    assert seen_by_worker(str(other))[0] not in (ship.digest(), "")


def test_a_worker_that_sees_nothing_says_how_to_install_it() -> None:
    raised = "ModuleNotFoundError: No module named 'redcal_spark'"
    text = f"Traceback (most recent call last):\n  File\n{raised}"
    told = of_worker(PySparkException(text))
    assert isinstance(told, UsageError) and "Install the same wheel" in str(told)


def test_large_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PIECE", 1_000)
    batch = pa.record_batch({"x": pa.array(range(1_000)), "y": pa.array([[1.0]] * 1_000)})
    found = list(tasks.pieces(iter([batch, batch.slice(3, 0), batch.slice(7, 2)])))
    assert max(piece.nbytes for piece in found) <= 1_100
    assert pa.Table.from_batches(found[:-2]).to_batches() and found[-2].num_rows == 0
    assert pa.Table.from_batches(found).to_pylist() == [*batch.to_pylist(), *batch.to_pylist()[7:9]]


def test_the_size_of_batches() -> None:
    assert batch_bytes(1_600, 10_000, 64 << 20) == 16_000_000
    assert batch_bytes(25_600, 10_000, 256 << 20) == 256_000_000
    assert batch_bytes(25_600, 0, 64 << 20) == 64 << 20
    assert bytes_of("268435456b") == bytes_of("256m") == bytes_of("256 MB") == 256 << 20
    assert bytes_of("67108864") == 64 << 20 and bytes_of("2g") == 2 << 30


# --- comments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [PATCHES, HISTORY, METRICS, SCHEMA])
def test_comments_travel_with_a_schema(schema: pa.Schema) -> None:
    said = Comments.of(schema)
    assert said.table and list(said.columns) == schema.names and all(said.columns.values())
    assert Comments.of(pa.schema([("x", pa.int64())])) == Comments()

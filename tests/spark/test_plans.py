"""What the engine does not do: keep state in the session, grow plans, or run jobs nobody needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from redcal_spark.backends.spark.engine import SparkEngine
from redcal_spark.backends.spark.frames import map_in_arrow
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.stored_blocks import Stored
from redcal_spark.backends.spark.tasks import MANY, AskTask
from redcal_spark.core.patches import Patch
from tests.contract.cases import expected, made, table
from tests.helpers import log_of, quietly, reconciler

ROOT = Path(__file__).parents[2] / "redcal_spark"
# Spark Connect has these, serverless has not, or they pile up in a long session.
TAKEN_AWAY = {
    *("cache", "persist", "unpersist", "checkpoint", "localCheckpoint"),
    *("cacheTable", "uncacheTable", "clearCache"),
    *("createTempView", "createOrReplaceTempView", "createGlobalTempView"),
    *("createOrReplaceGlobalTempView", "registerTempTable", "foreachPartition"),
}
# Neither has these.
FORBIDDEN = TAKEN_AWAY | {
    *("rdd", "sparkContext", "SparkContext", "SQLContext", "HiveContext", "broadcast"),
    *("_jvm", "_jsc", "_jdf", "_jsparkSession", "_sc", "newSession", "addFile", "addPyFile"),
    *("toPandas", "accumulator", "setCheckpointDir", "setJobGroup", "registerJavaFunction"),
}
# The same in SQL.
STATEMENTS = re.compile(
    r"\bCACHE\s+TABLE\b|\bTEMP(ORARY)?\s+(VIEW|TABLE)\b|\bglobal_temp\b|^\s*(SET\s+spark|ADD\s+JAR\s)",
    re.IGNORECASE,
)
# They change a setting of the session if they may, and put it back.
ASK = {"backends/spark/merge.py", "backends/spark/arrow_batches.py"}
OURS = {"cache"}  # functools'
CALLED = {"checkpoint"}  # a stream has one, and a key of the configuration: only a call is Spark's


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    calls = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (node.attr not in CALLED or node in calls):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name) and node.id not in CALLED:
            yield node.id, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in FORBIDDEN - CALLED:  # getattr(frame, "rdd")
                yield node.value, node.lineno
            elif found := STATEMENTS.search(node.value):
                yield found[0], node.lineno


def forbidden(source: str) -> list[tuple[str, int]]:
    tree = ast.parse(source)
    functools = any(
        isinstance(node, ast.ImportFrom) and node.module == "functools" for node in ast.walk(tree)
    )
    allowed = OURS if functools else set()
    plain = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return [
        (name, line)
        for name, line in names(tree)
        if (name in FORBIDDEN or STATEMENTS.search(name))
        and not (name in allowed and line in plain)
    ]


def settings(source: str) -> list[int]:
    """Where settings of a session are changed."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in ("set", "unset")
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "conf"
    ]


def test_nothing_that_stays_in_the_session() -> None:
    found = {str(path.relative_to(ROOT)): forbidden(path.read_text()) for path in files()}
    assert len(found) > 20
    assert {path: what for path, what in found.items() if what} == {}


def test_settings_of_the_session_are_changed_in_two_places() -> None:
    """Which take no for an answer: tests/spark/on_connect.py refuses it to the first."""
    found = {str(path.relative_to(ROOT)) for path in files() if settings(path.read_text())}
    assert found == ASK


def test_every_task_goes_one_way_to_the_workers() -> None:
    """Which makes workers cheap to use again. The probe needs nothing of the package."""
    there = [str(path.relative_to(ROOT)) for path in files() if ".mapInArrow(" in path.read_text()]
    assert there == ["backends/spark/frames.py", "backends/spark/ship.py"]


def test_workers_look_for_garbage_among_few_objects(spark: Any) -> None:
    """Spark has them do so after every task; what was imported is not looked at again."""

    def objects(batches: Iterable[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        list(batches)
        yield pa.RecordBatch.from_pydict({"seen": [len(gc.get_objects())]})

    ship_package(spark)
    told = map_in_arrow(spark.range(0, 4, 1, 4), objects, "seen long").toArrow()
    assert max(told["seen"].to_pylist()) < MANY + 1_000  # 50,000 are imported


def test_the_search_finds_what_it_is_for() -> None:
    for line in ("frame.cache()", "frame.rdd.map(f)", "spark.sparkContext", "getattr(f, 'rdd')"):
        assert forbidden(line), line
    assert forbidden("from pyspark.sql.functions import broadcast")
    for sql in ("CACHE TABLE t", "create or replace temp view v as", "SET spark.x = 1"):
        assert forbidden(f"spark.sql({sql!r})") and forbidden(f"spark.sql(f{sql + '{x}'!r})"), sql
    assert not forbidden("spark.sql('UPDATE t SET x = 1')")
    assert settings("spark.conf.set('a', 'b')") and not settings("self.options.set('a')")
    assert forbidden("frame.checkpoint()") and not forbidden("output.checkpoint")
    assert not forbidden("from functools import cache\n@cache\ndef f(): ...")


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


# --- plans ----------------------------------------------------------------------------------------


def nodes(frame: Any) -> int:
    """Nodes of the analysed plan; a test may look into the JVM."""
    return str(frame._jdf.queryExecution().analyzed().treeString()).count("\n")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("count", "direct"), [(24, True), (24, False), pytest.param(60, True, marks=pytest.mark.slow)]
)
def test_plans_do_not_grow_with_the_number_of_steps(
    spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch, count: int, direct: bool
) -> None:
    """Also with rewrites, each of which starts from what the last one wrote."""
    sizes: list[int] = []
    whole = Scratch._collected

    def watched(scratch: Scratch, frame: Any) -> Any:
        sizes.append(nodes(frame))
        return whole(scratch, frame)

    def many(stored: Stored) -> bool:
        return len(stored.pending) >= 10

    monkeypatch.setattr(Scratch, "direct", direct)
    monkeypatch.setattr(Scratch, "_collected", watched)
    monkeypatch.setattr(Stored, "rewrite_pays", property(many))
    steps = Steps(spark, scratch)
    written = blocks(steps)
    steps.until(3)
    after_3 = max(sizes)
    sizes.clear()
    steps.until(count)
    assert len(sizes) >= count - 3 + (count - 3) // 10
    assert blocks(steps) == written
    assert max(sizes) <= after_3
    steps.close()


def blocks(steps: Steps) -> int:
    """Nodes of a plan that goes over the blocks."""
    state, written = steps.stored.state, steps.stored.written
    return nodes(written.passed(lambda cells: AskTask(state, "events", 0, cells)))


class Steps:
    """An engine whose rows are patched up and down again, as often as wanted."""

    def __init__(self, spark: Any, scratch: str):
        problem = made("decision_calibration", 2, 1)
        with quietly():
            model = reconciler(problem, scratch=scratch, driver_budget=0)
            frame = spark.createDataFrame(table(problem).slice(0, 50))
            from redcal_spark.backends.spark.frames import layout_of
            from redcal_spark.backends.spark.scan import SparkScan

            layout = layout_of(frame, model.columns, 2)
            self.scratch = Scratch(spark, scratch)
            scan = SparkScan(frame, model.problem, layout, self.scratch, 0)
            found = scan.engine(model.problem)
        assert isinstance(found, SparkEngine)
        self.engine, self.stored, self.patches = found, found._stored, 0
        self.region = found.freeze(None)

    def until(self, count: int) -> None:
        while self.patches < count:
            phi = (1 - 2 * (self.patches % 2)) * 1_000
            place = {"loss": "l0", "action": self.patches % 2, "rows": 1, "phi": (phi, -phi)}
            absent = dict.fromkeys(("other", "round", "a1", "a2", "coordinate", "direction"))
            given: dict[str, Any] = {"kind": "calibrate", "model": 1} | place | absent
            patch = Patch(step=self.patches, **given)
            self.region.residuals(1)
            self.region.patch(patch)
            self.patches += 1

    def close(self) -> None:
        self.engine.close()
        self.scratch.close()


# --- jobs -----------------------------------------------------------------------------------------


def jobs(spark: Any, work: Any) -> tuple[Any, int]:
    """What the work gives, and how many Spark jobs it took."""
    context = spark.sparkContext
    group = f"counted-{np.random.default_rng().integers(2**60)}"
    context.setJobGroup(group, "counted by a test")
    try:
        result = work()
        return result, len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize("algorithm", ["redcal", "decision_calibration", "reconcile"])
def test_a_fit_with_handover_takes_three_jobs_and_one_a_handover(
    spark: Any, scratch: str, algorithm: str
) -> None:
    problem = (algorithm, 10, 5)
    frame = spark.createDataFrame(table(made(*problem)))
    with quietly():
        model = reconciler(made(*problem), scratch=scratch)
        pair, count = jobs(spark, lambda: model.fit(frame))
    assert log_of(pair) == log_of(expected(*problem).pair)
    assert count <= 3 + 1


def test_distributed_steps_are_one_job_each(
    spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision Calibration: the scan, its statistics, a pass a step and model, the holdout rows.

    Whether a rewrite pays is a matter of seconds, and of how busy the machine is.
    """
    monkeypatch.setattr(Stored, "rewrite_pays", False)
    problem = ("decision_calibration", 10, 5)
    frame = spark.createDataFrame(table(made(*problem)))
    with quietly():
        model = reconciler(made(*problem), scratch=scratch, driver_budget=0)
        pair, count = jobs(spark, lambda: model.fit(frame))
    assert count <= 2 + len(pair.log) + 2 + 1


def test_threads_of_blas_are_given_back(spark: Any, scratch: str) -> None:
    """The local engine takes one BLAS thread, also for the rows of a single event."""

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, problem = threads(), ("redcal", 10, 1)
    frame = spark.createDataFrame(table(made(*problem)))
    budget = expected(*problem).active_bytes - 1  # some events, not all of them
    with quietly():
        pair = reconciler(made(*problem), scratch=scratch, driver_budget=budget).fit(frame)
    assert log_of(pair) == log_of(expected(*problem).pair)
    assert threads() == before

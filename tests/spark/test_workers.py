"""A Spark worker that fails tells the cause and the way out, as the local engine would."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from redcal_spark.backends.spark import arrow_batches, frames, scan
from redcal_spark.backends.spark.scratch import Scratch
from redcal_spark.errors import UsageError
from redcal_spark.model.pair import ReconciledPair
from tests import backends
from tests.e2e.work import Told, scores
from tests.helpers import quietly
from tests.spark.test_runs import Lake, lake  # noqa: F401

STREAM = ["--incremental", "--set", "output.mode=append"]
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
NEVER = "An exception was thrown from the Python worker"


@pytest.fixture
def fitted(lake: Lake) -> Lake:  # noqa: F811
    """A model of other rows in model.json; nothing else is there."""
    lake.tree["reconcile"]["max_steps"] = 2
    assert lake.redcal("fit", "--engine", "local", "--set", "output.table=old/rows").code == 3
    told = lake.redcal(
        "export", "--engine", "local", "--set", "output.table=old/rows", "-o", "model.json"
    )
    assert told.code == 0, told.err
    return lake


def failing(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> None:
    """Every task over rows of the input fails at its first batch, however often it is tried."""

    def made(plain: Any) -> Any:
        class Failing(plain):  # type: ignore[misc]
            def __call__(self, batches: Any) -> Iterator[Any]:
                for batch in plain.__call__(self, batches):
                    fail()
                    yield batch

        return Failing

    for owner, name in ((scan, "ScanTask"), (frames, "ApplyTask")):
        monkeypatch.setattr(owner, name, made(getattr(owner, name)))


def killing() -> Callable[[], None]:
    """A function of its own is sent by value: workers do not have these tests."""

    def fail() -> None:
        import os
        import signal
        import time

        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(20)

    return fail


def out_of_memory() -> Callable[[], None]:
    def fail() -> None:
        raise MemoryError

    return fail


def commands(work: Lake, *names: str) -> Iterator[tuple[str, Told]]:
    model = ["--model", "model.json"]
    every = {"fit": ["fit"], "apply": ["apply", *model], "stream": ["apply", *model, *STREAM]}
    for name in names:
        yield name, work.redcal(*every[name])


KILLED = (killing, "a Python worker of Spark was killed, or crashed")
NO_MEMORY = (out_of_memory, "a Spark worker ran out of memory")
EVERY = ("fit", "apply", "stream")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("cause", "words", "names"),
    [
        pytest.param(*KILLED, ("fit",), id="killed"),
        pytest.param(*NO_MEMORY, ("stream",), id="memory"),
        pytest.param(*KILLED, EVERY, id="killed-everywhere", marks=pytest.mark.slow),
        pytest.param(*NO_MEMORY, EVERY, id="memory-everywhere", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies(
    fitted: Lake,
    monkeypatch: pytest.MonkeyPatch,
    cause: Callable[[], Callable[[], None]],
    words: str,
    names: tuple[str, ...],
) -> None:
    failing(monkeypatch, cause())
    for name, told in commands(fitted, *names):
        last = told.err[told.err.index("redcal ") :]
        assert (told.code, last.count("\n")) == (1, 1), (name, told.err)
        assert words in last and NEVER not in last, (name, last)
        assert "spark.executor.memoryOverhead" in last, (name, last)
    runs = fitted.redcal("runs").out
    assert runs.count(words) == len(names)


@pytest.mark.slow
@pytest.mark.skipif(backends.name() != "classic", reason="the server's Python is the server's")
def test_a_python_without_numpy(spark: Any, fitted: Lake, tmp_path: Path) -> None:
    python = str(backends.environment(tmp_path / "bare", ()))
    context = spark.sparkContext
    ours, context.pythonExec = context.pythonExec, python
    words = (
        f"the Python of Spark's workers, {python}, cannot be used (No module named 'numpy'): they "
        "need numpy and pyarrow. Install both there, or name a Python that has them with "
        "PYSPARK_PYTHON before Spark starts"
    )
    try:
        for name, told in commands(fitted, "fit", "apply", "stream"):
            last = told.err[told.err.index("redcal ") :]
            assert told.code == 2, (name, told.err)
            assert last.endswith(f"{words}\n") and NEVER not in last, (name, last)
        rows = ReconciledPair.load("model.json").apply(spark.createDataFrame(scores()))
        with pytest.raises(Exception, match="cannot be used") as lazily:
            rows.collect()
        assert words in str(lazily.value)  # the user's own action raises, with the way out
        from redcal_spark import Reconciler

        pair = ReconciledPair.load("model.json")
        model = Reconciler(
            losses=fitted.tree["losses"],
            alpha=0.1,
            eta=0.1,
            model_1="a",
            model_2="b",
            label="outcome",
            classes=pair.columns.classes,
        )
        with pytest.raises(UsageError) as refused:
            model.fit(spark.createDataFrame(scores()))
        assert str(refused.value) == words
        context.pythonExec = str(tmp_path / "nowhere")
        fitted.tree["output"]["table"] = "other/rows"  # the stream has made the first one
        for _, told in commands(fitted, "apply"):
            assert told.code == 2, told.err
            assert f"Spark's workers cannot run {tmp_path}/nowhere (" in told.err
    finally:
        context.pythonExec = ours


@pytest.mark.slow
def test_bad_scores_in_apply_are_told_as_by_the_local_engine(spark: Any, fitted: Lake) -> None:
    """All of them, though a task stops at the first batch that has some."""
    spark.conf.set(BATCH, "300")
    try:
        bad_scores(spark, fitted)
    finally:
        spark.conf.unset(BATCH)


def bad_scores(spark: Any, fitted: Lake) -> None:
    table = scores(750)  # three batches of Arrow's
    values = np.array(table["a"].to_pylist())
    values[7], values[345], values[749] = np.nan, 2.0, np.nan
    kind = table.schema.field("a").type
    place = table.schema.get_field_index("a")
    bad = table.set_column(place, "a", pa.array(values.tolist(), kind))
    write_deltalake("scores", bad.slice(0, 330), mode="overwrite")
    write_deltalake("scores", bad.slice(330), mode="append")
    local = fitted.redcal("apply", "--model", "model.json", "--engine", "local")
    said = local.err[local.err.index("redcal ") :]
    assert "column 'a': 2 rows with NaN or infinity; first: id " in said
    assert "id 1007: [nan" in said and "id 1749: [nan" in said
    assert "column 'a': 1 row with a value outside [0, 1]; first: id 1345: [2.0" in said
    found = dict(commands(fitted, "apply", "stream"))
    assert (local.code, found["apply"].code, found["stream"].code) == (2, 2, 2)
    there = found["apply"].err[found["apply"].err.index("redcal ") :]
    # which file and which task come first is the store's and Spark's choice
    assert sorted(re.findall(r"[^\s,]+", there)) == sorted(re.findall(r"[^\s,]+", said))
    assert "(in one batch; others may have more)\n" in found["stream"].err
    assert NEVER not in found["stream"].err
    with quietly():
        rows = ReconciledPair.load("model.json").apply(spark.createDataFrame(bad))
    with pytest.raises(Exception, match="the data has rows that cannot be used") as lazily:
        rows.collect()
    assert "column 'a': 1 row with" in str(lazily.value)
    assert (
        not Path("out/rows").exists()
        or not spark.read.format("delta").load(str(Path("out/rows").absolute())).count()
    )


def test_python_gets_small_batches_while_our_jobs_run(
    spark: Any, scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark 4.0, where the bound is 256 MiB if nobody sets it."""

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [batch.nbytes]})

    def largest() -> int:
        rows = spark.range(0, 400, 1, 1).selectExpr("array_repeat(id, 3200) as scores")
        return int(max(rows.mapInArrow(sizes, "n bigint").toArrow()["n"].to_pylist()))

    monkeypatch.setattr(arrow_batches, "MOST", 1 << 20)
    spark.conf.set(arrow_batches.BYTES, "256m")
    try:
        assert largest() > 400 * 3_200 * 8
        place = Scratch(spark, scratch)
        assert largest() < 2 << 20
        place.close()
        assert spark.conf.get(arrow_batches.BYTES) == "256m"
        spark.conf.set(arrow_batches.BYTES, "64k")
        with arrow_batches.small_batches(spark):
            assert spark.conf.get(arrow_batches.BYTES) == "64k"
    finally:
        spark.conf.unset(arrow_batches.BYTES)

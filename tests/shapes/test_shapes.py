"""Every shape of table, on both engines: the right rows, or a refusal that names what is wrong.

Expected are the outcomes in shapes.py, and of those that work the outputs of the same rows held
plainly in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from redcal_spark.backends.inputs import columns_read
from redcal_spark.config.load import load_config
from redcal_spark.model.fit import fit_scanned
from redcal_spark.runs.job import Job
from tests.shapes.cells import Bench, as_written, plain, reconciler, refusal, same_rows
from tests.shapes.make import collected
from tests.shapes.page import PAGE, text
from tests.shapes.shape import NOT_TRIED, OK, Shape
from tests.shapes.shapes import SHAPES

# The worst kinds of trouble; `fresh` has many at once. All shapes on both engines are slow tests.
QUICK = {
    "local": {
        "clustered",
        "deletion_vectors",
        "fresh",
        "mapping_id",
        "mapping_readded",
        "nested_odd_names",
        "nested_renamed",
        "partitioned_odd",
        "variant",
    },
    "spark": {
        "deletion_vectors",
        "fresh",
        "mapping_spaces",
        "nested_odd_names",
        "type_widening",
        "variant",
    },
}
# Who is not read by Spark's tasks themselves, and why; all others are.
READ_BY_SPARK = {
    "deletion_vectors": "deletionVectors",
    "deletion_vectors_update": "deletionVectors",
    "deletion_vectors_whole_file": "deletionVectors",
    "type_widening_deletion_vectors": "typeWidening",
    "variant": "variantType",
    "variant_nested": "variantType",
    "varchar": "char(4)",
    "iceberg_compat": "columnMapping",
    "fresh": "columnMapping",
} | {
    shape.name: "columnMapping"
    for shape in SHAPES
    if "mapp" in shape.name or shape.name in ("nested_renamed", "nested_readded")
}


def shapes(engine: str) -> pytest.MarkDecorator:
    slow = {s.name for s in SHAPES} - QUICK[engine]
    marks = dict.fromkeys(slow, pytest.mark.slow)
    found = [pytest.param(s, id=s.name, marks=marks.get(s.name, ())) for s in SHAPES]
    return pytest.mark.parametrize("shape", found)


READ = [shape for shape in SHAPES if shape.read.spark == OK]
MODES = ("merge", "overwrite")
QUICK_TARGETS = {
    ("clustered", "merge", "local"),
    ("append_only", "merge", "spark"),
    ("mapping_id", "merge", "spark"),
    ("not_null", "merge", "local"),
}


def test_there_are_many() -> None:
    names = {shape.name for shape in SHAPES}
    assert len(names) == len(SHAPES) >= 35
    assert names >= QUICK["local"] | QUICK["spark"]


@pytest.mark.spark  # which makes the table
@shapes("local")
def test_read_by_the_local_engine(bench: Bench, shape: Shape) -> None:
    bench.reads(shape, "local")
    told = bench.redcal("check", "--json")
    if shape.read.local != OK:
        assert refusal(told, shape.read.local) is None
        assert not (bench.folder / "out").exists()
        return
    assert told.code == 0, told.err
    pair, expected = plain(shape)
    assert told.json["rows"] == expected.num_rows  # those that live
    assert bench.redcal("audit", "--json").json["rows"] == pair.rows  # of these, the labelled
    assert bench.redcal("run").code == 0
    assert bench.log() == pair.log
    same_rows(bench.rows(), as_written(expected, shape.keys["label"]))


@shapes("spark")
def test_read_by_spark(bench: Bench, shape: Shape, spark: Any) -> None:
    """Checked, fitted and applied; whether the outputs can be written is a test of its own."""
    from redcal_spark.backends.spark.backend import SparkBackend
    from redcal_spark.backends.spark.direct_read import direct_source
    from redcal_spark.backends.spark.source import Source

    bench.reads(shape, "spark")
    told = bench.redcal("check", "--json")
    if shape.read.spark != OK:
        assert refusal(told, shape.read.spark) is None
        assert not (bench.folder / "out").exists()
        return
    assert told.code == 0, told.err
    job = Job(load_config("config.yaml"), SparkBackend(spark, str(bench.folder / "scratch")))
    pair, expected = plain(shape)
    assert told.json["rows"] in (None, expected.num_rows)
    frame: Any = job.input.frame  # type: ignore[attr-defined]
    found = reconciler(shape).fit(frame)
    assert found.log == pair.log
    same_rows(collected(found.apply(frame)), expected)
    columns = columns_read(job.problem.columns, job.split)
    source: Any = direct_source(job.input, columns)  # type: ignore[arg-type]
    assert READ_BY_SPARK.get(shape.name, "") in getattr(source, "why", "")
    assert isinstance(source, Source) == (shape.name not in READ_BY_SPARK)
    scan = job.scan()  # by whoever can
    try:
        assert fit_scanned(job.problem, scan).log == pair.log
    finally:
        scan.close()


@pytest.mark.slow
@pytest.mark.parametrize("shape", READ, ids=[shape.name for shape in READ])
def test_run_on_spark(bench: Bench, shape: Shape, spark: Any) -> None:
    bench.reads(shape, "spark")
    told = bench.redcal("run")
    assert told.code == 0, told.err
    pair, expected = plain(shape)
    assert bench.log() == pair.log
    same_rows(bench.rows(spark), as_written(expected, shape.keys["label"]))
    assert bench.redcal("audit", "--json").json["rows"] == pair.rows


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_feature_of_the_future(bench: Bench, engine: str, spark: Any) -> None:
    """Refused by its name, and with no advice to do what is being done."""
    bench.reads(SHAPES[0], engine)
    shutil.copytree(bench.tree["input"]["table"], "future")
    features = {"readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    log = bench.folder / "future" / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(json.dumps(protocol), "utf-8")
    bench.tree["input"]["table"] = str(bench.folder / "future")
    told = bench.redcal("check")
    assert told.code == 2
    assert "fromTheFuture" in told.err
    assert ("--engine spark" in told.err) == (engine == "local")


def targets() -> Iterator[Any]:
    """Every cell of a table that rows go into; a few of them in every run of the tests."""
    for shape in SHAPES:
        for mode in MODES:
            for engine in ("local", "spark"):
                if getattr(shape, mode).on(engine) != NOT_TRIED:
                    quick = (shape.name, mode, engine) in QUICK_TARGETS
                    marks = () if quick else pytest.mark.slow
                    name = f"{shape.name}-{mode}-{engine}"
                    yield pytest.param(shape, mode, engine, id=name, marks=marks)


@pytest.mark.parametrize(("shape", "mode", "engine"), list(targets()))
def test_written_into(bench: Bench, shape: Shape, mode: str, engine: str, spark: Any) -> None:
    """An existing table of this shape takes the rows, or is refused before anything is computed."""
    outcome = getattr(shape, mode).on(engine)
    target = bench.writes(shape, engine, mode)
    before = sorted(p.name for p in (target / "_delta_log").iterdir())
    told = bench.redcal("check")
    if outcome != OK:
        assert refusal(told, outcome) is None
        assert sorted(p.name for p in (target / "_delta_log").iterdir()) == before
        return
    assert told.code == 0, told.err
    said = properties(spark, str(target))
    told = bench.redcal("run")
    assert told.code == 0, told.err
    _, expected = plain(shape)
    same_rows(bench.rows(spark), as_written(expected, shape.keys["label"]))
    assert properties(spark, str(target)) == said  # it is still a table of this shape


def properties(spark: Any, table: str) -> dict[str, Any]:
    found = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0].asDict()
    asked = {k: v for k, v in found["properties"].items() if not k.startswith("delta.rowTracking")}
    kept = ("partitionColumns", "clusteringColumns", "tableFeatures")
    return {"properties": asked} | {name: found[name] for name in kept}


def test_the_page_shows_these_outcomes() -> None:
    assert PAGE.read_text("utf-8") == text(), "write it anew: python -m tests.shapes"

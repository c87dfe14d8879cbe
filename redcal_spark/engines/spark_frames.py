"""Spark DataFrames in and out: schemas, fitting and applying."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType, UserDefinedType

from redcal_spark.columns import Columns, Layout, Problems, plan
from redcal_spark.engines.spark import DRIVER_BUDGET, Scratch, SparkScan, ship_package
from redcal_spark.errors import InputError
from redcal_spark.gather import Scanner
from redcal_spark.kernel import Rules
from redcal_spark.output import OutputNames, extend
from redcal_spark.patches import Patch
from redcal_spark.tasks import ApplyTask, dense_batch


def arrow_schema(frame: DataFrame, names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow types of a frame's columns; those that Arrow cannot carry are named."""
    fields, problems = [], []
    for field in frame.schema.fields:
        if names is not None and field.name not in names:
            fields.append(pa.field(field.name, pa.null()))  # seen in messages only
            continue
        try:
            fields.append(pa.field(field.name, _arrow_type(field.dataType)))
        except (PySparkException, TypeError, ValueError):
            problems.append(
                f"column {field.name!r} has type {field.dataType.simpleString()}, "
                "which Arrow cannot carry; cast or drop it"
            )
    if problems:
        raise InputError("\n".join(problems))
    return pa.schema(fields)


def _arrow_type(kind: DataType) -> pa.DataType:
    if is_vector(kind):
        return pa.list_(pa.float64())
    return to_arrow_type(kind, timezone="UTC")


def is_vector(kind: DataType) -> bool:
    """Spark ML's vectors, which are sparse or dense arrays of doubles."""
    return isinstance(kind, UserDefinedType) and type(kind).__name__ == "VectorUDT"


def vectors(frame: DataFrame) -> tuple[str, ...]:
    return tuple(field.name for field in frame.schema.fields if is_vector(field.dataType))


def layout_of(
    frame: DataFrame, columns: Columns, n_classes: int | None, labels: bool = True
) -> Layout:
    """What the columns hold; without losses and class names one row is looked at."""
    names = columns.names(label=labels)
    schema = arrow_schema(frame, names)
    first = None
    if n_classes is None and set(names) <= set(schema.names):
        rows = frame.select(*[_column(name) for name in names]).limit(1).toArrow()
        batches = rows.to_batches()
        first = dense_batch(batches[0], vectors(frame)) if batches else None
    return plan(schema, columns, "the data", n_classes, first, labels)


def _column(name: str) -> str:
    """A column by its whole name, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def scan_frame(
    frame: DataFrame,
    scanner: Scanner,
    scratch: Scratch,
    driver_budget: int = DRIVER_BUDGET,
    threads: int | None = None,
) -> SparkScan:
    """The one scan, over the columns it needs."""
    wanted = scanner.layout.columns.names(label=True)
    if scanner.split is not None and scanner.split.column not in wanted:
        wanted.append(scanner.split.column)
    chosen = frame.select(*[_column(name) for name in wanted])
    return SparkScan(chosen, scanner, vectors(chosen), scratch, driver_budget, threads)


def apply_to_frame(
    frame: DataFrame,
    columns: Columns,
    n_classes: int,
    rules: Rules,
    log: Sequence[Patch],
    names: OutputNames,
    skip: bool,
) -> tuple[DataFrame, Layout]:
    """The frame with its new columns: one `mapInArrow`, batch or streaming; nothing runs yet."""
    layout = layout_of(frame, columns, n_classes, labels=False)
    schema = arrow_schema(frame)
    names.check(schema.names, skip, "the data")
    nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    new = extend(nothing, layout, rules, log, names, Problems(), 0, skip).schema
    added = [
        StructField(field.name, from_arrow_type(field.type), True)
        for field in list(new)[len(schema) :]
    ]
    ship_package(frame.sparkSession)
    task = ApplyTask(layout, rules, tuple(log), names, skip, vectors(frame))
    found = frame.mapInArrow(task, StructType([*frame.schema.fields, *added]))
    return found, layout

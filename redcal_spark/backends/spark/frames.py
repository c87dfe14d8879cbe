"""Spark DataFrames: their schemas, and what a pair makes of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType, UserDefinedType

from redcal_spark.backends.names import quoted
from redcal_spark.backends.spark.arrow_batches import small_batches
from redcal_spark.backends.spark.cells import DDL
from redcal_spark.backends.spark.ship import ship_package
from redcal_spark.backends.spark.spark_version import need_spark_4
from redcal_spark.backends.spark.tasks import ApplyTask, OnWorker, ProblemsTask, dense_batch
from redcal_spark.core.arrow import Batches, empty_batch
from redcal_spark.core.columns import Columns, Layout, plan
from redcal_spark.core.fitted import Fitted
from redcal_spark.core.output_columns import Extension, OutputNames
from redcal_spark.core.reading import BadRows
from redcal_spark.core.roles import UNKNOWN, Roles
from redcal_spark.errors import InputError

# PySpark 4.2 must be told the time zone of timestamps; earlier releases take UTC unasked.
_ZONE: Any = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)
FIRST_ROWS = 100
Task = Callable[[Batches], Iterator[pa.RecordBatch]]


def arrow_schema(frame: DataFrame, names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow types of a frame's columns; those that Arrow cannot carry are named."""
    fields, problems = [], []
    for field in frame.schema.fields:
        if names is not None and field.name not in names:
            fields.append(pa.field(field.name, pa.null()))  # seen in messages only
            continue
        try:
            fields.append(pa.field(field.name, _arrow_type(field.dataType)))
        except PySparkException:
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
    return to_arrow_type(kind, **_ZONE)


def is_vector(kind: DataType) -> bool:
    """Spark ML's vectors, which are sparse or dense arrays of doubles."""
    return isinstance(kind, UserDefinedType) and type(kind).__name__ == "VectorUDT"


def arrow_fields(fields: Sequence[StructField]) -> pa.Schema:
    """The Arrow types of columns that Arrow is known to carry."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in fields])


def vectors(frame: DataFrame) -> tuple[str, ...]:
    return tuple(field.name for field in frame.schema.fields if is_vector(field.dataType))


def layout_of(
    frame: DataFrame,
    columns: Columns,
    n_classes: int | None,
    labels: bool = True,
    where: str = "the data",
) -> Layout:
    """What the columns hold; the first rows are looked at only where their types do not tell."""
    names = columns.names(label=labels)
    schema = arrow_schema(frame, names)
    try:
        layout = plan(schema, columns, where, n_classes, None, labels)
        if layout.label is not None or not labels:
            return layout
    except InputError:
        if not set(names) <= set(schema.names) or frame.isStreaming:
            raise
    first = next(iter(table_of(frame.limit(FIRST_ROWS), names).to_batches()), None)
    return plan(schema, columns, where, n_classes, first, labels)


def table_of(frame: DataFrame, names: Sequence[str]) -> pa.Table:
    """Some columns at the driver. Missing ones are left to `plan` to name."""
    arrow_schema(frame, names)
    here = [name for name in frame.columns if name in names]
    table = frame.select(*map(quoted, here)).toArrow()
    dense = [dense_batch(batch, vectors(frame)) for batch in table.to_batches()]
    return pa.Table.from_batches(dense) if dense else table


def nameless(frame: DataFrame) -> DataFrame:
    """The columns by number: `mapInArrow` takes a dot in a name for a field of a struct."""
    return frame.toDF(*[f"c{number}" for number in range(len(frame.columns))])


def map_in_arrow(frame: DataFrame, task: Task, schema: StructType | str) -> DataFrame:
    """`mapInArrow` of a task of ours; each goes this way."""
    return frame.mapInArrow(OnWorker(task), schema)


def apply_to_frame(
    frame: DataFrame,
    fitted: Fitted,
    names: OutputNames,
    skip: bool,
    roles: Roles = UNKNOWN,
) -> DataFrame:
    """The frame with its new columns: one `mapInArrow`, batch or streaming; nothing runs yet."""
    need_spark_4(frame.sparkSession)
    task, fields = apply_task(frame, fitted, names, skip, roles)
    rows = nameless(frame.select(*map(quoted, task.names)))
    return plain_text(map_in_arrow(rows, task, StructType(fields)), fields)


def apply_task(
    frame: DataFrame, fitted: Fitted, names: OutputNames, skip: bool, roles: Roles
) -> tuple[ApplyTask, list[StructField]]:
    """What a worker does with its rows, and the columns that it gives."""
    frame = frame.select(*map(quoted, names.read(frame.columns, roles, "the data")))
    layout = layout_of(frame, fitted.columns, fitted.n_classes, labels=False)
    fitted.check_layout(layout)
    schema, carried = arrow_schema(frame), names.kept(frame.columns, "the data")
    names.check(schema.names, skip, "the data")
    new = fitted.apply_batch(empty_batch(schema), layout, names, skip=skip).schema
    kept = [field for field in frame.schema.fields if field.name in carried]
    fields = [
        *kept,
        *(StructField(f.name, from_arrow_type(f.type), True) for f in list(new)[len(kept) :]),
    ]
    ship_package(frame.sparkSession)
    extension = Extension(layout, fitted.rules, tuple(fitted.log), names, skip, roles)
    return ApplyTask(extension, tuple(frame.columns), vectors(frame)), fields


def problems_of(frame: DataFrame, layout: Layout) -> BadRows:
    """All rows that cannot be used: one job."""
    ship_package(frame.sparkSession)
    names = layout.columns.names(label=False)
    chosen = frame.select(*map(quoted, names))
    task = ProblemsTask(layout, tuple(names), vectors(chosen))
    with small_batches(frame.sparkSession):
        counts = map_in_arrow(nameless(chosen), task, DDL).select("data").toArrow()
    problems = BadRows()
    for cell in counts.column("data"):
        problems.merge(BadRows.from_json(json.loads(cell.as_py())))
    return problems


def plain_text(frame: DataFrame, fields: Sequence[StructField]) -> DataFrame:
    """Spark Connect names the collation of strings in a schema that is given to `mapInArrow`; Delta
    would write it down, and delta-rs refuses to read it. A cast forgets it."""
    if "connect" not in type(frame).__module__:
        return frame
    texts = {f.name for f in fields if isinstance(f.dataType, StringType)}
    chosen = [(f.name, col(quoted(f.name))) for f in fields]
    return frame.select(
        *(c.cast("string").alias(name) if name in texts else c for name, c in chosen)
    )

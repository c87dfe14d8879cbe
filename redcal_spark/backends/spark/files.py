"""Parquet and CSV files as frames: the files that this process saw, by the names Spark knows."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from redcal_spark.backends.local.files import FileTable
from redcal_spark.backends.names import Place, quoted
from redcal_spark.backends.spark.tables import spark_types, texts_for_fractions


def frame_of_files(spark: SparkSession, table: FileTable, separator: str) -> DataFrame:
    place, reader = table.place, spark.read
    files = [Place(place.shown(file)).absolute.name for file in table.files]
    root = Place(table.name).absolute.name
    if table.kind == "parquet":
        if place.is_dir():
            reader = reader.option("basePath", root)
        return reader.parquet(*files)
    kinds = spark_types(table.schema)
    if table.folders:
        reader = reader.option("basePath", root)
    rows = (
        reader.schema(texts_for_fractions(kinds))
        .options(header=True, sep=separator, multiLine=True, escape='"', mode="FAILFAST")
        .csv(files)
    )
    return rows.select(*(col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in kinds.fields))

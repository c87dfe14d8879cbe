"""Tables of a catalog as this process sees them, where it is certain that it sees the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from redcal_spark.backends.local.delta_read import DeltaRsTable
from redcal_spark.backends.names import Place
from redcal_spark.errors import InputError

# Others may hide rows or columns from some users.
OWN = "spark_catalog"
Open = Callable[[str, int], tuple[DeltaRsTable | None, InputError | None]]


def at_location(
    spark: SparkSession, place: Place, location: str, identity: Mapping[str, Any], open_: Open
) -> tuple[DeltaRsTable | None, str]:
    """A table of Spark's own catalog, opened at its location; or why it is not.

    It is the same one if its log has the same id.
    """
    path = unquote(re.sub("^file:(//)?", "", location))
    here = location.startswith("file:") and Path(path, "_delta_log").is_dir()
    if not here or _catalog(spark, place) != OWN:
        return None, f"it is a table of a catalog, at {location}"
    table, why = open_(path, identity["version"])
    if table is None or table.identity()["id"] != identity["id"]:
        return None, f"this process cannot read {path}: {why or 'another table is there'}"
    return table, ""


def _catalog(spark: SparkSession, place: Place) -> str:
    parts = place.sql.strip("`").split("`.`")
    if len(parts) > 2:
        return parts[0]
    return str(spark.sql("SELECT current_catalog()").collect()[0][0])

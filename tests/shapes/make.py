"""Makes the tables: Spark writes them, each once a session; and rows in a form to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.shapes.shape import Shape

# Small tables in one task: a shuffle into eight takes longer than all else.
QUICK = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}


class Maker:
    """Makes tables in a folder, of these rows. A folder that has a table already keeps it."""

    def __init__(self, spark: Callable[[], Any], folder: Path, rows: pa.Table):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rows = rows
        self._session = spark
        self._columns = ""  # of the rows, as DDL

    def __call__(self, shape: Shape) -> Path:
        path = self.folder / shape.name
        if not (path / "_made").exists():
            with settings(self._session(), QUICK):
                self._make(shape, path)
            (path / "_made").touch()  # as any name with an underscore, Delta leaves it alone
        return path

    def _make(self, shape: Shape, path: Path) -> None:
        spark = self._session()
        self._columns = columns = self._columns or self._prepared(spark)
        for statement in self._statements(shape):
            spark.sql(
                statement.format(
                    t=f"delta.`{path}`",
                    other=f"delta.`{path}_other`",
                    path=path,
                    name=f"{shape.name}_{self.folder.name}",
                    base=self._view,
                    columns=columns,
                )
            ).collect()

    def _statements(self, shape: Shape) -> tuple[str, ...]:
        later = shape.as_output if "touched" in self.rows.column_names else ()
        return (*shape.make, *later)

    @property
    def _view(self) -> str:
        return f"base_{self.folder.name}"

    def _prepared(self, spark: Any) -> str:
        file = self.folder / "base.parquet"
        pq.write_table(self.rows, file)
        frame = spark.read.parquet(str(file)).coalesce(1)
        frame.createOrReplaceTempView(self._view)
        fields = frame.schema.fields
        return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)


@contextmanager
def settings(spark: Any, wanted: dict[str, str]) -> Iterator[None]:
    """Settings for a while: other tests have the same session."""
    before = {key: spark.conf.get(key) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def collected(frame: Any) -> pa.Table:
    """The rows of a frame; variants as JSON, which is what they can be compared by."""
    from pyspark.sql.functions import col, to_json

    def one(field: Any) -> Any:
        column = col("`" + field.name.replace("`", "``") + "`")
        odd = "variant" in field.dataType.simpleString()
        return to_json(column).alias(field.name) if odd else column

    return frame.select(*map(one, frame.schema.fields)).toArrow()


def compared(rows: pa.Table, by: str = "case") -> list[dict[str, Any]]:
    """Rows as plain values, in one order of rows and columns."""
    key = next(name for name in rows.column_names if name.lower() == by)
    found = rows.select(sorted(rows.column_names)).to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: row[key])

"""Makes the tables: Spark writes them, once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.shapes.shapes import Shape

Make = Callable[[Shape], Path]


def maker(spark: Any, folder: Path, rows: pa.Table) -> Make:
    """Makes tables in a folder, of these rows; each once, when it is first asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    view = f"base_{folder.name}"
    pq.write_table(rows, folder / "base.parquet")
    frame = spark.read.parquet(str(folder / "base.parquet")).coalesce(1)
    frame.createOrReplaceTempView(view)
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in frame.schema.fields)
    done: dict[str, Path] = {}

    def make(shape: Shape) -> Path:
        if shape.name not in done:
            path = folder / shape.name
            for statement in shape.make:
                spark.sql(
                    statement.format(
                        t=f"delta.`{path}`",
                        other=f"delta.`{path}_other`",
                        path=path,
                        name=f"{shape.name}_{folder.name}",
                        base=view,
                        columns=columns,
                    )
                ).collect()
            done[shape.name] = path
        return done[shape.name]

    return make


def compared(rows: pa.Table, by: str = "case") -> list[dict[str, Any]]:
    """Rows as plain values, in one order of rows and columns."""
    key = next(name for name in rows.column_names if name.lower() == by)
    found = rows.select(sorted(rows.column_names)).to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: row[key])

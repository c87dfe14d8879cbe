"""Shapes of how rows are stored: files, folders, commits."""

from __future__ import annotations

import pyarrow as pa

from tests.shapes.rows import changed, day, each, then, where
from tests.shapes.shape import AT_ONCE, DELETE, DVS, EVERYWHERE, Cell, Shape, kept, made

STORED = (
    Shape("plain", "plain", (made(),), merge=EVERYWHERE, overwrite=EVERYWHERE),
    Shape(
        "several_files",
        "written in four commits",
        (
            made() + " WHERE case % 4 = 0",
            *(f"INSERT INTO {{t}} SELECT * FROM {{base}} WHERE case % 4 = {i}" for i in (1, 2, 3)),
        ),
    ),
    Shape(
        "partitioned",
        "partitioned, with nulls among the values",
        (made(layout="PARTITIONED BY (segment)"),),
        merge=EVERYWHERE,
        overwrite=EVERYWHERE,
    ),
    Shape(
        "partitioned_odd",
        "partitioned by a date and a text with odd signs",
        (
            made(
                select="*, date_add(date'2024-01-01', cast(case % 3 AS int)) AS day, "
                "elt(cast(case % 3 + 1 AS int), 'a b/c', 'é=%41', 'x:y') AS odd",
                layout="PARTITIONED BY (day, odd)",
            ),
        ),
        then(
            each("day", pa.date32(), day),
            each("odd", pa.string(), lambda c: ("a b/c", "é=%41", "x:y")[c % 3]),
        ),
        merge=Cell(local="partitions that Spark wrote"),
    ),
    Shape(
        "clustered",
        "clustered",
        (made(layout="CLUSTER BY (segment)"),),
        merge=Cell(local="clustering"),
        overwrite=Cell(local="clustering"),
    ),
    Shape(
        "deletion_vectors",
        "deletion vectors",
        (made(DVS), DELETE),
        kept,
        merge=EVERYWHERE,
        overwrite=EVERYWHERE,
    ),
    Shape(
        "deletion_vectors_update",
        "deletion vectors after UPDATE and MERGE",
        (
            made(DVS),
            "UPDATE {t} SET y = 1 - y WHERE case % 3 = 0",
            "MERGE INTO {t} t USING (SELECT case FROM {base} WHERE case % 5 = 0) s "
            "ON t.case = s.case WHEN MATCHED THEN UPDATE SET t.y = 1 - t.y",
        ),
        changed(
            "y",
            lambda rows: pa.array(
                [
                    y ^ (c % 3 == 0) ^ (c % 5 == 0)
                    for c, y in zip(rows["case"].to_pylist(), rows["y"].to_pylist(), strict=True)
                ],
                pa.int32(),
            ),
        ),
    ),
    Shape(
        "deletion_vectors_whole_file",
        "a file whose rows are all deleted",
        (
            made(DVS) + " WHERE case < 120",
            "INSERT INTO {t} SELECT * FROM {base} WHERE case >= 120",
            "DELETE FROM {t} WHERE case < 121",
        ),
        where(lambda case: case >= 121),
    ),
    Shape(
        "v1_checkpoint",
        "many small commits and a checkpoint",
        (
            made("'delta.checkpointInterval' = '3'") + " WHERE case % 8 = 0",
            *(
                f"INSERT INTO {{t}} SELECT * FROM {{base}} WHERE case % 8 = {i}"
                for i in range(1, 8)
            ),
        ),
        merge=EVERYWHERE,
    ),
    Shape(
        "empty",
        "no rows",
        (made() + " WHERE false",),
        where(lambda c: False),
        read=Cell("has no rows", "has no rows"),
        merge=EVERYWHERE,
        overwrite=EVERYWHERE,
    ),
    Shape(
        "empty_file",
        "an empty commit and a file without rows",
        (
            made(),
            "INSERT INTO {t} SELECT * FROM {base} WHERE false",
            "INSERT INTO {t} SELECT * FROM {base} WHERE case < 0",
        ),
    ),
    Shape(
        "no_statistics",
        "files without statistics",
        (made("'delta.dataSkippingNumIndexedCols' = '0'"),),
    ),
    Shape(
        "optimized",
        "after OPTIMIZE ZORDER BY",
        (
            made() + " WHERE case < 100",
            "INSERT INTO {t} SELECT * FROM {base} WHERE case >= 100",
            "OPTIMIZE {t} ZORDER BY (case)",
        ),
    ),
    Shape("vacuumed", "after DELETE and VACUUM", (made(AT_ONCE), DELETE, "VACUUM {t}"), kept),
    Shape(
        "purged",
        "deletion vectors after REORG PURGE and VACUUM",
        (
            made(f"{DVS}, {AT_ONCE}"),
            DELETE,
            "REORG TABLE {t} APPLY (PURGE)",
            "VACUUM {t}",
        ),
        kept,
    ),
    Shape(
        "restored",
        "after RESTORE",
        (made(), DELETE, "UPDATE {t} SET y = 0", "RESTORE TABLE {t} TO VERSION AS OF 1"),
        kept,
    ),
    Shape(
        "shallow_clone",
        "a shallow clone, and a DELETE in it",
        (
            made().replace("{t}", "{other}"),
            "CREATE TABLE {t} SHALLOW CLONE {other}",
            DELETE,
        ),
        kept,
        merge=EVERYWHERE,
    ),
    Shape(
        "converted",
        "Parquet files converted to Delta",
        (
            "CREATE TABLE parquet_{name} USING parquet LOCATION '{path}' AS SELECT * FROM {base}",
            "CONVERT TO DELTA parquet.`{path}`",
        ),
    ),
)

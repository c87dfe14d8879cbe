"""The shapes: how Spark makes each table, which rows it then holds, and what becomes of it.

This is the one table of outcomes: tests read it, and docs/reference/tables.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tests.shapes.rows import (
    STRUCT,
    Change,
    cast,
    changed,
    day,
    each,
    known_from,
    many,
    moment,
    moment_utc,
    money,
    named,
    numbers,
    opposite,
    pairs,
    renamed,
    same,
    struct,
    then,
    where,
)

OK = "ok"
NOT_TRIED = ""

INPUT = {"id": "case", "label": "y", "model_1": "p1", "model_2": "p2"}


@dataclass(frozen=True)
class Cell:
    """What is expected of a table on each engine: `ok`, or what a refusal must name."""

    local: str = OK
    spark: str = OK

    def on(self, engine: str) -> str:
        return str(getattr(self, engine))


EVERYWHERE = Cell()
NOWHERE = Cell(NOT_TRIED, NOT_TRIED)


@dataclass(frozen=True)
class Shape:
    """make: SQL; {t} is the table, {base} the view of its rows, {other} a second table.

    rows: the logical rows, of those in the view. input: keys that differ from INPUT.
    read, merge, overwrite: outcomes as an input and as an existing output table.
    """

    name: str
    says: str
    make: tuple[str, ...]
    rows: Change = same
    input: Mapping[str, str] = field(default_factory=dict)
    read: Cell = EVERYWHERE
    merge: Cell = EVERYWHERE
    overwrite: Cell = EVERYWHERE

    @property
    def keys(self) -> dict[str, str]:
        return INPUT | dict(self.input)


def made(properties: str = "", select: str = "*", layout: str = "") -> str:
    """The table, made from its rows in one statement."""
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    return f"CREATE TABLE {{t}} USING delta {layout} {told} AS SELECT {select} FROM {{base}}"


def declared(columns: str, properties: str = "") -> str:
    """The table with its columns told one by one, before those of the view; still empty."""
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    return f"CREATE TABLE {{t}} ({columns}, {{columns}}) USING delta {told}"


def set_(properties: str) -> str:
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})"


DVS = "'delta.enableDeletionVectors' = 'true'"
BY_NAME = "'delta.columnMapping.mode' = 'name'"
BY_ID = "'delta.columnMapping.mode' = 'id'"
UPGRADE = (
    "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5', "
    "'delta.columnMapping.mode' = 'name'"
)
AT_ONCE = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"  # for VACUUM
DELETE = "DELETE FROM {t} WHERE case % 7 = 3"
NESTED = (
    "*, if(case % 5 = 0, null, named_struct('a', case, 'b', concat('s', case))) AS st, "
    "if(case % 7 = 0, null, array(named_struct('a', case, 'b', concat('s', case)), "
    "named_struct('a', cast(null AS bigint), 'b', ''))) AS many, "
    "if(case % 6 = 0, null, map('k', case, 'l', case + 1)) AS pairs"
)
kept = where(lambda case: case % 7 != 3)
nested = then(
    each("st", STRUCT, struct),
    each("many", pa.list_(STRUCT), many),
    each("pairs", pa.map_(pa.string(), pa.int64()), pairs),
)
FRESH = ", ".join(
    [
        DVS,
        BY_NAME,
        "'delta.enableRowTracking' = 'true'",
        "'delta.checkpointPolicy' = 'v2'",
        "'delta.enableInCommitTimestamps' = 'true'",
        "'delta.feature.appendOnly' = 'supported'",
        "'delta.feature.invariants' = 'supported'",
        "'delta.checkpointInterval' = '2'",
    ]
)

SHAPES = (
    Shape("plain", "plain", (made(),)),
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
    ),
    Shape("clustered", "clustered", (made(layout="CLUSTER BY (segment)"),)),
    Shape("deletion_vectors", "deletion vectors", (made(DVS), DELETE), kept),
    Shape(
        "deletion_vectors_update",
        "deletion vectors after UPDATE and MERGE",
        (
            made(DVS),
            "UPDATE {t} SET y = 1 - y WHERE case % 3 = 0",
            "MERGE INTO {t} t USING (SELECT case FROM {base} WHERE case % 5 = 0) s ON t.case = s.case "
            "WHEN MATCHED THEN UPDATE SET t.y = 1 - t.y",
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
    Shape("mapping_name", "column mapping by name, from the start", (made(BY_NAME),)),
    Shape("mapping_id", "column mapping by id, from the start", (made(BY_ID),)),
    Shape("mapping_upgraded", "column mapping, switched on later", (made(), set_(UPGRADE))),
    Shape(
        "mapping_renamed",
        "a renamed label",
        (
            made(),
            set_(UPGRADE),
            "ALTER TABLE {t} RENAME COLUMN y TO default_flag",
        ),
        renamed(y="default_flag"),
        {"label": "default_flag"},
    ),
    Shape(
        "mapping_old_label",
        "a renamed label, and a new column with its old name",
        (
            made(),
            set_(UPGRADE),
            "ALTER TABLE {t} RENAME COLUMN y TO default_flag",
            "ALTER TABLE {t} ADD COLUMN y INT",
            "UPDATE {t} SET y = 1 - default_flag",
        ),
        then(renamed(y="default_flag"), changed("y", opposite("default_flag"))),
        {"label": "default_flag"},
    ),
    Shape(
        "mapping_new_label",
        "the new column with the old name is the label",
        (
            made(),
            set_(UPGRADE),
            "ALTER TABLE {t} RENAME COLUMN y TO default_flag",
            "ALTER TABLE {t} ADD COLUMN y INT",
            "UPDATE {t} SET y = 1 - default_flag",
        ),
        then(renamed(y="default_flag"), changed("y", opposite("default_flag"))),
    ),
    Shape(
        "mapping_readded",
        "a label dropped and added again, empty in old files",
        (
            made() + " WHERE case < 60",
            set_(UPGRADE),
            "ALTER TABLE {t} DROP COLUMN y",
            "ALTER TABLE {t} ADD COLUMN y INT",
            "INSERT INTO {t} BY NAME SELECT * FROM {base} WHERE case >= 60",
        ),
        changed("y", known_from("y", 60)),
    ),
    Shape(
        "mapping_swapped",
        "two columns that swapped their names",
        (
            made(),
            set_(UPGRADE),
            "ALTER TABLE {t} RENAME COLUMN p1 TO p0",
            "ALTER TABLE {t} RENAME COLUMN p2 TO p1",
            "ALTER TABLE {t} RENAME COLUMN p0 TO p2",
        ),
        renamed(p1="p2", p2="p1"),
    ),
    Shape(
        "mapping_partitioned",
        "column mapping, partitioned, the partition column renamed",
        (
            made(BY_NAME, layout="PARTITIONED BY (segment)"),
            "ALTER TABLE {t} RENAME COLUMN segment TO part",
        ),
        renamed(segment="part"),
    ),
    Shape(
        "mapping_deletion_vectors",
        "column mapping by name and deletion vectors",
        (made(f"{BY_NAME}, {DVS}"), DELETE),
        kept,
    ),
    Shape(
        "mapping_id_deletion_vectors",
        "column mapping by id and deletion vectors",
        (made(f"{BY_ID}, {DVS}"), DELETE),
        kept,
    ),
    Shape(
        "mapping_dots",
        "mapped names with dots and quotes",
        (
            made(BY_NAME),
            "ALTER TABLE {t} RENAME COLUMN p1 TO `p.1`",
            'ALTER TABLE {t} RENAME COLUMN p2 TO `p"2`',
            "ALTER TABLE {t} RENAME COLUMN segment TO `a.b.c`",
        ),
        named({"p1": "p.1", "p2": 'p"2', "segment": "a.b.c"}),
        {"model_1": "p.1", "model_2": 'p"2'},
    ),
    Shape(
        "mapping_backticks",
        "mapped names with backticks",
        (
            made(BY_NAME),
            "ALTER TABLE {t} RENAME COLUMN p1 TO `p``1`",
            "ALTER TABLE {t} RENAME COLUMN segment TO ```segment```",
        ),
        named({"p1": "p`1", "segment": "`segment`"}),
        {"model_1": "p`1"},
    ),
    Shape(
        "mapping_spaces",
        "mapped names with spaces, commas, brackets",
        (
            made(BY_NAME),
            "ALTER TABLE {t} RENAME COLUMN p1 TO `p 1, (new)`",
            "ALTER TABLE {t} RENAME COLUMN y TO `y = {{flag}};`",
        ),
        named({"p1": "p 1, (new)", "y": "y = {flag};"}),
        {"model_1": "p 1, (new)", "label": "y = {flag};"},
    ),
    Shape("nested", "struct, array of structs, map", (made(select=NESTED),), nested),
    Shape(
        "nested_mapped", "the same with column mapping by name", (made(BY_NAME, NESTED),), nested
    ),
    Shape("nested_mapped_id", "the same with column mapping by id", (made(BY_ID, NESTED),), nested),
    Shape(
        "nested_renamed",
        "renamed fields inside a struct and an array",
        (
            made(BY_NAME, NESTED),
            "ALTER TABLE {t} RENAME COLUMN st.a TO z",
            "ALTER TABLE {t} RENAME COLUMN many.element.b TO y",
        ),
        then(
            each(
                "st", pa.struct([("z", pa.int64()), ("b", pa.string())]), lambda c: struct(c, "z")
            ),
            each(
                "many",
                pa.list_(pa.struct([("a", pa.int64()), ("y", pa.string())])),
                lambda c: (found := many(c)) and [{"a": f["a"], "y": f["b"]} for f in found],
            ),
            each("pairs", pa.map_(pa.string(), pa.int64()), pairs),
        ),
    ),
    Shape(
        "nested_readded",
        "a field of a struct dropped and added again",
        (
            made(BY_NAME, NESTED),
            "ALTER TABLE {t} DROP COLUMN st.a",
            "ALTER TABLE {t} ADD COLUMN st.a BIGINT",
        ),
        then(
            each(
                "st",
                pa.struct([("b", pa.string()), ("a", pa.int64())]),
                lambda c: (found := struct(c)) and {"b": found["b"], "a": None},
            ),
            each("many", pa.list_(STRUCT), many),
            each("pairs", pa.map_(pa.string(), pa.int64()), pairs),
        ),
    ),
    Shape(
        "nested_odd_names",
        "mapped fields with dots, spaces and backticks in a struct",
        (
            made(BY_NAME, "*, named_struct('a', case, 'b', concat('s', case)) AS st"),
            "ALTER TABLE {t} RENAME COLUMN st.a TO `a b.c`",
            "ALTER TABLE {t} RENAME COLUMN st.b TO `b``,`",
        ),
        each(
            "st",
            pa.struct([("a b.c", pa.int64()), ("b`,", pa.string())]),
            lambda c: {"a b.c": c, "b`,": f"s{c}"},
        ),
    ),
    Shape(
        "arrays",
        "arrays that are null, empty, or hold nulls",
        (
            made(
                select="*, case cast(case % 4 AS int) WHEN 0 THEN null WHEN 1 THEN array() "
                "WHEN 2 THEN array(null, 1.5D) ELSE array(cast(case AS double)) END AS numbers"
            ),
        ),
        each("numbers", pa.list_(pa.float64()), numbers),
    ),
    Shape(
        "array_scores",
        "scores as arrays",
        (
            made(
                select="case, y, array(1 - p1, p1) AS p1, array(1 - p2, p2) AS p2, "
                "* except (case, y, p1, p2)"
            ),
        ),
        then(
            *(
                changed(
                    name,
                    lambda rows, name=name: pa.array(
                        [[1 - p, p] for p in rows[name].to_pylist()], pa.list_(pa.float64())
                    ),
                )
                for name in ("p1", "p2")
            )
        ),
    ),
    Shape(
        "variant",
        "a variant column",
        (made(select="*, parse_json(concat('{{\"a\": ', case, '}}')) AS v"),),
        each("v", pa.string(), lambda c: f'{{"a":{c}}}'),
        read=Cell(local="variantType"),
        merge=Cell("variantType", NOT_TRIED),
        overwrite=Cell("variantType", NOT_TRIED),
    ),
    Shape(
        "variant_nested",
        "a variant inside a struct",
        (made(select="*, named_struct('v', parse_json('[1]')) AS st"),),
        each("st", pa.string(), lambda c: '{"v":[1]}'),
        read=Cell(local="variantType"),
        merge=Cell("variantType", NOT_TRIED),
        overwrite=Cell("variantType", NOT_TRIED),
    ),
    Shape(
        "type_widening",
        "a label widened from int to long, a score from float to double",
        (
            made(
                "'delta.enableTypeWidening' = 'true'",
                "case, y, cast(round(p1, 2) AS float) AS p1, * except (case, y, p1)",
            )
            + " WHERE case < 120",
            "ALTER TABLE {t} ALTER COLUMN y TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN p1 TYPE DOUBLE",
            "INSERT INTO {t} SELECT * FROM {base} WHERE case >= 120",
        ),
        then(
            cast(y=pa.int64()),
            changed(
                "p1",
                lambda rows: pa.array(
                    [
                        p if c >= 120 else pa.scalar(round(p, 2), pa.float32()).as_py()
                        for c, p in zip(
                            rows["case"].to_pylist(), rows["p1"].to_pylist(), strict=True
                        )
                    ],
                    pa.float64(),
                ),
            ),
        ),
    ),
    Shape(
        "v2_checkpoint",
        "v2 checkpoints",
        (
            made("'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'")
            + " WHERE case % 4 = 0",
            *(f"INSERT INTO {{t}} SELECT * FROM {{base}} WHERE case % 4 = {i}" for i in (1, 2, 3)),
        ),
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
    ),
    Shape(
        "change_data_feed",
        "change data feed",
        (made("'delta.enableChangeDataFeed' = 'true'"), DELETE),
        kept,
    ),
    Shape(
        "row_tracking", "row tracking", (made("'delta.enableRowTracking' = 'true'"), DELETE), kept
    ),
    Shape(
        "in_commit_timestamps",
        "in-commit timestamps",
        (made("'delta.enableInCommitTimestamps' = 'true'"),),
    ),
    Shape(
        "identity",
        "an identity column",
        (
            declared("number BIGINT GENERATED BY DEFAULT AS IDENTITY"),
            "INSERT INTO {t} BY NAME SELECT case AS number, * FROM {base}",
        ),
        each("number", pa.int64(), lambda c: c),
    ),
    Shape(
        "generated",
        "a generated column",
        (
            declared("twice BIGINT GENERATED ALWAYS AS (case * 2)"),
            "INSERT INTO {t} BY NAME SELECT * FROM {base}",
        ),
        each("twice", pa.int64(), lambda c: 2 * c),
    ),
    Shape(
        "default",
        "a column with a default",
        (
            declared(
                "kind STRING DEFAULT 'usual'", "'delta.feature.allowColumnDefaults' = 'supported'"
            ),
            "INSERT INTO {t} BY NAME SELECT * FROM {base}",
        ),
        each("kind", pa.string(), lambda c: "usual"),
    ),
    Shape(
        "check_constraint",
        "a CHECK constraint",
        (made(), "ALTER TABLE {t} ADD CONSTRAINT sane CHECK (p1 >= 0 AND y IN (0, 1))"),
    ),
    Shape(
        "not_null",
        "a NOT NULL column",
        (
            declared("number BIGINT NOT NULL"),
            "INSERT INTO {t} BY NAME SELECT case AS number, * FROM {base}",
        ),
        each("number", pa.int64(), lambda c: c),
    ),
    Shape(
        "varchar",
        "VARCHAR and CHAR columns",
        (
            declared("short VARCHAR(9), fixed CHAR(4)"),
            "INSERT INTO {t} BY NAME SELECT concat('v', case) AS short, 'c' AS fixed, * FROM {base}",
        ),
        then(
            each("short", pa.string(), lambda c: f"v{c}"),
            each("fixed", pa.string(), lambda c: "c   "),
        ),  # Spark fills up to the length
        read=Cell(local="char(4)"),
        merge=Cell(local="char"),
        overwrite=Cell(local="char"),
    ),
    Shape(
        "timestamp_ntz",
        "timestamps with and without a time zone",
        (
            made(
                select="*, timestampadd(MICROSECOND, 7, timestampadd(SECOND, case, "
                "timestamp_ntz'2024-03-31 01:30:00')) AS ntz, "
                "timestampadd(MICROSECOND, 7, timestampadd(SECOND, case, "
                "timestamp'2024-03-31 01:30:00Z')) AS ts"
            ),
        ),
        then(
            each("ntz", pa.timestamp("us"), moment),
            each("ts", pa.timestamp("us", "UTC"), moment_utc),
        ),
    ),
    Shape(
        "decimals",
        "decimals of all widths",
        (
            made(
                select="*, cast(concat(case, '123456789012345678.0123456789') AS decimal(38, 10)) AS wide, "
                "cast(case AS decimal(5, 2)) AS narrow, cast(case AS decimal(18, 0)) AS middle"
            ),
        ),
        then(
            each("wide", pa.decimal128(38, 10), money),
            each("narrow", pa.decimal128(5, 2), lambda c: c),
            each("middle", pa.decimal128(18, 0), lambda c: c),
        ),
    ),
    Shape(
        "decimal_scores",
        "scores as decimals",
        (made(select="case, y, cast(p1 AS decimal(12, 10)) AS p1, * except (case, y, p1)"),),
        changed("p1", lambda rows: rows["p1"].cast(pa.decimal128(12, 10), safe=False)),
    ),
    Shape(
        "small_types",
        "byte, short, float, boolean, binary, date",
        (
            made(
                select="*, cast(case % 100 AS tinyint) AS tiny, cast(case AS smallint) AS small, "
                "cast(case / 2 AS float) AS half, case % 2 = 0 AS even, "
                "cast(concat('b', case) AS binary) AS bytes, "
                "date_add(date'2024-01-01', cast(case % 3 AS int)) AS day"
            ),
        ),
        then(
            each("tiny", pa.int8(), lambda c: c % 100),
            each("small", pa.int16(), lambda c: c),
            each("half", pa.float32(), lambda c: c / 2),
            each("even", pa.bool_(), lambda c: c % 2 == 0),
            each("bytes", pa.binary(), lambda c: f"b{c}".encode()),
            each("day", pa.date32(), day),
        ),
    ),
    Shape(
        "void",
        "a column of type void",
        (made(select="*, null AS nothing"),),
        each("nothing", pa.null(), lambda c: None),
    ),
    Shape(
        "wide",
        "300 columns",
        (made(select="*, " + ", ".join(f"case + {i} AS c{i}" for i in range(300))),),
        then(*(each(f"c{i}", pa.int64(), lambda c, i=i: c + i) for i in range(300))),
    ),
    Shape(
        "collation",
        "a text with a collation",
        (
            "SET spark.databricks.delta.schema.typeCheck.enabled = false",  # else Delta refuses
            declared("word STRING COLLATE UTF8_LCASE"),
            "INSERT INTO {t} BY NAME SELECT concat('W', case) AS word, * FROM {base}",
            "RESET spark.databricks.delta.schema.typeCheck.enabled",
        ),
        each("word", pa.string(), lambda c: f"W{c}"),
    ),
    Shape(
        "upper_case",
        "column names in upper case",
        (made(select="case AS CASE, y AS Y, p1 AS P1, * except (case, y, p1)"),),
        renamed(case="CASE", y="Y", p1="P1"),
        {"id": "CASE", "label": "Y", "model_1": "P1"},
    ),
    Shape(
        "empty",
        "no rows",
        (made() + " WHERE false",),
        where(lambda c: False),
        read=Cell("has no rows", "has no rows"),
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
    ),
    Shape(
        "converted",
        "Parquet files converted to Delta",
        (
            "CREATE TABLE parquet_{name} USING parquet LOCATION '{path}' AS SELECT * FROM {base}",
            "CONVERT TO DELTA parquet.`{path}`",
        ),
    ),
    Shape("append_only", "append only", (made("'delta.appendOnly' = 'true'"),)),
    Shape(
        "iceberg_compat",
        "readable as Iceberg (IcebergCompatV2)",
        (made("'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name'"),),
    ),
    Shape(
        "vacuum_protocol_check",
        "the feature vacuumProtocolCheck",
        (made("'delta.feature.vacuumProtocolCheck' = 'supported'"),),
    ),
    Shape(
        "fresh",
        "everything a fresh Databricks table has, at once",
        (
            made(FRESH, NESTED, "CLUSTER BY (segment)") + " WHERE case < 60",
            "ALTER TABLE {t} RENAME COLUMN y TO default_flag",
            f"INSERT INTO {{t}} SELECT {NESTED} FROM {{base}} WHERE case >= 60",
            "ALTER TABLE {t} ADD COLUMN y INT",
            "UPDATE {t} SET y = 1 - default_flag",
            set_("'delta.enableChangeDataFeed' = 'true'"),
            DELETE,
        ),
        then(kept, renamed(y="default_flag"), nested, changed("y", opposite("default_flag"))),
        {"label": "default_flag"},
    ),
)

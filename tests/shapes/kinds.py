"""Shapes by the types of their columns."""

from __future__ import annotations

import pyarrow as pa

from tests.shapes.rows import (
    both_classes,
    changed,
    day,
    each,
    moment,
    moment_utc,
    money,
    numbers,
    plus,
    renamed,
    then,
)
from tests.shapes.shape import EVERYWHERE, NOT_TRIED, Cell, Shape, declared, made

KINDS = (
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
        merge=EVERYWHERE,
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
        then(*(changed(name, both_classes(name)) for name in ("p1", "p2"))),
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
        "varchar",
        "VARCHAR and CHAR columns",
        (
            declared("short VARCHAR(9), fixed CHAR(4)"),
            "INSERT INTO {t} BY NAME "
            "SELECT concat('v', case) AS short, 'c' AS fixed, * FROM {base}",
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
        merge=EVERYWHERE,
    ),
    Shape(
        "decimals",
        "decimals of all widths",
        (
            made(
                select="*, cast(concat(case, '123456789012345678.0123456789') AS decimal(38, 10)) "
                "AS wide, "
                "cast(case AS decimal(5, 2)) AS narrow, cast(case AS decimal(18, 0)) AS middle"
            ),
        ),
        then(
            each("wide", pa.decimal128(38, 10), money),
            each("narrow", pa.decimal128(5, 2), lambda c: c),
            each("middle", pa.decimal128(18, 0), lambda c: c),
        ),
        merge=EVERYWHERE,
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
        merge=EVERYWHERE,
    ),
    Shape(
        "void",
        "a column of type void",
        (made(select="*, null AS nothing"),),
        each("nothing", pa.null(), lambda c: None),
        merge=Cell(spark="void"),
    ),
    Shape(
        "wide",
        "300 columns",
        (made(select="*, " + ", ".join(f"case + {i} AS c{i}" for i in range(300))),),
        then(*(each(f"c{i}", pa.int64(), plus(i)) for i in range(300))),
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
        read=Cell("collation", "collat"),
        merge=Cell("collation", "collat"),
    ),
    Shape(
        "upper_case",
        "column names in upper case",
        (made(select="case AS CASE, y AS Y, p1 AS P1, * except (case, y, p1)"),),
        renamed(case="CASE", y="Y", p1="P1"),
        {"id": "CASE", "label": "Y", "model_1": "P1"},
    ),
)

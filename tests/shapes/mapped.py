"""Shapes with column mapping, and with fields inside columns."""

from __future__ import annotations

import pyarrow as pa

from tests.shapes.rows import (
    STRUCT,
    changed,
    each,
    known_from,
    many,
    named,
    opposite,
    pairs,
    renamed,
    struct,
    then,
)
from tests.shapes.shape import (
    BY_ID,
    BY_NAME,
    DELETE,
    DVS,
    EVERYWHERE,
    NESTED,
    UPGRADE,
    Cell,
    Shape,
    kept,
    made,
    nested,
    set_,
)

MAPPED = (
    Shape(
        "mapping_name",
        "column mapping by name, from the start",
        (made(BY_NAME),),
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
    ),
    Shape(
        "mapping_id",
        "column mapping by id, from the start",
        (made(BY_ID),),
        merge=Cell(local="columnMapping"),
    ),
    Shape(
        "mapping_upgraded",
        "column mapping, switched on later",
        (made(), set_(UPGRADE)),
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
    ),
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
        merge=Cell(local="columnMapping"),
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
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
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
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
    ),
    Shape(
        "mapping_deletion_vectors",
        "column mapping by name and deletion vectors",
        (made(f"{BY_NAME}, {DVS}"), DELETE),
        kept,
        merge=Cell(local="columnMapping"),
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
        as_output=(
            "ALTER TABLE {t} RENAME COLUMN p1_reconciled TO `p.1_reconciled`",
            'ALTER TABLE {t} RENAME COLUMN p2_reconciled TO `p"2_reconciled`',
        ),
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
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
        as_output=("ALTER TABLE {t} RENAME COLUMN p1_reconciled TO `p``1_reconciled`",),
        merge=Cell("columnMapping", "backtick"),
        overwrite=Cell(local="columnMapping"),
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
        as_output=("ALTER TABLE {t} RENAME COLUMN p1_reconciled TO `p 1, (new)_reconciled`",),
        read=Cell(spark="'p 1, (new)'"),
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
    ),
    Shape(
        "nested", "struct, array of structs, map", (made(select=NESTED),), nested, merge=EVERYWHERE
    ),
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
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
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
        read=Cell(spark="'st.a b.c'"),
        merge=Cell(local="columnMapping"),
        overwrite=Cell(local="columnMapping"),
    ),
)

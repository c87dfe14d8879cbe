"""Commands on Delta tables with features: the same answers as on plain ones, or a refusal first."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.delta_logs import array_of, column, deletion_vector, file_of, mapped, write_log
from tests.e2e.work import Work, scores, write

FEATURES = ["columnMapping", "deletionVectors"]
ANY = [column("x", "long")]
GONE = [0, 17, 599]


def upgraded() -> pa.Table:
    """The scores, mapped, with deleted rows, and an old label of the present label's name.

    Returned: the rows that are there.
    """
    rows = scores()
    stored = ["case", "col-outcome", "fold", "note", "col-a", "b"]
    wrong = pa.array(["mild"] * rows.num_rows)
    kinds: list[Any] = ["long", "string", "string", "string", array_of("double")]
    columns = [
        mapped(name, kind, physical, id)
        for id, (name, kind, physical) in enumerate(
            zip(rows.column_names, [*kinds, kinds[-1]], stored, strict=True), 1
        )
    ]
    old = mapped("old_outcome", "string", "outcome", 7)  # was renamed when the new one came
    file = rows.rename_columns(stored).append_column("outcome", wrong)
    write_log(
        "scores",
        [*columns, old],
        [file_of("scores", file, "a.parquet", vector=deletion_vector(GONE))],
        readers=FEATURES,
        writers=FEATURES,
        properties={"delta.columnMapping.mode": "name"},
    )
    left = [i for i in range(rows.num_rows) if i not in GONE]
    return rows.append_column("old_outcome", wrong).take(left)


def test_a_mapped_table_with_deleted_rows_gives_the_answers_of_a_plain_one(work: Work) -> None:
    write(upgraded())
    answers = []
    for table in ("scores.parquet", "scores"):
        work.tree["input"]["table"] = table
        work.tree["output"]["table"] = f"out/{table}"
        told = work.redcal("check")
        assert f"{table}, 597 rows, 4 classes" in told.out
        audit = work.redcal("audit", "--json").json
        work.ran()
        patches = work.table(f"out/{table}_patches")
        kept = [n for n in patches.column_names if n not in ("run_id", "config_digest")]
        answers.append((audit, patches.select(kept).to_pylist()))
        assert work.redcal("evaluate").code == 0
    assert answers[0] == answers[1]
    assert len(answers[0][1]) > 3
    rows = [
        work.table(f"out/{t}").sort_by("case").to_pylist() for t in ("scores", "scores.parquet")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 597


def test_targets_are_refused_before_the_fit(work: Work) -> None:
    """Rows, and tables of our own."""
    write_log("out/rows", ANY, writers=["clustering", "domainMetadata"])
    write_log("out/rows_runs", ANY, writers=["rowTracking"])
    before = work.files()
    for command in ("check", "run", "fit"):
        told = work.redcal(command)
        assert (told.code, told.out) == (2, "")
        for key, table, features in (
            ("table", "rows", "features clustering, domainMetadata"),
            ("runs", "rows_runs", "feature rowTracking"),
        ):
            assert (
                f"output.{key}: out/{table} cannot be written by the local engine: it does not "
                f"support the table's writer {features}; use --engine spark, or name another table"
            ) in told.err
    assert work.files() - {"config.yaml"} == before - {"config.yaml"}


def test_inputs_are_refused_before_the_fit(work: Work) -> None:
    variant = [*ANY, column("v", "variant")]
    write_log("scores", variant, readers=["variantType"], writers=["variantType"])
    work.tree["input"]["table"] = "scores"
    for command in ("check", "run", "fit", "audit"):
        told = work.redcal(command)
        assert (told.code, told.out) == (2, "")
        assert (
            "scores: cannot be read by the local engine: column 'v' has type variant (variantType)"
            "; use --engine spark"
        ) in told.err

"""The inputs that are no text: Parquet files and Delta tables, made afresh for the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

ROWS = 12
NAN = float("nan")

Rows = list[dict[str, Any]]


def rows(d: int = 3) -> Rows:
    """Good rows, the same every time."""
    rng = Random(4)

    def scores() -> list[float]:
        drawn = [rng.randrange(1, 9) for _ in range(d)]
        return [x / sum(drawn) for x in drawn]

    return [
        {"case": i, "outcome": rng.randrange(d), "a": scores(), "b": scores()} for i in range(ROWS)
    ]


def changed(**cells: dict[int, Any]) -> Rows:
    """Good rows with some cells replaced: column -> row -> value."""
    found = rows()
    for column, values in cells.items():
        for place, value in values.items():
            found[place][column] = value
    return found


def table(found: Rows, **kinds: pa.DataType) -> pa.Table:
    made = pa.Table.from_pylist(found)
    for name, kind in kinds.items():
        place = made.schema.get_field_index(name)
        made = made.set_column(place, name, made.column(name).cast(kind))
    return made


def files() -> Iterator[tuple[str, pa.Table]]:
    good = table(rows())
    yield "good", good
    yield "no_rows", good.slice(0, 0)
    yield "nan", table(changed(a={2: [NAN, 0.5, 0.5], 5: [0.5, NAN, NAN]}))
    yield "infinity", table(changed(b={0: [float("inf"), 0.0, 0.0]}))
    yield "null", table(changed(a={3: None}, b={3: None, 4: [0.5, None, 0.5]}))
    yield "outside", table(changed(a={1: [1.5, -0.5, 0.0]}, b={1: [0.0, 0.0, 1.001]}))
    yield "huge", table(changed(a={1: [1e308, 0.0, 0.0]}))
    yield "mixed_lengths", table(changed(a={1: [0.5, 0.5], 7: [], 9: [0.25] * 4}))
    yield "other_width", table([row | {"b": row["b"][:2]} for row in rows()])
    yield "one_class", table(rows(1))
    yield "texts", table([row | {"a": str(row["a"])} for row in rows()])
    yield "arrays_of_text", table([row | {"a": list(map(str, row["a"]))} for row in rows()])
    yield "label_date", good.set_column(1, "outcome", pa.array([0] * ROWS, pa.date32()))
    yield "label_vectors", table([row | {"outcome": [0.5, 0.5]} for row in rows()])
    yield "no_labels", table([row | {"outcome": None} for row in rows()], outcome=pa.int32())
    yield "floats_as_ids", table(rows(), case=pa.float64())
    clash = good.append_column("triage_agree", pa.array([True] * ROWS))
    yield "taken_names", clash.append_column("a_reconciled", good["a"])
    clock = good.append_column("admitted", pa.array([time(9, 30)] * ROWS))
    yield "clock", clock
    yield "upper_and_lower", good.append_column("CASE", good["case"])
    pairs = [*zip(good.schema.names, good.columns, strict=True), ("a", good["a"])]
    yield "twice", pa.table([column for _, column in pairs], names=[name for name, _ in pairs])


def build(folder: Path) -> None:
    """Write them all into a new folder."""
    folder.mkdir()
    for name, made in files():
        pq.write_table(made, folder / f"{name}.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.parquet").touch()
    (folder / "text.parquet").write_text("case,outcome\n1,2\n")
    (folder / "no_data").mkdir()
    (folder / "no_data" / "_SUCCESS").touch()
    (folder / "mixed").mkdir()
    (folder / "mixed" / "part.parquet").write_bytes(whole)
    (folder / "mixed" / "notes.csv").write_text("a,b\n1,2\n")
    (folder / "workbook.xlsx").write_bytes(b"PK\x03\x04\x14\x00\x06\x00\x08\x00")
    (folder / "damaged" / "_delta_log").mkdir(parents=True)
    (folder / "damaged" / "_delta_log" / f"{0:020}.json").write_text("{no json")
    (folder / "not_a_table").mkdir()
    (folder / "not_a_table" / "holiday.jpg").touch()
    for day in (1, 2, 3):
        write_deltalake(folder / "versions", table(rows()), mode="overwrite")
        log = folder / "versions" / "_delta_log" / f"{day - 1:020}.json"
        _date(log, datetime(2026, 1, day, tzinfo=UTC))
    write_deltalake(folder / "lost_file", table(rows()))
    next((folder / "lost_file").glob("*.parquet")).unlink()


def _date(log: Path, moment: datetime) -> None:
    """Give a commit another time."""
    stamp = int(moment.timestamp() * 1_000)
    log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{stamp}', log.read_text()))

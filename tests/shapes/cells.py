"""One cell of the table: a shape, a role and an engine; and what plain rows would have given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from redcal_spark.core.patches import PatchLog
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.reconciler import Reconciler
from redcal_spark.runs.tables import log_of
from tests.e2e.work import Told, Work
from tests.shapes import rows
from tests.shapes.make import Maker, collected, compared
from tests.shapes.shape import INPUT, Shape

LOSSES: dict[str, dict[str, Any]] = {
    "act": {"actions": ["no", "yes"], "costs": [[0.0, 4.0], [1.0, 0.0]]}
}
PARAMETERS: dict[str, Any] = {"alpha": 0.02, "eta": 0.02}


class Bench(Work):
    """A folder with one shape in it, and `redcal` run there on an engine."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], inputs: Maker, targets: Maker
    ):
        super().__init__(folder, capsys)
        self.inputs = inputs
        self.targets = targets

    def reads(self, shape: Shape, engine: str) -> None:
        """The shape is the input; outputs are new."""
        self.tree = self._tree(shape, engine, str(self.inputs(shape)))

    def writes(self, shape: Shape, engine: str, mode: str) -> Path:
        """The shape is there as the output, with other rows; the input is plain."""
        target = self.folder / "out" / "rows"
        shutil.copytree(self.targets(shape), target)
        pq.write_table(logical(shape), "plain.parquet")
        self.tree = self._tree(shape, engine, "plain.parquet")
        self.tree["output"]["mode"] = mode
        return target

    def _tree(self, shape: Shape, engine: str, table: str) -> dict[str, Any]:
        return {
            "input": {"table": table, **shape.keys},
            "losses": LOSSES,
            "reconcile": dict(PARAMETERS),
            "output": {"table": str(self.folder / "out" / "rows")},
            "engine": {"name": engine, "scratch": str(self.folder / "scratch")},
        }

    def rows(self, spark: Any = None) -> pa.Table:
        """What was written, as Spark reads it; without Spark, as delta-rs does."""
        if spark is None:
            return self.table(self.tree["output"]["table"])
        return collected(spark.read.format("delta").load(self.tree["output"]["table"]))

    def log(self) -> PatchLog:
        """The patches that the run wrote."""
        return log_of(self.table(self.tree["output"]["table"] + "_patches"), 2)


def refusal(told: Told, naming: str) -> str | None:
    """Why this is not a refusal as it should be: by name, with a way out, and nothing else."""
    text = told.err
    if told.code != 2:
        return f"exit {told.code}, not 2: {text or told.out}"
    if naming not in text:
        return f"does not name {naming!r}: {text}"
    if naming != "has no rows" and not any(word in text for word in WAYS_OUT):
        return f"tells no way out: {text}"
    return None


WAYS_OUT = (
    "use --engine spark",
    "rename",
    "another table",
    "use overwrite or append",
    "cast",
)


def reconciler(shape: Shape) -> Reconciler:
    keys: dict[str, Any] = PARAMETERS | shape.keys
    return Reconciler(losses=LOSSES, **keys)


def logical(shape: Shape) -> pa.Table:
    """The rows that the shape holds; of one that holds none, those that go into it."""
    found = shape.rows(rows.base())
    return found if found.num_rows else rows.base()


def plain(shape: Shape) -> tuple[ReconciledPair, pa.Table]:
    """The same rows without a table around them: what every reading must lead to."""
    table = logical(shape)
    pair = reconciler(shape).fit(table)
    assert pair.log, "nothing to compare: no patches"
    return pair, pair.apply(table)


def as_written(found: pa.Table, label: str) -> pa.Table:
    """The rows as a run writes them, which says what each was to the fit: here all are fitted."""
    known = found[label].is_valid()
    return found.append_column("split", pc.if_else(known, pa.scalar("fit"), pa.scalar("none")))


def outputs_before() -> pa.Table:
    """What an older run left of half of the rows: other scores, other actions."""
    table = rows.base()
    made = Reconciler(losses=LOSSES, **(PARAMETERS | INPUT)).fit(table)
    found = as_written(made.apply(table), INPUT["label"])
    place = found.schema.get_field_index("p1_reconciled")
    found = found.set_column(place, "p1_reconciled", pc.divide(found["p1_reconciled"], 2.0))
    return found.filter(pc.equal(pc.bit_wise_and(found["case"], 1), 0))


def same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Row for row, and of the same columns."""
    assert sorted(found.column_names) == sorted(expected.column_names)
    one, two = compared(found), compared(expected)
    assert len(one) == len(two)
    for ours, theirs in zip(one, two, strict=True):
        assert ours == theirs

"""One row of a run's input, found by its id and explained."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from redcal_spark.backends.inputs import open_input, pinned
from redcal_spark.backends.store import Table
from redcal_spark.config.input import Input
from redcal_spark.core.columns import is_text, plan
from redcal_spark.core.reading import MISSING, NULL
from redcal_spark.errors import InputError, JoinWarning, UsageError
from redcal_spark.model.explanation import Explanation
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow

MOST = 5  # rows of one id that are explained


@dataclass(frozen=True)
class Explained:
    """The rows of an id; more than one where the ids are no ids.

    rows: what became of each of the first few; a text for one that cannot be used.
    count: how many there are. version: of a Delta table. notes: what a reader must know.
    """

    run_id: str
    id: str
    table: str
    version: int | None
    count: int
    notes: tuple[str, ...]
    rows: tuple[Explanation | str, ...]

    def to_json(self) -> dict[str, Any]:
        """{run_id, id, table, version, count, notes, rows}: rows as `Explanation.to_json`.

        A row that cannot be used is {problem} instead.
        """
        rows = [{"problem": r} if isinstance(r, str) else r.to_json() for r in self.rows]
        return vars(self) | {"notes": list(self.notes), "rows": rows}


def explain_id(job: Job, run: RunRow, text: str) -> Explained:
    """Explain the rows whose id reads like this, as they stood when the run was made."""
    id = job.config.input.id
    if id is None:
        raise UsageError("explain --id: input.id is not set, so that no column holds ids")
    pair = job.pair_of(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JoinWarning)  # the run itself has warned
        table, notes = _as_it_was(job, run)
        first, count = _rows(job, table, id, text, pair)
    version = table.identity().get("version")
    where = table.name if version is None else f"{table.name}, version {version},"
    if not count:
        raise UsageError(f"explain: {where} has no row with {id} = {text!r}")
    if count > 1:
        shown = f"the first {first.num_rows}" if count > first.num_rows else "each"
        notes.append(f"{count:,} rows have {id} = {text}: {shown} of them is explained")
    rows = tuple(_explained(job, pair, first.slice(i, 1)) for i in range(first.num_rows))
    return Explained(run.run_id, text, table.name, version, count, tuple(notes), rows)


def _explained(job: Job, pair: ReconciledPair, row: pa.Table) -> Explanation | str:
    try:
        return pair.explain(row)
    except InputError as err:
        missing = MISSING in str(err) or NULL in str(err)
        if job.config.input.missing_model == "skip_row" and missing:
            return f"{err}\n  (input.missing_model: skip_row passed it through untouched)"
        if not job.skip:
            raise
        return f"{err}\n  (input.on_bad_rows: skip passed it through untouched)"


# --- the input as it was --------------------------------------------------------------------------


def _as_it_was(job: Job, run: RunRow) -> tuple[Table, list[str]]:
    """The input in the versions that the run read, where they are still there."""
    then, given = json.loads(run.inputs), job.config.input
    try:
        table, _ = open_input(job.store, _pinned(given, then))
    except InputError as err:
        table, _ = open_input(job.store, given)
        return table, [f"run {run.run_id} read other rows ({err}); this is the row as it is now"]
    if table.identity() == then:
        return table, []
    why = "changed since" if _names(then) == _names(table.identity()) else "is not the input of"
    return table, [f"{table.name} {why} run {run.run_id}; this is the row as it is now"]


def _pinned(given: Input, then: Any) -> Input:
    """The input with the Delta versions of a run, if its tables are the same."""
    models = range(1, given.n_models + 1)
    sides = [side for model in models if (side := given.score_table(model)) is not None]
    if _names(then) != [given.table, *(side.table for side in sides)]:
        return given
    return pinned(given, then)


def _names(identity: Any) -> list[Any]:
    return [table.get("table") for table in identity.get("tables", [identity])]


# --- rows by id -----------------------------------------------------------------------------------


def _rows(job: Job, table: Table, id: str, text: str, pair: ReconciledPair) -> tuple[pa.Table, int]:
    """The first rows with this id, and how many there are."""
    columns = replace(pair.columns, id=id)
    layout = plan(table.schema, columns, table.name, pair.n_classes, None, labels=False)
    pair.check_layout(layout)
    value = _value(table.schema.field(id).type, id, text)
    names = columns.names(label=False)
    return job.work.rows_with(table, id, value, names, MOST)


def _value(kind: pa.DataType, id: str, text: str) -> pa.Scalar:
    """What the text means in the column of ids."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    kind = pa.string() if is_text(kind) else kind
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowException as err:
        raise UsageError(f"explain: column {id!r} holds {kind}, and {text!r} is none") from err

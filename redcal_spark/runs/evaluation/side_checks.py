"""Patches, history and metrics of a run against what they must be, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from redcal_spark import __version__
from redcal_spark.backends.target import RUN_ID
from redcal_spark.core.differences import Difference, differences
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs import words_of_0_1
from redcal_spark.runs.evaluation.findings import Checked
from redcal_spark.runs.evaluation.notes import unknown_runs
from redcal_spark.runs.evaluation.redone import Redone, plain
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.tables import (
    HISTORY,
    METRICS,
    PATCHES,
    history_table,
    metrics_table,
    patches_table,
    with_other,
)

KEYS = {
    "patches": ("step",),
    "history": ("split", "step", "model", "loss", "segment", "segment_kind", "segment_value"),
    "metrics": (
        *("kind", "name", "number", "split", "stage", "model", "loss"),
        *("segment", "segment_kind", "segment_value"),
    ),
}
RECOMPUTED = "the fit made again from the input"
TAKEN_AGAIN = (
    "counts and measures: the fit made again from the input; times, passes and counters, which "
    "nobody can measure again: the ledger's copy of them"
)


def check_patches(job: Job, row: RunRow, redone: Redone) -> Checked:
    """The log as it was found, also what a guard left out."""
    expected = patches_table(row.run_id, redone.whole.log)
    return _compared(job, row, "patches", expected, PATCHES, RECOMPUTED)


def check_history(job: Job, row: RunRow, redone: Redone) -> Checked:
    pair = redone.pair
    expected = history_table(row.run_id, pair.losses, redone.histories, pair.columns.segments)
    return _compared(job, row, "history", expected, HISTORY, RECOMPUTED)


def check_metrics(
    job: Job, row: RunRow, pair: ReconciledPair | None, counts: dict[str, int], histories: Any
) -> Checked:
    """histories: none for a run that only applied a model."""
    table = job.tables.metrics
    taken = plain(row.measured)
    try:
        assert pair is not None
        expected = metrics_table(row, pair, counts, taken, histories)
    except (AssertionError, LookupError, TypeError, ValueError, pa.ArrowException):
        why = "its model is not known" if pair is None else "column 'measured' of its ledger's row"
        return Checked("metrics", row.run_id, table, unchecked=[f"{table}: {why}"])
    return _compared(job, row, "metrics", expected, METRICS, TAKEN_AGAIN)


def _compared(
    job: Job, row: RunRow, what: str, expected: pa.Table, schema: pa.Schema, how: str
) -> Checked:
    name: str = getattr(job.tables, what)
    table = job.store.read(name)
    if table is not None and words_of_0_1.wrote(vars(row)) and "split" in table.column_names:
        table = words_of_0_1.split_column(table)
    checked = Checked(what, row.run_id, name, how)
    if table is None:
        checked.findings.append(Difference("missing", {"table": name}))
        return checked
    if RUN_ID not in table.column_names:
        checked.findings.append(Difference("missing", {"column": RUN_ID}))
        return checked
    checked.notes += unknown_runs(job, name, table)
    columns = list(dict.fromkeys([*schema.names, *table.column_names]))
    ours = table.filter(pc.equal(table[RUN_ID], row.run_id))
    if what == "patches" and _knew_two_models(row):
        ours = with_other(ours)
    if row.package_version != __version__:
        expected, columns, new = _known_then(what, expected, ours, columns)
        since = f"release {row.package_version} wrote none"
        checked.unchecked += [f"{name}, {one}: {since}" for one in new]
    findings = differences(expected, ours, columns, KEYS[what])
    if any(one.problem == "missing" for one in findings):
        findings = _with_strays(job, table, ours, expected, columns, KEYS[what]) or findings
    checked.findings += findings
    return checked


def _known_then(
    what: str, expected: pa.Table, ours: pa.Table, columns: Sequence[str]
) -> tuple[pa.Table, list[str], list[str]]:
    """What an earlier release could write, and the columns and measures that it did not know."""
    there = set(ours.column_names)
    filled = [x for x in expected.column_names if expected[x].null_count < expected.num_rows]
    new = [x for x in filled if x not in there or ours[x].null_count == ours.num_rows]
    left_out = [f"column {x!r}" for x in new]
    if what == "metrics":
        named = set(expected["name"].to_pylist()) - set(ours["name"].to_pylist())
        strange = pa.array(sorted(named), pa.string())
        expected = expected.filter(pc.invert(pc.is_in(expected["name"], strange)))
        left_out += [f"measure {x!r}" for x in strange.to_pylist()]
    return expected, [x for x in columns if x not in new], left_out


def _knew_two_models(row: RunRow) -> bool:
    """Whether the release that made a run had no column `other`."""
    model = plain(row.model)
    return isinstance(model, dict) and model.get("schema_version") in (1, 2)


def _with_strays(
    job: Job,
    table: pa.Table,
    ours: pa.Table,
    expected: pa.Table,
    columns: Sequence[str],
    keys: Sequence[str],
) -> list[Difference]:
    """Looks for missing rows among those of runs that the ledger does not know."""
    known = pa.array([row.run_id for row in job.ledger.rows()], pa.string())
    strays = table.filter(pc.invert(pc.is_in(table[RUN_ID].cast(pa.string()), known)))
    gaps = differences(expected, pa.concat_tables([ours, strays]), columns, keys)

    def is_ours(one: Difference) -> bool:
        return one.row in ours.select(list(one.row)).to_pylist()

    return [one for one in gaps if one.problem != "extra" or is_ours(one)]

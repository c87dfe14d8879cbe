"""Notes: what an evaluation does not count against a run, and a reader should know all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from redcal_spark.backends.target import RUN_ID
from redcal_spark.core.differences import Difference
from redcal_spark.core.number_text import plural
from redcal_spark.runs.evaluation.redone import plain
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow, cell_digests
from redcal_spark.runs.other_settings import other_keys

NAMED = 3  # runs that a note names, or columns


def other_configuration(given: Job, used: Job, row: RunRow) -> Iterator[str]:
    """That the configuration which was given is not the run's own, by which the run is checked."""
    if given.digest == row.config_digest or used.digest != row.config_digest:
        return
    keys = other_keys(given.config.recorded(), plain(row.config))
    if keys is not None:
        yield (
            f"this configuration is not what run {row.run_id} was made with: {keys}. Checked with "
            "the run's own, from the ledger"
        )


def unknown_runs(job: Job, name: str, table: pa.Table) -> Iterator[str]:
    """Rows of runs that the ledger does not have, where they are no run's that is checked."""
    known = {row.run_id for row in job.ledger.rows()}
    counts = Counter(str(run) for run in table[RUN_ID].to_pylist())
    strange = {run: count for run, count in counts.items() if _run_of(run) not in known}
    for run, count in sorted(strange.items())[:NAMED]:
        yield f"{name} has {plural(count, 'row')} of run {run}, which is not in the ledger"
    if len(strange) > NAMED:
        yield f"{name} has rows of {len(strange) - NAMED} more runs that are not in the ledger"


def _run_of(name: str) -> str:
    """The run that rows are of: those of `redcal monitor` have a day before it."""
    return "-".join(name.split("-")[-2:]) if name.startswith("monitor-") else name


def other_rows(job: Job, row: RunRow) -> Iterator[str]:
    """Rows of the ledger, of other runs, that are not as they were written."""
    for stored in job.ledger.as_stored():
        sealed = plain(stored["digests"])
        if stored["run_id"] == row.run_id or not isinstance(sealed, dict):
            continue
        now = cell_digests(stored)
        odd = [name for name in sealed if name in now and sealed[name] != now[name]]
        if odd:
            yield (
                f"{job.tables.runs}: the row of run {stored['run_id']}, which was not checked, is "
                f"not as it was written: {', '.join(map(repr, odd[:NAMED]))}"
            )


def of_the_input(
    findings: Sequence[Difference], columns: Sequence[str], table: str, given: str
) -> Iterator[str]:
    """Whose fault it may be that a column of the input differs, where that is files."""
    odd = {one.column for one in findings if one.problem == "changed" and one.column in columns}
    if odd:
        names = ", ".join(sorted(map(repr, odd)))
        yield (
            f"either {table} or {given} was changed: {names} {'is' if len(odd) == 1 else 'are'} "
            "carried from there, and of a file only size, time of change and a digest of its last "
            "64 KiB are known"
        )

"""Notes: what an evaluation does not count against a run, and a reader should know all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from redcal_spark.backends.target import RUN_ID
from redcal_spark.core.differences import Difference, shown
from redcal_spark.core.number_text import plural
from redcal_spark.runs.evaluation.redone import plain
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow, cell_digests

NAMED = 3  # keys of a configuration, or runs, that a note names


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


def of_another_fit(given: Job, row: RunRow) -> str | None:
    """What to say of a model that is applied, if it was fitted with other parameters or losses."""
    now, then = (
        {key: tree.get(key) for key in ("losses", "reconcile")}
        for tree in (given.config.recorded(), plain(row.config) or {})
    )
    keys = other_keys(now, then)
    if keys is None:
        return None
    return f"the model is that of run {row.run_id}, made with other settings: {keys}"


def other_keys(now: Any, then: Any) -> str | None:
    """The first keys of two configurations that differ."""
    gaps = list(apart(now, then))
    if not gaps:
        return None
    texts = [f"{path} is {shown(new)}, was {shown(old)}" for path, new, old in gaps[:NAMED]]
    more = [] if len(gaps) <= NAMED else [f"{len(gaps) - NAMED} more"]
    return "; ".join([*texts, *more])


def apart(one: Any, two: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places at which two trees differ."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in dict.fromkeys([*two, *one]):
            yield from apart(one.get(key), two.get(key), f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from apart(a, b, f"{path}[{place}]")
    elif one != two:
        yield path, one, two


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

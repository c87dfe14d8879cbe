"""`redcal monitor`: rows that were labelled since the last fit, and what its patches do to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from redcal_spark.backends.inputs import open_input
from redcal_spark.backends.store import Commit, Table
from redcal_spark.certificate.monitor import Monitored
from redcal_spark.core.columns import Columns
from redcal_spark.core.splits import HoldoutOnly
from redcal_spark.errors import InputError, RunError, UsageError
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow
from redcal_spark.runs.tables import METRICS

KIND = "monitor"


@dataclass(frozen=True)
class Watch:
    """New rows against a run. monitored: None where there are none yet."""

    row: RunRow
    table: str
    monitored: Monitored | None

    @property
    def alerts(self) -> dict[str, str]:
        if self.monitored is None:
            why = f"{self.table} has no labelled rows that run {self.row.run_id} had not"
            return {"no_rows": why}
        return self.monitored.alerts

    def to_json(self) -> dict[str, Any]:
        place = {"run_id": self.row.run_id, "table": self.table}
        if self.monitored is None:
            return place | {"rows": 0, "alerts": self.alerts}
        return place | self.monitored.to_json()


def monitor(job: Job, run_id: str | None = None, table: str | None = None) -> Watch:
    """Measure new labelled rows with a run's model, the last one's by default.

    table: all of its labelled rows are new. By default they are those of the input whose id had
    no label, or was not there, in the version that the run was fitted on.
    """
    row = job.find(run_id)
    pair = job.pair_of(row)
    rows, columns = _of_table(job, table) if table is not None else _since(job, row)
    if rows is None:
        return Watch(row, job.input.name, None)
    job = job.reading(rows, columns)
    monitored = _measured(job, pair)
    return Watch(row, rows.name, monitored)


def _of_table(job: Job, table: str) -> tuple[Table, Columns]:
    given = job.config.input.model_copy(update={"table": table, "version": None})
    return open_input(job.store, given)


def _since(job: Job, row: RunRow) -> tuple[Table | None, Columns]:
    """The rows that got their label since a run read the input."""
    then, columns = json.loads(row.inputs), job.problem.columns
    if job.input.identity() == then:
        return None, columns
    if columns.id is None:
        raise UsageError(
            "redcal monitor tells new rows by their id, and input.id is not set; give the new "
            "rows as a table of their own: --table TABLE"
        )
    try:
        before = job.as_of(then).input
        read = before.identity() == then
    except (InputError, RunError):
        read = False
    if not read:
        raise UsageError(
            f"{job.input.name}: the version that run {row.run_id} was fitted on cannot be read any "
            "more, so that nobody can tell which rows are new; give them as a table of their own: "
            "--table TABLE"
        )
    known = job.work.labelled(before, columns.label)
    now = job.work.labelled(job.input, columns.label)
    return job.work.with_ids(now, known, columns.id, inside=False), columns


def _measured(job: Job, pair: ReconciledPair) -> Monitored | None:
    """One scan of the new rows, all of them held out; one pass for history and effects."""
    problem = replace(job.problem, parameters=pair.parameters, new_rows=True)
    split = HoldoutOnly(problem.columns.label)
    try:
        job.check_input()
        scan = job.scan_table(job.input, problem, split)
    except InputError as err:
        if "has no rows" in str(err):
            return None
        raise
    try:
        if not scan.gathered.holdout.rows:
            return None
        with job.listener.during("monitor"):
            points = scan.histories(pair, None)["holdout"]
            return Monitored(pair, points, scan.patch_effects(pair), job.delta)
    finally:
        scan.close()


# --- metrics --------------------------------------------------------------------------------------


def record(job: Job, watch: Watch, now: datetime | None = None) -> int | None:
    """A day's numbers in the metrics table; those of the same day and run are replaced."""
    if watch.monitored is None:
        return None
    now = now or datetime.now(UTC)
    name, day = job.tables.metrics, day_id(watch.row.run_id, now)
    commit = Commit(day, watch.row.fingerprint)
    known = {
        "run_id": day,
        "command": KIND,
        "status": "alert" if watch.alerts else "ok",
        "measured_at": now,
        "kind": KIND,
    }
    rows = [known | numbers for numbers in _numbers(watch.monitored)]
    if job.store.exists(name):
        job.store.delete(name, "run_id", [day], commit)
    batches = pa.Table.from_pylist(rows, schema=METRICS).to_batches()
    return job.store.write(name, METRICS, batches, "append", commit)


def day_id(run_id: str, day: datetime) -> str:
    """What stands in `run_id`: the day, and the run whose model was looked at."""
    return f"{KIND}-{day:%Y%m%d}-{run_id}"


def _numbers(monitored: Monitored) -> Iterator[dict[str, Any]]:
    def number(name: str, value: Any, **more: Any) -> dict[str, Any]:
        return {"name": name, "split": "new", "value": float(value), **more}

    yield number("rows", monitored.rows, counted=monitored.rows)
    for mass in monitored.masses:
        yield number("largest_event", mass.share, loss=mass.loss, counted=mass.rows, stage="after")
    for loss in monitored.losses:
        of = {"loss": loss.loss, "model": loss.model}
        yield number("decision_loss", loss.before, stage="before", **of)
        yield number("decision_loss", loss.after, stage="after", **of)
    for each in monitored.patches:
        of = {"number": each.patch.step, "model": each.patch.model, "loss": each.patch.loss}
        yield number("patch_rows", each.share, counted=each.rows, **of)
        if each.change is not None:
            yield number("patch_change", each.change, **of)
    for verdict, name in (("rose", "patches_that_hurt"), ("fell", "patches_that_help")):
        count = sum(each.verdict == verdict for each in monitored.patches)
        yield number(name, count, counted=count)
    drifted = sum(each.drifted for each in monitored.patches)
    yield number("patches_drifted", drifted, counted=drifted)


def days_of(job_metrics: pa.Table | None, run_id: str) -> list[dict[str, Any]]:
    """What the metrics have of a run's model on new rows, a day each, oldest first."""
    days: dict[str, dict[str, Any]] = {}
    for row in [] if job_metrics is None else job_metrics.to_pylist():
        if row["kind"] != KIND or not row["run_id"].endswith(f"-{run_id}"):
            continue
        day = days.setdefault(
            row["run_id"],
            {"day": row["measured_at"], "status": row["status"], "losses": [], "masses": []},
        )
        if row["name"] == "decision_loss":
            day["losses"].append({k: row[k] for k in ("loss", "model", "stage", "value")})
        elif row["name"] == "largest_event":
            day["masses"].append({k: row[k] for k in ("loss", "value", "counted")})
        elif row["name"] in ("rows", "patches_that_hurt", "patches_that_help", "patches_drifted"):
            day[row["name"]] = row["counted"]
    return sorted(days.values(), key=lambda day: day["day"])

"""Where a report goes, and writing it there."""

from __future__ import annotations

from pathlib import Path

from redcal_spark.atomic_write import write_whole
from redcal_spark.backends.names import ADDRESS
from redcal_spark.config.schema import Output
from redcal_spark.config.tables import sibling
from redcal_spark.errors import UsageError
from redcal_spark.report.data import Report
from redcal_spark.report.page import render
from redcal_spark.runs.job import Job
from redcal_spark.runs.ledger import RunRow

ELSEWHERE = Path("redcal_report.html")
HEAD = 8_192  # bytes of a report that have its title


def path_after_run(output: Output) -> Path | None:
    """Where `redcal run` writes its report; None: nowhere, or the rows are not on this machine."""
    if output.report is None:
        return None
    return Path(output.report) if output.report != "auto" else _beside(output.table)


def path_on_demand(output: Output) -> Path:
    """Where `redcal report` writes without being told."""
    return path_after_run(output) or _beside(output.table) or ELSEWHERE


def write_report(job: Job, row: RunRow, path: Path) -> Path:
    """Write the report of a run, whole or not at all."""
    page = render(Report.of(job, row))
    try:
        write_whole(path, lambda file: file.write(page))
    except OSError as err:
        raise UsageError(f"{path}: the report cannot be written: {err.strerror}") from err
    return path


def report_run(job: Job, row: RunRow) -> Path | None:
    """The report after a run, if one is wanted. A run does not fail by it: the reason is noted.

    A report of this very run that is there already is left as it is.
    """
    path = path_after_run(job.config.output)
    if path is None or row.command != "run":
        return None
    if _is_of(path, row.run_id):
        return path
    try:
        return write_report(job, row, path)
    except UsageError as err:
        job.listener.note(f"no report: {err}")
        return None


def _beside(table: str) -> Path | None:
    """A file beside a table that is a folder of this machine."""
    if table.startswith("`") or ADDRESS.match(table):
        return None
    path = Path(table)
    if "/" not in table and not path.exists():
        return None  # a name in a catalog
    return Path(sibling(table, "report.html")) if path.parent.is_dir() else None


def _is_of(path: Path, run_id: str) -> bool:
    try:
        with path.open("rb") as file:
            return run_id.encode() in file.read(HEAD)
    except OSError:
        return False

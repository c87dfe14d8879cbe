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

ELSEWHERE = Path("redcal_report.html")
HEAD = 8_192  # bytes of a report that have its title


def path_after_run(output: Output) -> Path | None:
    """Where `redcal run` writes its report; None: nowhere, or the rows are not on this machine."""
    if output.report is None:
        return None
    return Path(output.report) if output.report != "auto" else _beside(output.table)


def path_on_demand(output: Output) -> Path:
    """Where `redcal report` writes by default."""
    return path_after_run(output) or _beside(output.table) or ELSEWHERE


def write_report(report: Report, path: Path) -> None:
    """Write the report of a run, whole or not at all."""
    page = render(report)
    try:
        write_whole(path, lambda file: file.write(page))
    except OSError as err:
        raise UsageError(f"{path}: the report cannot be written: {err.strerror}") from err


def is_of(path: Path, run_id: str) -> bool:
    """Whether the report of a run is there already."""
    try:
        with path.open("rb") as file:
            return run_id.encode() in file.read(HEAD)
    except OSError:
        return False


def _beside(table: str) -> Path | None:
    """A file beside a table that is a folder of this machine."""
    if table.startswith("`") or ADDRESS.match(table):
        return None
    path = Path(table)
    if "/" not in table and not path.exists():
        return None  # a name in a catalog
    return Path(sibling(table, "report.html")) if path.parent.is_dir() else None

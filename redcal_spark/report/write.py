"""Where a report goes, and writing it there."""

from __future__ import annotations

from pathlib import Path

from redcal_spark.atomic_write import write_whole
from redcal_spark.backends.location import Location, told
from redcal_spark.config.addresses import ADDRESS, scheme_of
from redcal_spark.config.schema import Config
from redcal_spark.config.tables import sibling
from redcal_spark.errors import UsageError
from redcal_spark.report.data import Report
from redcal_spark.report.page import render

ELSEWHERE = "redcal_report.html"
HEAD = 8_192  # bytes of a report that have its title


def place_after_run(config: Config) -> Location | None:
    """Where `redcal run` writes its report; None: nowhere, or the rows are in a catalog."""
    output = config.output
    if output.report is None:
        return None
    name = output.report if output.report != "auto" else _beside(output.table)
    return None if name is None else Location(name, config.storage_options.given)


def place_on_demand(config: Config, given: str | None = None) -> Location:
    """Where `redcal report` writes. given: by its option."""
    if given is None and (usual := place_after_run(config)) is not None:
        return usual
    name = given or _beside(config.output.table) or ELSEWHERE
    return Location(name, config.storage_options.given)


def write_report(report: Report, place: Location) -> None:
    """Write the report of a run, whole or not at all."""
    page = render(report)
    try:
        if place.is_address:
            place.write(page.encode())
        else:
            write_whole(place.name, lambda file: file.write(page))
    except OSError as err:
        why = told(err) if place.is_address else err.strerror
        raise UsageError(f"{place.name}: the report cannot be written: {why}") from err


def is_of(place: Location, run_id: str) -> bool:
    """Whether the report of a run is there already."""
    try:
        return run_id.encode() in place.read_start(HEAD)
    except OSError:
        return False


def _beside(table: str) -> str | None:
    """A file beside a table that is a folder of this machine, or in an object store."""
    if scheme_of(table) is not None:
        return sibling(table, "report.html")
    if table.startswith("`") or ADDRESS.match(table):
        return None
    path = Path(table)
    if "/" not in table and not path.exists():
        return None  # a name in a catalog
    return sibling(table, "report.html") if path.parent.is_dir() else None

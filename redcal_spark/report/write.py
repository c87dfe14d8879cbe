"""Where a report goes, and writing it there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from redcal_spark.atomic_write import write_whole
from redcal_spark.backends.location import Location, error_line
from redcal_spark.config.addresses import ADDRESS, scheme_of
from redcal_spark.config.schema import Config
from redcal_spark.config.tables import sibling
from redcal_spark.errors import UsageError
from redcal_spark.report.data import Report
from redcal_spark.report.markdown import render_markdown
from redcal_spark.report.page import render
from redcal_spark.report.pdf import find_browser, printed

Format = Literal["html", "md", "pdf"]
ENDINGS: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".markdown": "md",
    ".pdf": "pdf",
}
ELSEWHERE = "redcal_report.html"
HEAD = 8_192  # bytes of a report that have its title


def place_after_run(config: Config) -> Location | None:
    """Where `redcal run` writes its report; None: nowhere, or the rows are in a catalog."""
    output = config.output
    if output.report is None:
        return None
    name = output.report if output.report != "auto" else _beside(output.table)
    return None if name is None else Location(name, config.storage_options.given)


def place_on_demand(config: Config, given: str | None = None, form: Format = "html") -> Location:
    """Where `redcal report` writes. given: by its option. form: of the report."""
    usual = place_after_run(config)
    name = usual.name if usual is not None else _beside(config.output.table) or ELSEWHERE
    if form != "html":
        name = f"{name.removesuffix(Path(name).suffix)}.{form}"
    return Location(given or name, config.storage_options.given)


def format_of(path: str | None, asked: str | None) -> Format:
    """The form that is asked for by name, or by the ending of the file."""
    suffix = Path(path or "").suffix
    ending = ENDINGS.get(suffix.lower())
    if asked is None:
        if suffix and ending is None:
            raise UsageError(f"-o {path}: a report is one of {', '.join(ENDINGS)}, not {suffix}")
        return ending or "html"
    form: Format = next(known for known in get_args(Format) if known == asked)
    if ending is not None and ending != form:
        raise UsageError(f"-o {path} ends as {ending}, and --format says {form}: leave one out")
    return form


def write_report(report: Report, place: Location, form: Format = "html") -> None:
    """Write the report of a run, whole or not at all."""
    browser = find_browser() if form == "pdf" else None
    page = render_markdown(report) if form == "md" else render(report)
    paper = None if browser is None else printed(page, browser)
    try:
        if place.is_address:
            place.write(page.encode() if paper is None else paper)
        elif paper is not None:
            write_whole(place.name, lambda file: file.buffer.write(paper))
        else:
            write_whole(place.name, lambda file: file.write(page))
    except OSError as err:
        why = error_line(err) if place.is_address else err.strerror
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

"""Where a report goes, and writing it there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from redcal_spark.atomic_write import write_whole
from redcal_spark.backends.names import ADDRESS
from redcal_spark.config.schema import Output
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


def format_of(path: str | None, asked: str | None) -> Format:
    """The form that is asked for by name, or by the ending of the file."""
    ending = ENDINGS.get(Path(path or "").suffix.lower())
    if asked is None:
        return ending or "html"
    form: Format = next(known for known in get_args(Format) if known == asked)
    if ending is not None and ending != form:
        raise UsageError(f"-o {path} ends as {ending}, and --format says {form}: leave one out")
    return form


def write_report(report: Report, path: Path, form: Format = "html") -> None:
    """Write the report of a run, whole or not at all."""
    browser = find_browser() if form == "pdf" else None
    page = render_markdown(report) if form == "md" else render(report)
    paper = None if browser is None else printed(page, browser)
    try:
        if paper is not None:
            write_whole(path, lambda file: file.buffer.write(paper))
        else:
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

"""How notebooks show a pair: a small piece of HTML, charts, and the report as a file."""

from __future__ import annotations

import os
from pathlib import Path

from redcal_spark.backends.location import Location
from redcal_spark.core.splits import SPLITS
from redcal_spark.errors import UsageError
from redcal_spark.model.evaluation import Evaluation
from redcal_spark.model.pair import ReconciledPair
from redcal_spark.model.summary import counted
from redcal_spark.report import page, plots, provenance, write
from redcal_spark.report.data import STYLES
from redcal_spark.report.markup import name
from redcal_spark.report.of_pair import report_of
from redcal_spark.report.summary import summary

steps, disagreement = plots.steps, plots.disagreement
costs, patches = plots.costs, plots.patches


def html(shown: ReconciledPair | Evaluation) -> str | None:
    """The report's cards and the certificate in small; None without jinja2, or nothing measured."""
    if isinstance(shown, ReconciledPair) and shown.evidence is None:
        return None
    report = report_of(shown)
    values = {
        "headline": shown.headline(),
        "models": list(zip(map(name, report.models), STYLES.values(), strict=False)),
        "split": SPLITS[report.shown_split],
        "rows": counted(report.audits[report.shown_split]["before"]),
        "summary": summary(report),
        "groups": list(provenance.certificate(report)),
    }
    try:
        return page.rendered("notebook.html", report, values)
    except UsageError:  # no jinja2: there is a line of text
        return None


def write_report(pair: ReconciledPair, path: str | os.PathLike[str]) -> None:
    ending = Path(path).suffix
    if ending.lower() not in (".html", ".htm", ""):
        raise UsageError(f"{os.fspath(path)}: pair.report writes HTML; name a file .html")
    write.write_report(report_of(pair), Location(os.fspath(path)))

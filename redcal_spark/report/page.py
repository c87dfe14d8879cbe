"""The page: one HTML file with its style inside; no script, no font, no address to load."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from redcal_spark.core.number_text import plural
from redcal_spark.errors import UsageError
from redcal_spark.report import actions, provenance, steps
from redcal_spark.report.data import SPLITS, STYLES, Report
from redcal_spark.report.markup import name
from redcal_spark.report.summary import summary

TEMPLATES = files(__package__) / "templates"


def render(report: Report) -> str:
    """The report as HTML. Every value is escaped: by jinja2, and by `tag` within `Html`."""
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ModuleNotFoundError as err:
        raise UsageError(
            "the report needs jinja2, which is not installed; get it with: "
            "pip install 'redcal-spark[report]'"
        ) from err
    sources = {part.name: part.read_text(encoding="utf-8") for part in TEMPLATES.iterdir()}
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plural"] = plural
    return environment.get_template("report.html").render(**context(report)) + "\n"


def context(report: Report) -> dict[str, Any]:
    """Everything that the templates show."""
    split, started = report.shown_split, report.row.started_at
    fix, unfixed = actions.to_fix(report)
    rounds, more_rounds = steps.rounds(report)
    return {
        "report": report,
        "started": f"{started.day} {started:%B %Y, %H:%M} UTC",
        "level": f"{100 * report.audits[split]['before']['intervals']['level']:g}",
        "models": list(zip(map(name, report.models), STYLES.values(), strict=True)),
        "split": SPLITS[split],
        "splits": [SPLITS[s] for s in report.splits],
        "summary": summary(report),
        "groups": provenance.certificate(report),
        "besides": provenance.besides(report),
        "to_fix": fix,
        "unfixed": unfixed,
        "losses": [_loss(report, loss, split) for loss in report.shown_losses],
        "left_out_losses": len(report.losses) - len(report.shown_losses),
        "figures": _figures(report),
        "timeline": steps.patch_timeline(report),
        "rounds": rounds,
        "more_rounds": more_rounds,
        "parameters": list(provenance.parameters(report)),
        "rows": list(provenance.rows(report)),
        "inputs": list(provenance.inputs(report)),
        "outputs": list(provenance.outputs(report)),
        "identity": list(provenance.identity(report)),
        "configuration": provenance.configuration(report),
    }


def _loss(report: Report, loss: int, split: str) -> dict[str, Any]:
    gaps, more_actions = actions.gaps(report, loss, split)
    others = [s for s in report.splits if s != split]
    return {
        "name": name(report.losses[loss].name),
        "id": f"loss-{loss}",
        "several": len(report.losses) > 1,
        "before": actions.heat_maps(report, loss, "fit", ("before",))[0],
        "maps": actions.heat_maps(report, loss, split),
        "other_maps": [m for s in others for m in actions.heat_maps(report, loss, s)],
        "gaps": gaps,
        "more_actions": more_actions,
        "costs": actions.cost_charts(report, loss, split),
    }


def _figures(report: Report) -> list[steps.Figures]:
    if not report.points:
        return []
    figures = [steps.brier(report)]
    if not report.shown_losses:
        figures.append(steps.apart(report))
    for loss in report.shown_losses:
        figures += [steps.loss_gap(report, loss), steps.disagreement(report, loss)]
    return figures

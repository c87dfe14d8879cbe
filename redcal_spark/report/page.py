"""The page: one HTML file with its style inside; no script, no font, no address to load."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from redcal_spark.certificate import exact_numbers
from redcal_spark.core.number_text import plural
from redcal_spark.core.splits import SPLITS
from redcal_spark.errors import UsageError
from redcal_spark.model.model_file import SCHEMA_VERSION
from redcal_spark.report import actions, decisions, provenance, segments, steps
from redcal_spark.report.data import STYLES, Report
from redcal_spark.report.markup import name
from redcal_spark.report.numbers import decimal, share, shown, typeset, whole
from redcal_spark.report.summary import summary
from redcal_spark.report.tuning import tuning
from redcal_spark.runs.ledger import RUNS_SCHEMA_VERSION

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

GLOSSARY = (  # the words that the one who signs meets
    ("Score", "what a model says about a row: how likely each outcome is"),
    ("Decision", "the action that costs least on average, by a model’s scores and your costs"),
    ("Cost", "what decisions cost by what really happened, from your table of costs"),
    ("Holdout rows", "rows with known outcomes that were kept out of the fit, to check it"),
    ("Correction, patch", "a small change to one model’s scores on a described group of rows"),
    ("In dispute", "the models lead to different decisions"),
    ("Certificate", "what is promised, what was measured, and whether it holds"),
    ("±, interval", "the true value lies within, with the confidence that is given"),
    ("Fingerprint", "a digest of all that went into the run; another input or setting changes it"),
)
TEMPLATES = files(__package__) / "templates"
SHOWS: dict[str, Any] = {  # what templates call, besides the run's `report`
    "name": name,
    "shown": shown,
    "whole": whole,
    "share": share,
    "decimal": decimal,
    "typeset": typeset,
    "fraction": Fraction,
    "fromjson": json.loads,
    "number": provenance.number,
    "exact": exact_numbers.shown,
    "digits_of": provenance.digits_of,
    "cell_share": actions.cell_share,
    "largest_phi": steps.largest_phi,
    "gap_chart": actions.gap_chart,
    "split_names": SPLITS,
    "styles": STYLES,
    "titles": provenance.TITLES,
    "relations": provenance.RELATIONS,
    "schema_versions": f"runs {RUNS_SCHEMA_VERSION}, model {SCHEMA_VERSION}",
}


def render(report: Report) -> str:
    """The report as HTML. Every value is escaped: by jinja2, and by `tag` within `Html`."""
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    more = {"more_models": more_models(css, len(report.models))}
    return rendered("report.html", report, context(report) | more) + "\n"


def rendered(template: str, report: Report, values: dict[str, Any]) -> str:
    """A template with what it shows of a run."""
    return environment(report).get_template(template).render(**values)


def environment(report: Report, *, autoescape: bool = True) -> Environment:
    """What renders templates."""
    try:
        from jinja2 import DictLoader, StrictUndefined
        from jinja2 import Environment as Made
    except ModuleNotFoundError as err:
        raise UsageError(
            "the report needs jinja2, which is not installed; get it with: "
            "pip install 'redcal-spark[report]'"
        ) from err
    sources = {part.name: part.read_text(encoding="utf-8") for part in TEMPLATES.iterdir()}
    made = Made(
        loader=DictLoader(sources),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled(),
    )
    made.filters["plural"] = plural
    made.globals.update(SHOWS, report=report)
    return made


# Of models from the third on, in light and in dark.
COLOURS = (
    *(("#1a7f5a", "#6fd6ae"), ("#8a2f8f", "#e3a0e6"), ("#7a6200", "#e0c65c")),
    *(("#a3203f", "#ff9db0"), ("#0e7490", "#7fd7ee"), ("#5b4bb5", "#bdb2ff")),
)


def more_models(css: str, models: int) -> str:
    """The rules of the second model's colour once more, for every further model."""
    rules = [rule for rule in re.findall(r"[^{};]*\{[^{}]*\}", css) if ".two" in rule]
    lines = []
    for model in range(3, models + 1):
        light, dark = COLOURS[(model - 3) % len(COLOURS)]
        own = STYLES[model]
        lines.append(f":root {{ --{own}: {light}; }}")
        lines.append(f"@media (prefers-color-scheme: dark) {{ :root {{ --{own}: {dark}; }} }}")
        for rule in rules:
            selectors, declared = rule.split("{", 1)
            chosen = [s.strip() for s in selectors.split(",") if ".two" in s]
            lines.append(f"{', '.join(chosen)} {{{declared}".replace("two", own))
    return "\n".join(lines)


@cache
def _compiled() -> BytecodeCache:
    """Templates that this process has compiled: to do so takes longer than a small run."""
    from jinja2 import BytecodeCache
    from jinja2.bccache import Bucket

    class Kept(BytecodeCache):
        codes: ClassVar[dict[str, Any]] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = self.codes.get(bucket.key)

        def dump_bytecode(self, bucket: Bucket) -> None:
            self.codes[bucket.key] = bucket.code

    return Kept()


def context(report: Report) -> dict[str, Any]:
    """Everything that the templates show."""
    split, started = report.shown_split, report.row.started_at
    to_fix = [
        *(("event", event) for event in report.events_to_fix),
        *(("gap", gap) for gap in report.gaps_to_fix),
        *(("class", cell) for cell in report.classes_to_fix),
    ]
    rounds, more_rounds = steps.rounds(report)
    return {
        "started": f"{started.day} {started:%B %Y, %H:%M} UTC",
        "level": f"{100 * report.audits[split]['before']['intervals']['level']:g}",
        "models": list(zip(map(name, report.models), STYLES.values(), strict=False)),
        "split": SPLITS[split],
        "splits": [SPLITS[s] for s in report.splits],
        "summary": summary(report),
        "groups": list(provenance.certificate(report)),
        "besides": list(provenance.besides(report)),
        "to_fix": to_fix[: actions.EVENTS],
        "unfixed": len(to_fix[actions.EVENTS :]),
        "touched": decisions.touched(report),
        "changed": [decisions.decisions(report, loss) for loss in report.shown_losses],
        "glossary": GLOSSARY,
        "losses": [_loss(report, loss, split) for loss in report.shown_losses],
        "left_out_losses": len(report.losses) - len(report.shown_losses),
        "segments": segments.payers(report),
        "tuning": tuning(report),
        "figures": _figures(report),
        "timeline": steps.patch_timeline(report),
        "rounds": rounds,
        "more_rounds": more_rounds,
        "inputs": list(provenance.inputs(report)),
        "configuration": provenance.configuration(report),
    }


def _loss(report: Report, loss: int, split: str) -> dict[str, Any]:
    others = [s for s in report.splits if s != split]
    return {
        "name": name(report.losses[loss].name),
        "id": f"loss-{loss}",
        "several": len(report.losses) > 1,
        "before": actions.heat_maps(report, loss, "fit", ("before",))[0],
        "maps": actions.heat_maps(report, loss, split),
        "pairs": actions.pair_matrix(report, loss, split),
        "other_maps": [m for s in others for m in actions.heat_maps(report, loss, s)],
        "actions": report.actions[loss],
        "of": (split, report.losses[loss].name),
        "gaps": actions.gaps(report, loss, split),
        "costs": actions.cost_charts(report, loss, split),
    }


def _figures(report: Report) -> list[dict[str, Any]]:
    if not report.points:
        return []
    figures = [steps.brier(report)]
    if not report.shown_losses:
        figures.append(steps.apart(report))
    for loss in report.shown_losses:
        figures += [steps.loss_gap(report, loss), steps.disagreement(report, loss)]
    return figures

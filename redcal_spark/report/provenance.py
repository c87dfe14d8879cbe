"""The certificate, and what the run was made of: parameters, versions, fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import yaml

from redcal_spark.certificate import exact_numbers
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.exact_numbers import Number, text_of, times
from redcal_spark.core.number_text import plural
from redcal_spark.model.model_file import SCHEMA_VERSION
from redcal_spark.report.data import SPLITS, STYLES, Report
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import shown, typeset, whole
from redcal_spark.runs.ledger import RUNS_SCHEMA_VERSION

MOST = 40  # checks of a verdict; 100 losses have hundreds
COSTS = 400  # numbers of a cost matrix that the configuration still shows
TITLES = {
    "violated": ("Violated", "bad", "✕"),
    "undecided": ("Undecided", "warn", "?"),
    "holds": ("Holds", "good", "✓"),
    "not covered": ("Not covered", "note", "–"),
    "not done": ("Not done", "note", "–"),
}
BESIDES = {
    "theory": "What theory says besides",
    "bookkeeping": "Bookkeeping",
}
FIRST = 6  # that hold, to be seen at once
HEAVY = {
    key: place
    for place, key in enumerate(
        (
            *("both_losses_fell", "loss_fell", "largest_event", "largest_gap"),
            *("calibration_gap", "decision_loss", "brier_decrease"),
        )
    )
}
RELATIONS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "="}


@dataclass(frozen=True)
class Group:
    """Promises with one verdict; or what is checked besides."""

    title: str
    mood: str
    count: int
    first: Sequence[Mapping[str, Any]]  # those to be seen at once
    checks: Sequence[Mapping[str, Any]]
    left_out: int
    words: str = ""


def certificate(report: Report) -> list[Group]:
    """What was promised to the user, by what is so; what is violated first."""
    if report.certificate is None:
        return []
    places = list(enumerate(report.certificate.checks))
    groups = []
    for verdict, (title, mood, _) in TITLES.items():
        checks = [x for x in places if x[1].verdict == verdict and _counts(x[1])]
        if not checks:
            continue
        order = sorted(checks, key=lambda x: _weight(x[1]))
        heavy = [x for x in order if _weight(x[1])[0] < len(HEAVY)]
        first = {"violated": order[:MOST], "undecided": heavy[:FIRST], "holds": heavy[:FIRST]}.get(
            verdict, []
        )
        rest = [] if verdict == "violated" else [x for x in order if x not in first][:MOST]
        left_out = len(checks) - len(first) - len(rest)
        shown_first, shown_rest = ([_check(report, *x) for x in part] for part in (first, rest))
        groups.append(Group(title, mood, len(checks), shown_first, shown_rest, left_out))
    return groups


def _counts(check: Check) -> bool:
    """Whether it is among what people see first: promises, and whatever is violated."""
    return check.kind == "promise" or check.verdict == "violated"


def besides(report: Report) -> list[Group]:
    """Bookkeeping and theory, a line each."""
    if report.certificate is None:
        return []
    groups = []
    for kind, title in BESIDES.items():
        checks = [
            x
            for x in enumerate(report.certificate.checks)
            if x[1].kind == kind and not _counts(x[1])
        ]
        verdicts = [check.verdict for _, check in checks]
        counts = [
            f"{verdicts.count(verdict):,} {'hold' if verdict == 'holds' else title_of.lower()}"
            for verdict, (title_of, *_) in TITLES.items()
            if verdict in verdicts
        ]
        if checks:
            shown_checks = [_check(report, *x) for x in checks[:MOST]]
            words = ", ".join(counts)
            if "not done" in verdicts:
                words += " (redcal evaluate does these)"
            left_out = len(checks) - len(shown_checks)
            groups.append(Group(title, "note", len(checks), (), shown_checks, left_out, words))
    return groups


def _weight(check: Check) -> tuple[int, bool]:
    """What people ask first, of new rows before those that were fitted."""
    return HEAVY.get(check.name, len(HEAVY)), check.split == "fit"


def _check(report: Report, place: int, check: Check) -> dict[str, Any]:
    of: list[Html] = []
    if check.loss is not None:
        of.append(name(check.loss))
    if check.model is not None:
        model = report.models[check.model - 1]
        of.append(tag("span", name(model), class_=STYLES[check.model]))
    of.append(Html(f"{SPLITS[check.split]} rows"))
    counted = check.relation == "==" and check.bound == 0  # contradictions, of which there are none
    interval = None
    if check.interval is not None:
        level = f"{float(check.interval.confidence) * 100:g} %"
        low, high = (
            _number(x, check.scale, "certificate", place, end)
            for x, end in zip(check.interval.ends, ("low", "high"), strict=True)
        )
        method = check.interval.method.partition(" (")[0]
        interval = joined(low, " to ", high, f" ({level} for all together, {method})")
    title, mood, mark = TITLES[check.verdict]
    return {
        "claim": check.claim,
        "of": joined(*of, by=" · "),
        "measured": None
        if check.measured is None
        else _number(check.measured, check.scale, "certificate", place, "measured"),
        "relation": RELATIONS[check.relation],
        "bound": _number(check.bound, check.scale, "certificate", place, "bound"),
        "counted": counted,
        "interval": interval,
        "rescaled": _rescaled(check),
        "why": report.as_written(check.why),
        "mood": mood,
        "mark": mark,
        "title": title,
    }


def _rescaled(check: Check) -> str | None:
    """The same numbers as theory has them, where users have others."""
    if check.scale == 1 or check.measured is None:
        return None
    numbers = f"{exact_numbers.shown(check.measured)} {RELATIONS[check.relation]} "
    numbers += exact_numbers.shown(check.bound)
    unit = "over both classes" if check.loss is None else "rescaled to [0, 1]"
    return f"{unit}: {typeset(numbers)}"


def _number(number: Number, scale: Fraction, *of: object) -> Html:
    """In the user's units."""
    value = times(number, scale)
    return shown(exact_numbers.shown(value), text_of(value), *of)


# --- what the run was made of ---------------------------------------------------------------------

Line = tuple[str, Html | str]


def parameters(report: Report) -> Iterator[Line]:
    """Parameters as the user wrote them, and what they stand for."""
    given, resolved, written = report.parameters, report.resolved, report.config["reconcile"]
    yield "algorithm", given.algorithm
    if given.alpha is not None:
        unit = "probability" if given.reconciles_scores else "the loss rescaled to [0, 1]"
        alpha = shown(repr(given.alpha), given.alpha, "parameters", "alpha")
        yield "alpha", joined(alpha, f" of {unit}")
    if given.eta is not None:
        eta = shown(repr(given.eta), given.eta, "parameters", "eta")
        yield "eta", joined(eta, f" of the rows ({_percent(given.eta)})")
    if resolved.beta is not None:
        beta = shown(f"{float(resolved.beta):g}", float(resolved.beta), "parameters", "beta")
        yield "beta", joined(beta, " (auto)") if given.beta == "auto" else beta
    if given.adaptive_beta:
        yield "adaptive_beta", "on"
    covered = "" if resolved.grid_covered else ", coarser than the theorem asks"
    source = "set by grid_bits" if given.grid_bits is not None else "by theory"
    yield (
        "patch grid",
        joined("1 / ", whole(resolved.m, "parameters", "m"), f" ({source}{covered})"),
    )
    yield "max_rounds, max_steps", f"{given.max_rounds:,}, {given.max_steps:,}"
    if "guard" in written:
        yield "guard", str(written["guard"])
    if "delta" in written:
        yield "delta", shown(repr(written["delta"]), written["delta"], "parameters", "delta")
    sizes = [
        f"{loss.name} ({loss.n_actions} actions × {loss.n_classes:,} classes)"
        for loss in report.losses.losses
    ]
    if sizes:
        left_out = f"; … {len(sizes) - 8:,} more" if sizes[8:] else ""
        yield "losses", "; ".join(sizes[:8]) + left_out


def rows(report: Report) -> Iterator[Line]:
    row = report.row
    counts = (
        ("rows", row.rows, ("rows",)),
        ("fitted", report.rows("fit"), ("fit", "rows")),
        ("holdout", row.holdout_rows, ("holdout", "rows")),
        ("without a label", row.unlabelled_rows, ("without a label",)),
        ("unusable", row.bad_rows, ("unusable",)),
    )
    for title, count, of in counts:
        if count is not None:
            yield title, whole(count, *of)


def inputs(report: Report) -> Iterator[Line]:
    """The tables read, by their name in the configuration, and which version of them."""
    identity = json.loads(report.row.inputs)
    known = identity["tables"] if identity.get("kind") == "join" else [identity]
    given = report.config["input"]
    names = [given["table"]]
    for key in ("model_1", "model_2"):
        if isinstance(given[key], Mapping):
            names.append(given[key]["table"])
    if len(names) != len(known):  # one table for both models
        names = list(dict.fromkeys(names))
    for place, table in enumerate(known):
        title = names[place] if place < len(names) else f"table {place + 1}"
        yield title, _version(table)


def _version(table: Mapping[str, Any]) -> str:
    """Which version it was. Paths of files are not shown: variables may have gone into them."""
    kind = str(table.get("kind", "table"))
    if "version" in table:
        text = f"{kind.capitalize()} version {table['version']}"
        return f"{text}, table {table['id']}" if "id" in table else text
    files = table.get("files", [])
    if not files:
        return kind
    size = sum(int(file[1]) for file in files)
    newest = datetime.fromtimestamp(max(int(file[2]) for file in files) / 1e9, UTC)
    digests = f", digest {files[0][3]}" if len(files) == 1 and len(files[0]) > 3 else ""
    kind = {"csv": "CSV", "parquet": "Parquet"}.get(kind, kind)
    text = f"{kind}, {plural(len(files), 'file')}, {size:,} bytes"
    return f"{text}, changed {newest:%Y-%m-%d %H:%M:%S} UTC{digests}"


def outputs(report: Report) -> Iterator[Line]:
    """The tables written, by their name in the configuration."""
    given = report.config["output"]
    for key, version in report.versions.items():
        title = "rows" if key == "table" else key
        written = given.get(key) or f"{given['table']}_{key}"
        yield title, joined(name(written), f", version {version}")
    if "table" in report.versions and report.log and not report.binary:
        more = "output.normalise: true adds some that do"
        adds = "the columns …_normalised do" if given.get("normalise") else more
        yield "sums", f"patched scores need not sum to 1; {adds}"


def identity(report: Report) -> Iterator[Line]:
    row = report.row
    yield "run", row.run_id
    yield "command", row.command
    yield "status", row.status
    yield "started", f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC"
    if row.finished_at is not None:
        seconds = (row.finished_at - row.started_at).total_seconds()
        yield "finished", f"{row.finished_at:%Y-%m-%d %H:%M:%S} UTC, after {seconds:,.1f} s"
    timings = json.loads(row.timings or "{}")
    if timings:
        yield "phases", ", ".join(f"{phase} {seconds:,.2f} s" for phase, seconds in timings.items())
    yield "fingerprint", tag("code", row.fingerprint)
    yield "configuration", tag("code", row.config_digest)
    yield "redcal_spark", row.package_version
    yield "schema versions", f"runs {RUNS_SCHEMA_VERSION}, model {SCHEMA_VERSION}"


def configuration(report: Report) -> str:
    """As YAML, as recorded; large cost matrices by their size."""
    tree = json.loads(report.row.config)
    for loss in (tree.get("losses") or {}).values():
        costs = loss.get("costs") or [[]]
        if len(costs) * len(costs[0]) > COSTS:
            loss["costs"] = f"({len(costs)} × {len(costs[0])} numbers)"
    classes = tree["input"].get("classes")
    if classes is not None and len(classes) > COSTS:
        tree["input"]["classes"] = f"({len(classes)} names)"
    losses = tree.get("losses") or {}
    if len(losses) > 20:
        tree["losses"] = dict(list(losses.items())[:20]) | {"…": f"{len(losses) - 20} more"}
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, default_flow_style=None)


def _percent(x: float) -> str:
    return f"{x * 100:g} %"

"""The certificate, and what the run was made of: parameters, versions, fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from redcal_spark.certificate import exact_numbers
from redcal_spark.certificate.check import Check
from redcal_spark.certificate.exact_numbers import Number, text_of, times
from redcal_spark.core.number_text import plural
from redcal_spark.report.data import Report
from redcal_spark.report.markup import Html
from redcal_spark.report.numbers import shown

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
TAIL = 65_536  # bytes of a file that its digest is of
FIRST = 6  # that hold, to be seen at once
HEAVY = (
    *("both_losses_fell", "all_losses_fell", "loss_fell", "largest_event", "largest_gap"),
    *("calibration_gap", "decision_loss", "brier_decrease"),
)
RELATIONS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "="}


def certificate(report: Report) -> Iterator[dict[str, Any]]:
    """What was promised to the user, by what is so; what is violated first.

    A check comes with its place in the certificate. `first`: those to be seen at once.
    """
    places = [] if report.certificate is None else list(enumerate(report.certificate.checks))
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
        yield {
            "title": title,
            "mood": mood,
            "count": len(checks),
            "first": first,
            "checks": rest,
            "left_out": len(checks) - len(first) - len(rest),
        }


def _counts(check: Check) -> bool:
    """Whether it is among what people see first: promises, and whatever is violated."""
    return check.kind == "promise" or check.verdict == "violated"


def besides(report: Report) -> Iterator[dict[str, Any]]:
    """Bookkeeping and theory, a line each."""
    places = [] if report.certificate is None else list(enumerate(report.certificate.checks))
    for kind, title in BESIDES.items():
        checks = [x for x in places if x[1].kind == kind and not _counts(x[1])]
        if checks:
            verdicts = [check.verdict for _, check in checks]
            yield {
                "title": title,
                "counts": [(v, verdicts.count(v)) for v in TITLES if v in verdicts],
                "checks": checks[:MOST],
                "left_out": len(checks[MOST:]),
            }


def _weight(check: Check) -> tuple[int, bool]:
    """What people ask first, of new rows before those that were fitted."""
    place = HEAVY.index(check.name) if check.name in HEAVY else len(HEAVY)
    return place, check.split == "fit"


def number(check: Check, number: Number, *of: object) -> Html:
    """A number of a check, in the user's units."""
    text = exact_numbers.shown(number, check.scale, digits_of(check))
    return shown(text, text_of(times(number, check.scale)), *of)


def digits_of(check: Check) -> int:
    """Three, or as many as tell the bound from what was measured."""
    ends = [] if check.interval is None else [check.interval.low, check.interval.high]
    numbers = [check.measured, *ends, check.bound]
    for digits in (3, 4, 5):
        texts = {exact_numbers.shown(x, check.scale, digits) for x in numbers if x is not None}
        if len(texts) == len({text_of(x) for x in numbers if x is not None}):
            return digits
    return 6


# --- what the run was made of ---------------------------------------------------------------------


def inputs(report: Report) -> Iterator[tuple[str, str]]:
    """The tables read, by their name in the configuration, and which version of them."""
    identity = json.loads(report.row.inputs)
    known = identity["tables"] if identity.get("kind") == "join" else [identity]
    given = report.config["input"]
    names = [given["table"]]
    both = [given.get(key) for key in ("model_1", "model_2")]
    for scores in both if given.get("models") is None else given["models"].values():
        if isinstance(scores, Mapping):
            names.append(scores["table"])
    if len(names) != len(known):  # one table for several models
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
    kind = {"csv": "CSV", "parquet": "Parquet"}.get(kind, kind)
    text = f"{kind}, {plural(len(files), 'file')}, {size:,} bytes"
    if isinstance(files[0][2], str):  # an object store tells marks of its own, not times
        return f"{text}, {files[0][2]}" if len(files) == 1 else text
    newest = datetime.fromtimestamp(max(int(file[2]) for file in files) / 1e9, UTC)
    one = files[0] if len(files) == 1 else []
    part = "" if size <= TAIL else f" of the last {TAIL >> 10} KiB"
    digests = f", sha256{part} {one[3]}" if len(one) > 3 else ""
    return f"{text}, changed {newest:%Y-%m-%d %H:%M:%S} UTC{digests}"


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

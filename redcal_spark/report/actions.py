"""By action: where the models disagree, how far they are calibrated, what their choices cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redcal_spark.report.charts import Gap, interval_row
from redcal_spark.report.data import SPLITS, Report
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import (
    decimal,
    decimal_text,
    digits_for,
    plural,
    share,
    share_text,
    shown,
    whole,
)

ACTIONS = 8  # of a loss, in a chart
EVENTS = 8  # to fix, in a list
WHENS = ("before", "after")


# --- heat maps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    text: Html
    heat: int  # per cent of the colour
    agrees: bool
    hint: str


@dataclass(frozen=True)
class HeatMap:
    """Rows of a split by the actions of both models."""

    caption: Html
    names: Sequence[Html]  # of the actions; the last may be all others together
    cells: Sequence[Sequence[Cell]]
    disagreement: Html


def heat_maps(report: Report, loss: int, split: str, whens: Sequence[str] = WHENS) -> list[HeatMap]:
    """Before and after, in colours of one scale."""
    audits = {when: report.audit(split, when, loss) for when in whens}
    kept = _kept_pairs(report, loss, split)
    matrices = {when: _folded(audit["rows"], kept) for when, audit in audits.items()}
    apart = [
        count
        for matrix in matrices.values()
        for a1, line in enumerate(matrix)
        for a2, count in enumerate(line)
        if a1 != a2
    ]
    top = max(apart, default=0)
    return [_heat_map(report, loss, split, when, kept, matrices[when], top) for when in whens]


def _heat_map(
    report: Report,
    loss: int,
    split: str,
    when: str,
    kept: Sequence[int],
    matrix: Sequence[Sequence[int]],
    top: int,
) -> HeatMap:
    actions, n, title = report.actions[loss], report.rows(split), report.losses[loss].name
    others = len(actions) - len(kept)
    names = [name(actions[a]) for a in kept]
    keys: list[object] = list(kept)
    if others:
        names.append(tag("span", f"{others:,} others"))
        keys.append("others")
    cells = []
    for a1, line in enumerate(matrix):
        row = []
        for a2, count in enumerate(line):
            together = others and a1 == a2 == len(kept)  # some of these agree, some do not
            agrees = a1 == a2 and not together
            heat = round(100 * (count / top) ** 0.6) if top and a1 != a2 else 0
            text = _cell_share(count, n)
            value = share_cell(text, count, n, split, title, when, "pair", keys[a1], keys[a2])
            row.append(Cell(value, min(100, heat), agrees, f"{count:,} rows"))
        cells.append(row)
    caption = joined(when.capitalize(), ", ", f"{SPLITS[split]} rows")
    apart = share(report.apart(split, when, loss), split, title, "disagreement", when)
    return HeatMap(caption, names, cells, apart)


def share_cell(text: str, count: int, n: int, *of: object) -> Html:
    return tag("data", text, value=str(Fraction(count, n)), data_n="/".join(map(str, of)))


def _cell_share(count: int, n: int) -> str:
    """A share for a small cell."""
    percent = 100 * count / n
    if not count:
        return "·"
    if percent < 0.05:
        return "<.1"
    return f"{percent:.1f}"


def _kept_pairs(report: Report, loss: int, split: str) -> list[int]:
    """The actions on which the models disagree most before, in their order."""
    matrix = report.audit(split, "before", loss)["rows"]
    k = len(matrix)
    if k <= ACTIONS + 1:  # one that is left out would take the place of "others"
        return list(range(k))
    apart = [sum(matrix[a]) + sum(line[a] for line in matrix) - 2 * matrix[a][a] for a in range(k)]
    return sorted(sorted(range(k), key=lambda a: (-apart[a], a))[:ACTIONS])


def _folded(matrix: Sequence[Sequence[int]], kept: Sequence[int]) -> list[list[int]]:
    """The matrix of the kept actions, with all others as one more."""
    if len(kept) == len(matrix):
        return [list(line) for line in matrix]
    place = {a: i for i, a in enumerate(kept)}
    size = len(kept) + 1
    found = [[0] * size for _ in range(size)]
    for a1, line in enumerate(matrix):
        for a2, count in enumerate(line):
            found[place.get(a1, size - 1)][place.get(a2, size - 1)] += count
    return found


# --- calibration gaps -----------------------------------------------------------------------------


@dataclass(frozen=True)
class GapLine:
    action: Html
    model: Html
    style: str
    chart: Html
    before: Html
    after: Html
    rows: Html


def gaps(report: Report, loss: int, split: str) -> tuple[list[GapLine], int]:
    """Per action and model, largest first, and how many actions are left out.

    An interval is of the gap's expectation given the scores. Scores that were fitted to the very
    labels have none.
    """
    audits = [report.audit(split, when, loss) for when in WHENS]
    pairs = list(zip(*(audit["calibration"] for audit in audits), strict=True))
    worst: dict[int, float] = {}
    for pair in pairs:
        action = pair[0]["action"]
        worst[action] = max(worst.get(action, 0.0), *(cell["gap"] for cell in pair))
    kept = sorted(worst, key=lambda a: (-worst[a], a))[:ACTIONS]
    drawn = [pair for pair in pairs if pair[0]["action"] in kept]
    top = max((cell["high"] for pair in drawn for cell in pair), default=1.0)
    limit = None
    if report.parameters.calibrates_everywhere:
        limit = None if report.beta is None else float(report.beta)
    order = sorted(drawn, key=lambda p: (kept.index(p[0]["action"]), p[0]["model"]))
    lines = [_gap_line(report, loss, split, pair, top, limit) for pair in order]
    return lines, len(worst) - len(kept)


def _gap_line(
    report: Report,
    loss: int,
    split: str,
    pair: Sequence[Mapping[str, Any]],
    top: float,
    limit: float | None,
) -> GapLine:
    before, after = pair
    model, action = before["model"], report.actions[loss][before["action"]]
    # after the fit, the fitting rows are no sample any more; nor are those that the guard chose by
    chosen = report.certificate is not None and report.certificate.candidates > 1
    fresh = split == "holdout" and not chosen
    style = "one" if model == 1 else "two"
    marks = [
        Gap(before["gap"], before["low"], before["high"], f"{style} before"),
        Gap(
            after["gap"],
            after["low"] if fresh else None,
            after["high"] if fresh else None,
            style,
        ),
    ]
    words = (
        f"{action}, {report.models[model - 1]}: gap {_gap_text(before)} before, "
        f"{_gap_text(after) if fresh else decimal_text(after['gap'], 4)} after"
    )
    of = (split, report.losses[loss].name, "gap", before["action"], model)
    return GapLine(
        name(action),
        name(report.models[model - 1]),
        style,
        interval_row(marks, words, top, limit),
        joined(decimal(before["gap"], 4, *of, "before"), _ends(before, *of, "before")),
        joined(
            decimal(after["gap"], 4, *of, "after"),
            _ends(after, *of, "after") if fresh else Html(""),
        ),
        share(
            before["mass"],
            split,
            report.losses[loss].name,
            "mass",
            before["action"],
            model,
            "before",
        ),
    )


def _gap_text(cell: Mapping[str, Any]) -> str:
    return f"{cell['gap']:.4f} ({cell['low']:.3f} to {cell['high']:.3f})"


def _ends(cell: Mapping[str, Any], *of: object) -> Html:
    low, high = (shown(f"{cell[end]:.3f}", cell[end], *of, end) for end in ("low", "high"))
    return tag("small", " ", low, "–", high)


# --- cost by action -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostLine:
    action: Html
    words: str
    widths: tuple[str, str]
    before: Html
    after: Html
    rows_before: Html
    rows_after: Html


@dataclass(frozen=True)
class CostChart:
    """What a model's mean cost is made of."""

    model: Html
    style: str
    lines: Sequence[CostLine]
    left_out: int
    before: Html
    after: Html


def costs(report: Report, loss: int, split: str) -> list[CostChart]:
    """Per model, where its mean cost comes from: the dearest actions first."""
    audits = [report.audit(split, when, loss) for when in WHENS]
    cells = list(zip(*(audit["by_action"] for audit in audits), strict=True))
    size = max((abs(cell["cost"]) for pair in cells for cell in pair), default=0.0)
    totals = [cost for audit in audits for cost in audit["decision_loss"]]
    digits = digits_for(totals)
    return [_cost_chart(report, loss, split, model, cells, size, digits) for model in (1, 2)]


def _cost_chart(
    report: Report,
    loss: int,
    split: str,
    model: int,
    cells: Sequence[Sequence[Mapping[str, Any]]],
    size: float,
    digits: int,
) -> CostChart:
    own = [pair for pair in cells if pair[0]["model"] == model]
    dearest = sorted(own, key=lambda p: (-max(abs(c["cost"]) for c in p), p[0]["action"]))
    kept = dearest[:ACTIONS] if len(own) > ACTIONS + 1 else dearest
    lines = []
    for pair in sorted(kept, key=lambda p: p[0]["action"]):
        action = report.actions[loss][pair[0]["action"]]
        of = (split, report.losses[loss].name)
        place = (pair[0]["action"], model)
        told = [
            decimal(Fraction(c["cost_exact"]), digits, *of, "spent", *place, when)
            for c, when in zip(pair, WHENS, strict=True)
        ]
        masses = [
            share(c["mass"], *of, "mass", *place, when) for c, when in zip(pair, WHENS, strict=True)
        ]
        texts = [decimal_text(c["cost"], digits) for c in pair]
        shares = [share_text(c["mass"]) for c in pair]
        words = (
            f"{action}, {report.models[model - 1]}: {texts[0]} of the mean cost from {shares[0]} "
            f"of the rows before, {texts[1]} from {shares[1]} after"
        )
        widths = [f"{100 * abs(c['cost']) / size if size else 0:.1f}" for c in pair]
        lines.append(CostLine(name(action), words, (widths[0], widths[1]), *told, *masses))
    totals = [
        decimal(
            report.cost(split, when, loss, model),
            *(digits, split, report.losses[loss].name, f"cost_{model}", when),
        )
        for when in WHENS
    ]
    style = "one" if model == 1 else "two"
    return CostChart(
        name(report.models[model - 1]), style, lines, len(own) - len(kept), totals[0], totals[1]
    )


# --- what there was to fix ------------------------------------------------------------------------


def to_fix(report: Report) -> tuple[list[Html], int]:
    """The largest disagreements and gaps that the algorithm started with; how many are not told."""
    told = [*_events(report), *_gaps(report), *_classes(report)]
    return told[:EVENTS], len(told) - len(told[:EVENTS])


def to_fix_words(report: Report) -> Html:
    """How much of it there was."""
    n, given = report.rows("fit"), report.parameters
    rows = joined("On the ", whole(n, "fit", "rows"), " fitted rows ")
    parts: list[Html] = []
    if given.calibrates_everywhere:
        found = len(report.gaps_to_fix)
        beta = f"{float(report.beta or 0):g}"
        parts.append(
            Html(f"{plural(found, 'action')} of a model had a calibration gap above beta = {beta}")
        )
    if given.reconciles_decisions:
        found = len(report.events_to_fix)
        eta = f"{(report.parameters.eta or 0) * 100:g} %"
        several = "disagreement had" if found == 1 else "disagreements had"
        parts.append(Html(f"{found:,} {several} a share of eta = {eta} or more, beyond alpha"))
    if given.reconciles_scores:
        found = len(report.classes_to_fix)
        eta = f"{(report.parameters.eta or 0) * 100:g} %"
        which = plural(found, "class", "classes")
        parts.append(Html(f"the scores of {which} were apart on eta = {eta} of them or more"))
    return joined(rows, joined(*parts, by=", and "), ".")


def _events(report: Report) -> Iterator[Html]:
    n, several = report.rows("fit"), len(report.losses) > 1
    for rows, loss, a1, a2 in report.events_to_fix:
        title, actions = report.losses[loss].name, report.actions[loss]
        of = ("fit", title, "event", a1, a2)
        yield joined(
            joined(name(title), ": ") if several else "",
            *(tag("span", name(actions[a1]), class_="one"), " / "),
            *(tag("span", name(actions[a2]), class_="two"), ": "),
            *(whole(rows, *of, "rows"), " rows, ", share(Fraction(rows, n), *of, "mass")),
        )


def _gaps(report: Report) -> Iterator[Html]:
    for loss, cell in report.gaps_to_fix:
        title, action = report.losses[loss].name, report.actions[loss][cell["action"]]
        model = report.models[cell["model"] - 1]
        gap = decimal(cell["gap"], 4, "fit", title, "gap", cell["action"], cell["model"], "before")
        yield joined(name(title), ": ", name(action), " of ", name(model), ", gap ", gap)


def _classes(report: Report) -> Iterator[Html]:
    n = report.rows("fit")
    for found in report.classes_to_fix:
        of = ("fit", "coordinate", found["coordinate"])
        rows = whole(found["rows"], *of, "rows")
        mass = share(Fraction(found["rows"], n), *of, "mass")
        yield joined(name(report.class_name(found["coordinate"])), ": ", rows, " rows, ", mass)

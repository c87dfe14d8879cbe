"""By action: where the models disagree, how far they are calibrated, what their choices cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redcal_spark.core.number_text import decimal_text, digits_for
from redcal_spark.report.changes import Change, apart, costs
from redcal_spark.report.charts import Gap, interval_row
from redcal_spark.report.data import SPLITS, STYLES, WHENS, Report
from redcal_spark.report.markup import Html, joined, name, tag
from redcal_spark.report.numbers import decimal, share, shown, typeset, whole

ACTIONS = 8  # of a loss, in a chart
EVENTS = 8  # to fix, in a list


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

    caption: str
    names: Sequence[Html]  # of the actions; the last may be all others together
    cells: Sequence[Sequence[Cell]]
    disagreement: Html


def heat_maps(report: Report, loss: int, split: str, whens: Sequence[str] = WHENS) -> list[HeatMap]:
    """Before and after, in colours of one scale."""
    audits = {when: report.audit(split, when, loss) for when in whens}
    kept = _kept_pairs(report, loss, split)
    matrices = {when: _folded(audit["rows"], kept) for when, audit in audits.items()}
    top = max(
        (
            count
            for matrix in matrices.values()
            for a1, line in enumerate(matrix)
            for a2, count in enumerate(line)
            if a1 != a2
        ),
        default=0,
    )
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
            of = (split, title, when, "pair", keys[a1], keys[a2])
            value = shown(text, Fraction(count, n), *of)
            row.append(Cell(value, min(100, heat), agrees, f"{count:,} rows"))
        cells.append(row)
    caption = f"{when.capitalize()}, {SPLITS[split]} rows"
    differ = apart(report, split, loss)
    return HeatMap(caption, names, cells, differ.before if when == "before" else differ.after)


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
    differ = [sum(matrix[a]) + sum(line[a] for line in matrix) - 2 * matrix[a][a] for a in range(k)]
    return sorted(sorted(range(k), key=lambda a: (-differ[a], a))[:ACTIONS])


def _folded(matrix: Sequence[Sequence[int]], kept: Sequence[int]) -> list[list[int]]:
    """The matrix of the kept actions, with all others as one more."""
    if len(kept) == len(matrix):
        return [list(line) for line in matrix]
    place = {a: i for i, a in enumerate(kept)}
    size = len(kept) + 1
    folded = [[0] * size for _ in range(size)]
    for a1, line in enumerate(matrix):
        for a2, count in enumerate(line):
            folded[place.get(a1, size - 1)][place.get(a2, size - 1)] += count
    return folded


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
    beta = report.resolved.beta if report.parameters.calibrates_everywhere else None
    limit = None if beta is None else float(beta)
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
    style = STYLES[model]
    low, high = (after["low"], after["high"]) if fresh else (None, None)
    marks = [
        Gap(before["gap"], before["low"], before["high"], f"{style} before"),
        Gap(after["gap"], low, high, style),
    ]
    text = _gap_text(after) if fresh else typeset(decimal_text(after["gap"], 4))
    words = f"{action}, {report.models[model - 1]}: gap {_gap_text(before)} before, {text} after"
    title = report.losses[loss].name
    of = (split, title, "gap", before["action"], model)
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
        share(before["mass"], *(split, title, "mass", before["action"], model, "before")),
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
    widths: Sequence[str]
    before: Html
    after: Html
    rows_before: Html
    rows_after: Html


@dataclass(frozen=True)
class CostChart:
    """What a model's mean cost is made of."""

    lines: Sequence[CostLine]
    left_out: int
    total: Change


def cost_charts(report: Report, loss: int, split: str) -> list[CostChart]:
    """Per model, where its mean cost comes from: the dearest actions."""
    audits = [report.audit(split, when, loss) for when in WHENS]
    cells = list(zip(*(audit["by_action"] for audit in audits), strict=True))
    size = max((abs(cell["cost"]) for pair in cells for cell in pair), default=0.0)
    digits = digits_for(cost for audit in audits for cost in audit["decision_loss"])
    charts = []
    for model, total in enumerate(costs(report, split, loss), 1):
        own = [pair for pair in cells if pair[0]["model"] == model]
        dearest = sorted(own, key=lambda p: (-max(abs(c["cost"]) for c in p), p[0]["action"]))
        kept = dearest[:ACTIONS] if len(own) > ACTIONS + 1 else dearest
        lines = [
            _cost_line(report, loss, split, pair, size, digits)
            for pair in sorted(kept, key=lambda p: p[0]["action"])
        ]
        charts.append(CostChart(lines, len(own) - len(kept), total))
    return charts


def _cost_line(
    report: Report,
    loss: int,
    split: str,
    pair: Sequence[Mapping[str, Any]],
    size: float,
    digits: int,
) -> CostLine:
    of, place = (split, report.losses[loss].name), (pair[0]["action"], pair[0]["model"])
    spent = (
        decimal(Fraction(cell["cost_exact"]), digits, *of, "spent", *place, when)
        for cell, when in zip(pair, WHENS, strict=True)
    )
    masses = (
        share(cell["mass"], *of, "mass", *place, when)
        for cell, when in zip(pair, WHENS, strict=True)
    )
    widths = [f"{100 * abs(cell['cost']) / size if size else 0:.1f}" for cell in pair]
    return CostLine(name(report.actions[loss][pair[0]["action"]]), widths, *spent, *masses)


# --- what there was to fix ------------------------------------------------------------------------


def to_fix(report: Report) -> tuple[list[Html], int]:
    """The largest disagreements and gaps that the algorithm started with; how many are left out."""
    lines = [*_events(report), *_gaps(report), *_classes(report)]
    return lines[:EVENTS], len(lines[EVENTS:])


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
    for cell in report.classes_to_fix:
        of = ("fit", "coordinate", cell["coordinate"])
        rows = whole(cell["rows"], *of, "rows")
        mass = share(Fraction(cell["rows"], n), *of, "mass")
        yield joined(name(report.class_name(cell["coordinate"])), ": ", rows, " rows, ", mass)

"""For the one who signs: which decisions change, which model to use, what is still in dispute.

Here is what is shown; templates/decisions.html has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from redcal_spark.certificate.intervals import AUDIT_LEVEL
from redcal_spark.core.number_text import three_digits
from redcal_spark.report.actions import ACTIONS
from redcal_spark.report.data import STYLES, Report
from redcal_spark.report.markup import Html, name
from redcal_spark.report.numbers import share, shown

MOVES = 6  # of a model, in a list
PAIRS = 6  # of actions that are still in dispute
OTHERS = "others"


def money(value: Fraction, *of: object) -> Html:
    """A cost or a change of one, with its sign, as a sentence has it."""
    text = f"{value.numerator:,}" if value.denominator == 1 else three_digits(value)
    return shown(f"+{text}" if value > 0 else text, value, *of)


def decisions(report: Report, loss: int) -> dict[str, Any]:
    """What changed under a loss, of whom, and what is left."""
    split = report.shown_split
    known = report.audits[split]["after"].get("moves")
    moves = [] if known is None else known["losses"][loss]
    counted = known is not None and _add_up(report, loss, moves)
    of = (split, report.losses[loss].name)
    return {
        "name": name(report.losses[loss].name),
        "several": len(report.losses) > 1,
        "counted": counted or not report.log,
        "models": [_model(report, loss, moves, model, of) for model in report.numbers],
        "net": _net(report, loss, of),
        "use": _use(report, loss, of),
        "dispute": _dispute(report, loss, of),
    }


def touched(report: Report) -> dict[str, Any] | None:
    """How many rows got other scores; None where nobody counted."""
    split = report.shown_split
    known = report.audits[split]["after"].get("moves")
    if known is None:
        return None
    n, either = report.rows(split), known["touched_either"]
    return {
        "either": report.counted(either, split, "touched"),
        "share": share(Fraction(either, n), split, "touched", "share"),
        "models": [
            (name(report.models[i - 1]), STYLES[i], report.counted(count, split, "touched", i))
            for i, count in enumerate(known["touched"], 1)
        ],
    }


def _add_up(report: Report, loss: int, moves: list[dict[str, Any]]) -> bool:
    """Whether the moves lead from the rows of every action before to those after it.

    What does not is not shown: it would be a count of other rows.
    """
    split = report.shown_split
    audits = [report.audit(split, when, loss)["by_action"] for when in ("before", "after")]
    net = {
        (c["model"], c["action"]): now["rows"] - c["rows"] for c, now in zip(*audits, strict=True)
    }
    for move in moves:
        net[move["model"], move["before"]] += move["rows"]
        net[move["model"], move["after"]] -= move["rows"]
    return not any(net.values())


# --- moves ----------------------------------------------------------------------------------------


def _model(
    report: Report, loss: int, moves: list[dict[str, Any]], model: int, of: tuple[str, ...]
) -> dict[str, Any]:
    """One model's moves: a matrix, the largest in words, and what they come to."""
    names, n = report.actions[loss], report.rows(report.shown_split)
    own = [m for m in moves if m["model"] == model and m["before"] != m["after"]]
    rows, costs = sum(m["rows"] for m in own), [m["cost_exact"] for m in own]
    path = (*of, "moves", model)
    total = None if None in costs else sum(map(Fraction, costs), Fraction(0))
    order = sorted(own, key=lambda m: (-m["rows"], m["before"], m["after"]))
    return {
        "name": name(report.models[model - 1]),
        "style": STYLES[model],
        "rows": report.counted(rows, *path, "rows"),
        "any": bool(rows),
        "share": share(Fraction(rows, n), *path, "share"),
        "cost": None if total is None else money(total * report.unit, *path, "cost"),
        "mood": "" if not total else "good" if total < 0 else "bad",
        "per_1000": None if total is None else money(1000 * total / n, *path, "per_1000"),
        "matrix": _matrix(report, own, names, path),
        "largest": [_move(report, m, names, path) for m in order[:MOVES]],
        "left_out": len(order[MOVES:]),
    }


def _move(
    report: Report, move: Mapping[str, Any], names: tuple[str, ...], path: tuple[object, ...]
) -> Any:
    place = (*path, move["before"], move["after"])
    cost = None if move["cost_exact"] is None else Fraction(move["cost_exact"]) * report.unit
    return {
        "before": name(names[move["before"]]),
        "after": name(names[move["after"]]),
        "rows": report.counted(move["rows"], *place, "rows"),
        "cost": None if cost is None else money(cost, *place, "cost"),
        "mood": "" if not cost else "good" if cost < 0 else "bad",
    }


def _matrix(
    report: Report, own: list[dict[str, Any]], names: tuple[str, ...], path: tuple[object, ...]
) -> dict[str, Any]:
    """Rows by action before and after; the actions with fewest moves are one."""
    weight = [0] * len(names)
    for move in own:
        for key in ("before", "after"):
            weight[move[key]] += move["rows"]
    kept = list(range(len(names)))
    if len(names) > ACTIONS + 1:
        kept = sorted(sorted(kept, key=lambda a: (-weight[a], a))[:ACTIONS])
    place = {a: i for i, a in enumerate(kept)}
    size = len(kept) + (len(kept) < len(names))
    cells = [[0] * size for _ in range(size)]
    for move in own:
        before, after = (place.get(move[key], size - 1) for key in ("before", "after"))
        cells[before][after] += move["rows"]
    keys = [*kept, OTHERS]
    return {
        "actions": [name(names[a]) for a in kept] + [Html(OTHERS)] * (size - len(kept)),
        "top": max((x for line in cells for x in line), default=0),
        "cells": [
            [
                (count, _cell(report, count, *path, "matrix", keys[b], keys[a]))
                for a, count in enumerate(line)
            ]
            for b, line in enumerate(cells)
        ],
        "folded": size > len(kept),
    }


def _cell(report: Report, count: int, *of: object) -> Html:
    return report.counted(count, *of) if count else Html("·")


def _net(report: Report, loss: int, of: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows by action before and after, where nobody counted which went where."""
    audits = [
        report.audit(report.shown_split, when, loss)["by_action"] for when in ("before", "after")
    ]
    lines = []
    for before, after in zip(*audits, strict=True):
        if before["rows"] != after["rows"]:
            path = (*of, "net", before["model"], before["action"])
            lines.append(
                {
                    "model": name(report.models[before["model"] - 1]),
                    "style": STYLES[before["model"]],
                    "action": name(report.actions[loss][before["action"]]),
                    "before": report.counted(before["rows"], *path, "before"),
                    "after": report.counted(after["rows"], *path, "after"),
                    "size": abs(after["rows"] - before["rows"]),
                }
            )
    return sorted(lines, key=lambda line: -line["size"])[: 2 * MOVES]


# --- which model ----------------------------------------------------------------------------------


def _use(report: Report, loss: int, of: tuple[str, ...]) -> dict[str, Any]:
    """The model whose decisions cost least afterwards, by how much, and whether that is sure.

    On rows on which two models decide the same they cost the same: all of their difference is made
    on the others. Its interval is Hoeffding's, over these rows' labels, given the scores.
    """
    split = report.shown_split
    costs = {model: report.cost(split, "after", loss, model) for model in report.numbers}
    best = min(costs, key=lambda model: costs[model])
    fresh = split == "holdout" and (
        report.certificate is None or report.certificate.candidates == 1
    )
    others = []
    for model in report.numbers:
        gap, margin = costs[model] - costs[best], _margin(report, loss, best, model)
        path = of if len(costs) == 2 else (*of, model)
        if model != best:
            others.append(
                {
                    "name": name(report.models[model - 1]),
                    "style": STYLES[model],
                    "gap": shown(three_digits(1000 * gap), 1000 * gap, *path, "use", "gap"),
                    "margin": shown(
                        three_digits(1000 * margin), 1000 * margin, *path, "use", "margin"
                    ),
                    "sure": fresh and float(gap) > margin,
                }
            )
    return {
        "same": not report.audit(split, "after", loss)["disagreement_rows"],
        "level": f"{100 * AUDIT_LEVEL:g}",
        "better": name(report.models[best - 1]) if len({*costs.values()}) > 1 else None,
        "others": others,
        "style": STYLES[best],
        "costs": [
            (
                name(report.models[model - 1]),
                STYLES[model],
                shown(three_digits(1000 * x), 1000 * x, *of, "cost_of_1000", model),
            )
            for model, x in costs.items()
        ],
        "fresh": fresh,
        "sure": all(other["sure"] for other in others),
    }


def _margin(report: Report, loss: int, one: int, two: int) -> float:
    """How far the difference of two models' mean costs may be from its expectation.

    With weights a row moves the sum by w times as much, and the sum of w^2 is at most the largest
    weight times that of w.
    """
    if one == two:
        return 0.0
    pair = report.pair_audit(report.shown_split, "after", loss, (min(one, two), max(one, two)))
    costs = np.array(report.losses[loss].costs, np.float64)
    squares = 0.0
    for a1, line in enumerate(pair["rows"]):
        for a2, rows in enumerate(line):
            if a1 != a2 and rows:
                apart = costs[a1] - costs[a2]
                squares += rows * float(apart.max() - apart.min()) ** 2
    heaviest = 1 if report.weights is None else report.weights["largest"]
    spread = math.sqrt(heaviest * squares * math.log(2 / (1 - AUDIT_LEVEL)) / 2)
    return spread / report.rows(report.shown_split)


# --- what is left ---------------------------------------------------------------------------------


def _dispute(report: Report, loss: int, of: tuple[str, ...]) -> dict[str, Any]:
    """The rows on which the models still decide differently, and the rule for them."""
    split, names = report.shown_split, report.actions[loss]
    rows = report.audit(split, "after", loss)["disagreement_rows"]
    groups = [
        (count, a1, a2, pair)
        for pair in report.pairs
        for a1, line in enumerate(report.pair_audit(split, "after", loss, pair)["rows"])
        for a2, count in enumerate(line)
        if a1 != a2 and count
    ]
    groups.sort(key=lambda group: (-group[0], *group[1:]))
    tie = report.config["output"].get("tie", "off")
    return {
        "rows": report.counted(rows, *of, "dispute", "rows"),
        "any": bool(rows),
        "share": share(report.apart(split, "after", loss), *of, "dispute", "share"),
        "groups": [
            (
                report.counted(
                    count, *of, "dispute", a1, a2, *(pair if len(report.pairs) > 1 else ())
                ),
                (names[a1], names[a2]),
                pair,
            )
            for count, a1, a2, pair in groups[:PAIRS]
        ],
        "left_out": len(groups[PAIRS:]),
        "column": f"{report.losses[loss].name}_decision",
        "tie": tie,
        "tie_model": _tie_model(report, tie),
        "written": "table" in report.versions,
    }


def _tie_model(report: Report, tie: str | None) -> str | None:
    """The model whose action decides; `model_1` may be the name of any, where models have names."""
    if report.config["input"].get("models") is not None:
        return tie
    return {"model_1": report.models[0], "model_2": report.models[1]}.get(str(tie), tie)

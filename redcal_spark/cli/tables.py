"""What people see of an audit, and of the journey of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from redcal_spark.cli.terminal import columns_of, cost, share
from redcal_spark.core.metrics import brier_words
from redcal_spark.model.explanation import Explanation

LARGEST = 8  # pairs of actions, actions or coordinates that are listed

Shown = Table | str


def audit_tables(
    found: Mapping[str, Any], models: Sequence[str], binary: bool = False
) -> list[Shown]:
    """What the audit found: both models side by side, where they part ways, and what is to do.

    found: as `audit_rows` gives it. binary: scores are one column P(1), whose usual Brier score is
    half of that over both classes.
    """
    both = columns_of([f"{found['rows']:,} labelled rows"], models)
    usual = (x / 2 if binary else x for x in found["brier"])
    both.add_row(brier_words(binary), *(f"{x:.4f}" for x in usual))
    shown: list[Shown] = [both]
    for loss in found["losses"]:
        name = loss["loss"]
        *own, optimum = cost([*loss["decision_loss"], loss["optimal_loss"]])
        both.add_row(f"{name}: cost", *own)
        both.add_row(f"{name}: cost if the outcome were known", optimum, optimum)
        both.add_row(f"{name}: above that", *cost(loss["loss_gap"]))
        shown.append(f"\n{name}: the models disagree on {share(loss['disagreement'])} of the rows")
        shown += _pairs(loss, models)
        shown += _calibration(loss, found["intervals"]["level"])
    shown += _coordinates(found)
    if "to_fix" in found:
        shown += ["", *_to_fix(found["to_fix"], found["losses"])]
    return shown


def _pairs(loss: Mapping[str, Any], models: Sequence[str]) -> Iterator[Shown]:
    """Where the actions differ, what each of them costs there, and whose is the cheaper."""
    pairs, actions = loss["pairs"], loss["actions"]
    if not pairs:
        return
    numbers = ["rows", "share", "beyond\nalpha"]
    if loss["costs_known"]:
        numbers += ["cost\nof 1", "cost\nof 2", "right\nmodel"]
    table = columns_of(models, numbers)
    costs = cost([x for pair in pairs[:LARGEST] for x in pair["cost"] or ()])
    doubtful = False
    for place, pair in enumerate(pairs[:LARGEST]):
        line = [f"{pair['rows']:,}", share(pair["mass"]), f"{pair['event_rows']:,}"]
        if loss["costs_known"]:
            right = "none" if pair["right"] is None else f"{pair['right']}"
            doubtful = doubtful or not pair["sure"]
            line += [*costs[2 * place : 2 * place + 2], right + ("" if pair["sure"] else "?")]
        table.add_row(actions[pair["a1"]], actions[pair["a2"]], *line)
    yield table
    if len(pairs) > LARGEST:
        yield f"... and {len(pairs) - LARGEST} more pairs of actions"
    if doubtful:
        yield "? may be chance: the interval of the difference (Hoeffding, 95 %) holds 0"
    if not loss["costs_known"]:
        yield "what the actions cost there is not counted: too many actions and classes"


def _calibration(loss: Mapping[str, Any], level: float) -> Iterator[Shown]:
    """Per action the gap of each model; the largest first."""
    gaps: dict[int, list[Any]] = {}
    for cell in loss["calibration"]:
        gaps.setdefault(cell["action"], []).append(cell)
    order = sorted(gaps, key=lambda action: (-max(c["gap"] for c in gaps[action]), action))
    level_told = f"{level * 100:g} %"
    heading = [x for m in (1, 2) for x in (f"rows\nof {m}", f"gap of {m}\n({level_told})")]
    table = columns_of(["calibration"], heading)
    for action in order[:LARGEST]:
        line = []
        for cell in gaps[action]:
            told = f"{cell['gap']:.4f} ({cell['low']:.3f}-{cell['high']:.3f})"
            line += [share(cell["mass"]), told if cell["rows"] else ""]
        table.add_row(loss["actions"][action], *line)
    yield table
    if len(order) > LARGEST:
        yield f"... and {len(order) - LARGEST} more actions"


def _coordinates(found: Mapping[str, Any]) -> Iterator[Shown]:
    """For Reconcile: where the scores differ beyond alpha."""
    coordinates = found["coordinates"]
    if not coordinates:
        return
    table = columns_of(["scores further apart than alpha"], ["rows", "share"])
    order = sorted(coordinates, key=lambda c: (-c["rows"], c["coordinate"]))
    for c in order[:LARGEST]:
        name = f"class {c['coordinate']}" if c["class"] is None else c["class"]
        table.add_row(name, f"{c['rows']:,}", share(c["mass"]))
    yield ""
    yield table
    if len(order) > LARGEST:
        yield f"... and {len(order) - LARGEST} more classes"


def _to_fix(todo: Mapping[str, Any], losses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = f"the {todo['rows']:,} fitting rows"
    actions = {loss["loss"]: loss["actions"] for loss in losses}
    if todo["calibrations"]:
        several = "actions" if len(todo["calibrations"]) > 1 else "action"
        yield (
            f"to calibrate on {rows}: {len(todo['calibrations'])} {several} of a model with a gap "
            f"above beta = {todo['beta']:g}"
        )
    if todo["algorithm"] in ("redcal", "dc_then_redcal"):
        first = todo["events"][0] if todo["events"] else None
        several = "event" if len(todo["events"]) == 1 else "events"
        told = f"to reconcile on {rows}: {len(todo['events'])} {several}"
        yield f"{told} with {share(todo['eta'])} (eta) of them or more" + (
            ""
            if first is None
            else f"; the first: {first['loss']}, {actions[first['loss']][first['a1']]} / "
            f"{actions[first['loss']][first['a2']]}, {first['rows']:,} rows"
        )
    if todo["algorithm"] == "reconcile":
        several = "class" if len(todo["coordinates"]) == 1 else "classes"
        yield (
            f"to reconcile on {rows}: {len(todo['coordinates'])} {several} with "
            f"{share(todo['eta'])} (eta) of them or more beyond alpha"
        )
    if todo["algorithm"] == "decision_calibration" and not todo["calibrations"]:
        yield f"to calibrate on {rows}: no gap is above beta = {todo['beta']:g}"


# --- a row ----------------------------------------------------------------------------------------


def explanation_lines(found: Explanation, models: Sequence[str]) -> list[Shown]:
    """The journey of a row in sentences, then what each model does before and after."""
    shown: list[Shown] = list(found.sentences(models))
    if found.start.standings:
        table = columns_of([""], [])
        for name in (f"{m}\n{when}" for when in ("before", "after") for m in models):
            table.add_column(name, overflow="fold")
        for before, after in zip(found.start.standings, found.end.standings, strict=True):
            table.add_row(before.loss, *before.actions, *after.actions)
        shown += ["", table]
    return shown
